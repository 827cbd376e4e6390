//! O_EXCL: of all racers that create a name at the same time, exactly one succeeds.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use crate::{Checked, same, told};

const RACERS: usize = 4;

/// Races for `names` names; half of the racers come through `other`, the same directory by another mount.
pub(crate) fn check(directory: &Path, other: &Path, names: usize) -> Checked {
    let start = Barrier::new(RACERS);
    let wins: Result<Vec<Vec<usize>>, String> = thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let (start, directory) = (&start, if racer % 2 == 0 { directory } else { other });
                scope.spawn(move || race(directory, racer, names, start))
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap_or(Err("a racer panicked".into()))).collect()
    });
    let mut winners = vec![Vec::new(); names];
    for (racer, won) in wins?.into_iter().enumerate() {
        won.into_iter().for_each(|name| winners[name].push(racer));
    }
    for (name, winners) in winners.iter().enumerate() {
        same(&format!("winners of name {name} ({winners:?})"), 1, winners.len())?;
        let path = directory.join(format!("name-{name}"));
        let owner = fs::read_to_string(&path).map_err(told(&path))?;
        same(&format!("content of name {name}"), winners[0].to_string(), owner)?;
    }
    Ok(())
}

/// Tries every name; returns those it created.
fn race(directory: &Path, racer: usize, names: usize, start: &Barrier) -> Result<Vec<usize>, String> {
    let mut won = Vec::new();
    for name in 0..names {
        let path = directory.join(format!("name-{name}"));
        start.wait();
        match File::options().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(racer.to_string().as_bytes()).map_err(told(&path))?;
                file.sync_all().map_err(told(&path))?;
                won.push(name);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            // The others wait at the barrier: without this racer they would wait forever.
            Err(error) => std::process::exit({
                eprintln!("exclusive: {path:?}: {error}");
                1
            }),
        }
    }
    Ok(won)
}
