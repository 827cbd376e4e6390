//! A link that is a relay of TCP connections: for a server on another machine, and where packets cannot be carried.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU64;
use std::process::{Command, ExitStatus};
use std::rc::Rc;
use std::thread;

use net::proxy::{self, Proxy, Statistics};
use tokio::sync::oneshot;

use super::settings::Settings;

/// Connections at most; further ones are closed at once.
const CONNECTIONS_MAX: usize = 1024;
/// Payload of a packet, in bytes: a queue of a link is given in packets, that of a proxy in bytes.
const PAYLOAD: usize = 1448;
/// What a relay cannot show, for reports.
pub const CANNOT_SHOW: &str = "\
A proxy ends TCP on both sides, so that neither end's TCP has the delay. It cannot show: buffers and windows that are too
small for the delay, slow start, congestion control, fast retransmission (a lost segment stalls its connection for a
timeout), packets out of order, and packets that a full queue drops (the proxy stops reading instead). A packet link can.";

/// The outcome of a run over a proxy.
#[derive(Debug)]
pub struct Proxied {
    /// The client's exit status.
    pub client: ExitStatus,
    /// What the proxy relayed.
    pub statistics: Statistics,
}

/// Returns the model of a link.
///
/// # Errors
/// A property that a proxy does not have.
pub fn model(settings: &Settings) -> Result<proxy::Link, String> {
    if settings.reorder > 0.0 {
        return Err("a proxy cannot reorder packets: it carries bytes in their order".to_owned());
    }
    let outage = |outage: &super::settings::Outage| proxy::Outage {
        first: outage.start,
        period: None,
        length: outage.length,
    };
    Ok(proxy::Link {
        delay: settings.delay,
        jitter: settings.jitter,
        rate: settings.bits_per_second.and_then(|bits| NonZeroU64::new(bits / 8)),
        // Every segment lost for ever would be no link.
        lost_per_million: ((settings.loss * 1e6).round() as u32).min(999_999),
        outages: settings.outages.iter().map(outage).collect(),
        queue_bytes: settings.queue_packets as usize * PAYLOAD,
        buffer_bytes: proxy::Link::BUFFER_BYTES,
    })
}

/// Runs a client that reaches the first of `targets` that answers by a proxy, and waits for it.
///
/// The client finds the proxy in `LINK_SERVER` and `LINK_PORT`.
///
/// # Errors
/// A property that a proxy does not have, or a client that does not start.
pub fn run(settings: &Settings, client: &[OsString], targets: Vec<SocketAddr>) -> io::Result<Proxied> {
    let link = model(settings).map_err(io::Error::other)?;
    let (program, arguments) = client.split_first().ok_or(io::Error::other("no command for the client"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let (stop, stopped) = oneshot::channel::<()>();
    let seed = settings.seed;
    let relay = move || -> io::Result<Statistics> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let proxy = Rc::new(Proxy::new(targets, link, CONNECTIONS_MAX, seed));
        let served = Rc::clone(&proxy).serve(listener);
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::select! {
                served = served => served,
                // A dropped sender means the same as a message.
                _ = stopped => Ok(()),
            }
        })?;
        Ok(proxy.statistics())
    };
    let relay = thread::Builder::new().name("proxy".to_owned()).spawn(relay)?;
    let mut command = Command::new(program);
    command.args(arguments).env("LINK_SERVER", Ipv4Addr::LOCALHOST.to_string());
    command.env("LINK_PORT", port.to_string()).env("LINK_CLIENT", Ipv4Addr::LOCALHOST.to_string());
    let status = command.status().map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", command.get_program().display()))
    });
    drop(stop);
    let statistics = relay.join().unwrap_or_else(|_| Err(io::Error::other("the proxy's thread panicked")));
    Ok(Proxied { client: status?, statistics: statistics? })
}

impl fmt::Display for Proxied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{CANNOT_SHOW}", self.statistics)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_link_has_a_model() {
        let outages = vec!["1s+100ms".parse().unwrap()];
        let delay = Duration::from_millis(10);
        let settings = Settings {
            delay,
            bits_per_second: Some(8_000_000),
            loss: 0.005,
            queue_packets: 10,
            outages,
            ..Settings::default()
        };
        let link = model(&settings).unwrap();
        assert_eq!(
            (link.delay, link.rate.map(NonZeroU64::get), link.lost_per_million),
            (delay, Some(1_000_000), 5000)
        );
        assert_eq!((link.queue_bytes, link.outages.len()), (14_480, 1));
        let lossy = model(&Settings { loss: 1.0, ..settings.clone() }).unwrap();
        assert_eq!(lossy.lost_per_million, 999_999, "less than a million");
        assert!(model(&Settings { reorder: 0.1, ..settings }).unwrap_err().contains("cannot reorder"));
    }
}
