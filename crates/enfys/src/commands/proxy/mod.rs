//! `enfys proxy`: relays TCP as over a long link.

mod options;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use futures_util::future::try_join_all;
use net::proxy::{Link, Proxy};
use store::error_text;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::address::Address;
use crate::descriptor_limits;
use crate::duration::Span;
use crate::size::Size;
use crate::sockets::listen_on_all;
use options::{Loss, OutageArgument, Rate};

const HELP: &str = "\
Examples:
  enfys proxy --listen 3049 --to 2049 --delay 10ms
      Clients of 127.0.0.1:3049 reach the server at 127.0.0.1:2049 over a round trip of 10 ms.
  enfys proxy --listen 3049 --to nfs.example.org:2049 --rate 100Mbit/s --delay 40ms --jitter 4ms --loss 0.1%
      A line of 100 Mbit/s each way, with varying delay and losses.
  enfys proxy --listen 3049 --to 2049 --outage 'every 30s for 5s'
      A link that fails for 5 s, again and again.

Mount through it with the server's commands and the port of the proxy: port=3049, for version 3 mountport=3049 too.

The proxy ends TCP on both sides, so that neither TCP sees the delay: windows and congestion control act as without it. \
The first bytes of a connection wait for a round trip, as behind TCP's handshake. A lost segment stalls its connection \
for 200 ms and a round trip, and twice as long for each further loss of the same segment; fast retransmission is not \
modelled. In an outage nothing leaves either end, and new connections wait. The rate counts payload, and is shared by \
all connections of a direction. When the queue is full, the proxy stops reading; it drops nothing.

The server sees the address of the proxy. A client with a port below 1024 gets one at the server too, if the proxy may \
bind it.

Signals: SIGUSR1 prints statistics. SIGINT or SIGTERM prints them and ends, which breaks open connections.";

/// Maximum number of open connections without an option.
const MAX_CONNECTIONS: &str = "128";

