//! `enfys-peers`: servers under the same load. `cargo xtask peers` builds the programs and starts it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::layout::{self, SMALL_FILES};
use bench::load::{CONNECTIONS_MAX, DEPTH_MAX};
use bench::operation::Operation;
use bench::peers::{self, Peer, PeerConfig, Plan};
use bench::process;
use bench::recalls::{self, Case, Cost};
use bench::results::Shape;
use clap::{Args, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Measure Enfys, its floor and other NFS servers under the same load
#[derive(Parser)]
#[command(name = "cargo xtask peers", bin_name = "cargo xtask peers")]
struct Cli {
    #[command(subcommand)]
    command: Option<Chore>,
    #[command(flatten)]
    compare: Compare,
    #[command(flatten)]
    machine: Machine,
}

#[derive(Subcommand)]
enum Chore {
    /// Resident memory at rest, and with idle connections
    Idle {
        /// Number of idle connections
        #[arg(long, default_value_t = peers::CONNECTIONS)]
        connections: usize,
    },
    /// Opens of files that other clients have delegated, and of files that they only have open
    Recalls {
        /// Files
        #[arg(long, default_value_t = SMALL_FILES, value_parser = clap::value_parser!(u32).range(1..=i64::from(SMALL_FILES)))]
        files: u32,
        /// Number of holders
        #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4], value_parser = clap::value_parser!(u32).range(1..=64))]
        holders: Vec<u32>,
        /// Milliseconds of a round trip
        #[arg(long, value_delimiter = ',', default_values_t = [0, 10], value_parser = clap::value_parser!(u64).range(..=1000))]
        delay_ms: Vec<u64>,
        /// How often each case is measured, without delegations and with them alternately; the table shows medians
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
        rounds: u32,
    },
}

#[derive(Args)]
struct Compare {
    /// How often everything is measured; the report shows medians. A target is checked by the ratios within the rounds: it is "open" while
    /// they do not agree with 95 % confidence, for which it takes six or more
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Operations, by name
    #[arg(long, value_delimiter = ',', default_values_t = Operation::ALL.iter().copied())]
    ops: Vec<Operation>,
    /// Requests outstanding on each connection
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64], value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX as i64))]
    depth: Vec<u32>,
    /// Connections
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: Vec<u32>,
    /// Length of each measured window
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Also write every measurement to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct Machine {
    /// Servers: floor, enfys, ganesha, nfs3_server; and enfys_memory, which is left out unless named
    #[arg(long, global = true, value_delimiter = ',')]
    only: Vec<String>,
    /// Directory to export (a subdirectory `enfys-bench` is made there); default: a temporary one
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    /// Core that the servers run on
    #[arg(long, global = true, default_value_t = 0)]
    server_core: usize,
    /// Core that the generator runs on
    #[arg(long, global = true, default_value_t = 1)]
    load_core: usize,
    /// The program around nfs3_server
    #[arg(long, global = true, default_value = "target/bench-peers/release/nfs3-server-peer", hide = true)]
    nfs3_server: PathBuf,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let export = cli.machine.dir.clone().unwrap_or_else(|| scratch.path().join("export"));
    fs::create_dir_all(&export).map_err(|error| format!("{}: {error}", export.display()))?;
    layout::prepare(&export).map_err(|error| format!("{}: {error}", export.display()))?;
    let programs = std::env::current_exe().map_err(|error| error.to_string())?;
    let place = PeerConfig {
        export: export.canonicalize().map_err(|error| error.to_string())?,
        scratch: scratch.path().into(),
        programs: programs.parent().map(PathBuf::from).unwrap_or_default(),
        nfs3_server: cli.machine.nfs3_server.clone(),
        core: cli.machine.server_core,
    };
    process::pin_to(cli.machine.load_core)
        .map_err(|error| format!("run on core {}: {error}", cli.machine.load_core))?;
    let chosen = chosen_peers(&cli.machine.only)?;
    match &cli.command {
        Some(Chore::Idle { connections }) => idle(&chosen, &place, *connections),
        Some(Chore::Recalls { files, holders, delay_ms, rounds }) => {
            recalls(&chosen, &place, (*files, *rounds), holders, delay_ms)
        }
        None => compare(&cli.compare, chosen, &place),
    }
}

