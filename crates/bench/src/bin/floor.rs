//! `enfys-floor`: the floor in its own process, so that its CPU time is measured separately from the generator's.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use bench::floor::{self, Durability, FloorOptions, LargeRead};
use clap::Parser;

/// The least that a server can do for the measured operations; for comparison only
#[derive(Parser)]
struct Options {
    /// Directory that `enfys-peers` prepared
    export: PathBuf,
    /// Where to listen
    #[arg(long)]
    listen: SocketAddr,
    /// Answer large READs by sendfile
    #[arg(long)]
    sendfile: bool,
    /// Answer CREATE and REMOVE only when they are on disk
    #[arg(long)]
    sync: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let large_read = if options.sendfile { LargeRead::Sendfile } else { LargeRead::Pread };
    let durability = if options.sync { Durability::Batch } else { Durability::None };
    let served = TcpListener::bind(options.listen).and_then(|listener| {
        floor::serve(&options.export, listener, FloorOptions { large_read, durability })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: floor over {} on {}: {error}", options.export.display(), options.listen);
            ExitCode::FAILURE
        }
    }
}