/// Descriptors of a connection: two sockets and two timers.
const DESCRIPTORS_PER_CONNECTION: usize = 4;
/// Descriptors for other uses.
const DESCRIPTORS_RESERVED: usize = 64;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ProxyArguments {
    /// Address to listen on: PORT (of 127.0.0.1), ADDRESS:PORT or HOST:PORT; port 0 is any free port. Can be given
    /// several times
    #[arg(long, value_name = "[ADDR:]PORT", required = true)]
    pub listen: Vec<Address>,
    /// The server: PORT (of 127.0.0.1), ADDRESS:PORT or HOST:PORT, resolved at the start
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub to: Address,
    /// Delay of a round trip, as in 10ms; each direction has half of it
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub delay: Span,
    /// The round trip is up to this much longer or shorter, at random; bytes stay in order
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub jitter: Span,
    /// Bytes or bits a second in each direction, as in 100Mbit/s or 12.5MB/s [default: unlimited]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,
    /// Share of segments (1,448 bytes) that are lost and sent again, as in 0.1%
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub loss: Loss,
    /// Time without traffic after the start of the proxy: `every 30s for 5s` or `at 10s for 5s`. Can be given several
    /// times
    #[arg(long, value_name = "OUTAGE")]
    pub outage: Vec<OutageArgument>,
    /// Most bytes of a direction that wait for the rate or the end of an outage
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    pub queue: Size,
    /// Most bytes of a connection and direction that are under way
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    pub buffer: Size,
    /// Most open connections; further ones are closed at once
    #[arg(long, value_name = "N", default_value = MAX_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Seed of jitter and losses, which the start message shows [default: the time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Relays until a signal ends it.
///
/// # Errors
/// One line that names the option or address and the error.
pub fn run(arguments: &ProxyArguments) -> Result<(), String> {
    let link = link(arguments)?;
    start_log();
    let max_connections = arguments.max_connections as usize;
    raise_descriptors(max_connections)?;
    let targets = arguments.to.resolve().map_err(|why| format!("--to {why}"))?;
    let listeners = listen_on_all(&arguments.listen)?;
    let addresses: std::io::Result<Vec<_>> = listeners.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses.map_err(|error| format!("listening socket: {}", error_text(&error)))?;
    if let Some(address) = addresses.iter().find(|address| targets.contains(address)) {
        return Err(format!("--to {address} is an address that the proxy listens on: it would call itself"));
    }
    let seed = arguments.seed.unwrap_or_else(seed_of_the_time);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {}", error_text(&error)))?;
    let started = Started { arguments, addresses: &addresses, seed };
    print(&started.to_string());
    let proxy = Rc::new(Proxy::new(targets, link, max_connections, seed));
    serve(&runtime, &proxy, listeners)?;
    print(&proxy.statistics().to_string());
    Ok(())
}

/// Returns the link that the options describe.
fn link(arguments: &ProxyArguments) -> Result<Link, String> {
    if arguments.jitter > arguments.delay {
        return Err(format!(
            "--jitter {} is more than --delay {}: no round trip can be negative",
            arguments.jitter, arguments.delay
        ));
    }
    let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    Ok(Link {
        delay: arguments.delay.0,
        jitter: arguments.jitter.0,
        rate: arguments.rate.map(|rate| rate.0),
        lost_per_million: arguments.loss.0,
        outages: arguments.outage.iter().map(|outage| outage.0).collect(),
        queue_bytes: bytes(arguments.queue),
        buffer_bytes: bytes(arguments.buffer),
    })
}

/// Raises the limit on descriptors if the connections need it.
fn raise_descriptors(max_connections: usize) -> Result<(), String> {
    let needed = max_connections * DESCRIPTORS_PER_CONNECTION + DESCRIPTORS_RESERVED;
    if descriptor_limits::limit() < needed {
        descriptor_limits::raise_limit();
    }
    let limit = descriptor_limits::limit();
    if limit < needed {
        return Err(format!(
            "--max-connections {max_connections} needs {needed} file descriptors, {limit} are allowed: raise the limit \
             (`ulimit -n`), or give fewer connections"
        ));
    }
    Ok(())
}

/// Relays until SIGINT or SIGTERM.
fn serve(runtime: &Runtime, proxy: &Rc<Proxy>, listeners: Vec<TcpListener>) -> Result<(), String> {
    LocalSet::new().block_on(runtime, async {
        let register =
            |kind| signal(kind).map_err(|error| format!("cannot register signal handlers: {error}"));
        let mut show = register(SignalKind::user_defined1())?;
        let mut interrupt = register(SignalKind::interrupt())?;
        let mut terminate = register(SignalKind::terminate())?;
        let serving = listeners.into_iter().map(|listener| Rc::clone(proxy).serve(listener));
        let serving = try_join_all(serving);
        tokio::pin!(serving);
        loop {
            tokio::select! {
                done = &mut serving => {
                    return done.map(|_| ()).map_err(|error| format!("listening socket: {}", error_text(&error)));
                }
                _ = show.recv() => print(&proxy.statistics().to_string()),
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
        }
    })
}

/// Logs warnings to standard error.
fn start_log() {
    let stderr = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(stderr).init();
}

fn seed_of_the_time() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time.as_nanos() as u64 % 1_000_000
}

/// Prints to standard output, which may be closed.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The message at the start.
struct Started<'a> {
    arguments: &'a ProxyArguments,
    addresses: &'a [SocketAddr],
    seed: u64,
}

impl fmt::Display for Started<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProxyArguments { to, delay, jitter, rate, loss, outage, buffer, max_connections, .. } =
            self.arguments;
        for address in self.addresses {
            writeln!(f, "proxy {address} -> {to}")?;
        }
        let half = Span(delay.0 / 2);
        write!(f, "round trip {delay} ({half} each way)")?;
        if jitter.0.as_nanos() > 0 {
            write!(f, " ± {jitter}")?;
        }
        match rate {
            Some(rate) => write!(f, ", {rate} each way")?,
            None => write!(f, ", rate unlimited")?,
        }
        if loss.0 > 0 {
            write!(f, ", {loss} of segments lost")?;
        }
        for outage in outage {
            write!(f, ", {outage}")?;
        }
        writeln!(f, "; seed {}", self.seed)?;
        writeln!(
            f,
            "at most {max_connections} connections, each with at most {buffer} under way in each direction"
        )?;
        let pid = std::process::id();
        writeln!(f, "`kill -USR1 {pid}` prints statistics, `kill {pid}` ends the proxy")
    }
}
