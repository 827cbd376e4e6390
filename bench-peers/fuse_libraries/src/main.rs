//! Serves one small file system by each of four FUSE libraries, and compares them: stat(2), reads and writes of 1 MiB, signals of
//! blocked programs, descriptors.
//!
//! `cargo run --release [ROUNDS]` as root prints the tables, which docs/decisions/0033 quotes. It needs `/dev/fuse` and `fusermount3`.

mod blocked;
mod compare;
mod files;
mod interrupts;
mod load;
mod mounted;
mod serve;

use std::error::Error;
use std::path::Path;

use serve::{Kind, OnInterrupt};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds of the comparison without an argument.
const ROUNDS: usize = 5;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => compare::compare(ROUNDS),
        // Processes that the comparison starts.
        ["serve", kind, on_interrupt, directory] => {
            let kind = Kind::ALL.into_iter().find(|one| one.name() == kind).ok_or("no such library")?;
            let on_interrupt =
                if on_interrupt == "eintr" { OnInterrupt::Eintr } else { OnInterrupt::Default };
            serve::serve(kind, on_interrupt, Path::new(directory))
        }
        ["blocked", path, threads] => blocked::read(Path::new(path), threads.parse()?),
        [rounds] => compare::compare(rounds.parse()?),
        _ => Err("usage: fuse-libraries-peer [ROUNDS]".into()),
    }
}