fn chosen_peers(only: &[String]) -> Result<Vec<Peer>, String> {
    let named = |peer: &Peer| match peer {
        Peer::FloorSendfile | Peer::FloorSync => Peer::Floor.name(),
        Peer::EnfysAsync => Peer::Enfys.name(),
        peer => peer.name(),
    };
    if let Some(unknown) = only.iter().find(|name| !Peer::ALL.iter().any(|peer| named(peer) == **name)) {
        return Err(format!("--only {unknown}: there are floor, enfys, enfys_memory, ganesha, nfs3_server"));
    }
    let wanted = |peer: &&Peer| match only {
        [] => **peer != Peer::EnfysMemory,
        only => only.iter().any(|name| named(peer) == *name),
    };
    Ok(Peer::ALL.iter().filter(wanted).copied().collect())
}

fn compare(options: &Compare, peers: Vec<Peer>, place: &PeerConfig) -> Result<(), String> {
    let window =
        Duration::try_from_secs_f64(options.seconds).map_err(|error| format!("--seconds: {error}"))?;
    let shapes = options
        .connections
        .iter()
        .flat_map(|connections| {
            options.depth.iter().map(|depth| Shape { connections: *connections, depth: *depth })
        })
        .collect();
    let plan = Plan {
        peers,
        operations: options.ops.clone(),
        shapes,
        rounds: options.rounds as usize,
        warm_up: window / 4,
        window,
    };
    let comparison = peers::compare(&plan, place);
    println!("{}\n\n{}\n{}", comparison.machine, peers::details(&comparison), peers::targets(&comparison));
    for line in &comparison.missing {
        println!("missing: {line}");
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&comparison).map_err(|error| error.to_string())?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn idle(peers: &[Peer], place: &PeerConfig, connections: usize) -> Result<(), String> {
    raise_descriptor_limit().map_err(|error| format!("raise the limit of open files: {error}"))?;
    // The floor gives every connection a buffer forever: its memory is not meaningful.
    let telling = |peer: &&Peer| {
        !matches!(peer, Peer::Floor | Peer::FloorSendfile | Peer::FloorSync | Peer::EnfysAsync)
    };
    for peer in peers.iter().filter(telling) {
        match peers::idle(*peer, place, connections) {
            Ok(idle) => println!("{}: {idle}", peer.name()),
            Err(why) => println!("missing: {why}"),
        }
    }
    Ok(())
}

/// Prints a table of the cost of conflicts.
fn recalls(
    peers: &[Peer],
    place: &PeerConfig,
    (files, rounds): (u32, u32),
    holders: &[u32],
    delays_ms: &[u64],
) -> Result<(), String> {
    println!("| server | round trip | holders | {} |", Cost::COLUMNS.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(Cost::COLUMNS.len()));
    for peer in peers.iter().filter(|peer| matches!(peer, Peer::Enfys | Peer::Ganesha)) {
        for (delay_ms, holders) in delays_ms.iter().flat_map(|ms| holders.iter().map(move |n| (*ms, *n))) {
            let case = Case { holders, files, delay: Duration::from_millis(delay_ms) };
            let cost = recalls::measure(*peer, place, case, rounds)
                .map_err(|why| format!("{}: {why}", peer.name()))?;
            println!("| {} | {delay_ms} ms | {holders} | {cost} |", peer.name());
        }
    }
    Ok(())
}

/// Connections are descriptors here and in the servers, which inherit the limit.
fn raise_descriptor_limit() -> rustix::io::Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })
}
