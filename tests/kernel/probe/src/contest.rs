//! Several racers create one directory at the same time while the server is restarted: exactly one succeeds.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::progress::Progress;
use crate::{Checked, same, told};

const RACERS: usize = 4;

/// Contends for one name after the other below `directory` until `stop` exists.
pub(crate) fn hold(directory: &Path, progress: &Path, stop: &Path) -> Checked {
    let progress = Progress::new(progress)?;
    fs::create_dir(directory).map_err(told(directory))?;
    let contest = Contest { directory, start: Barrier::new(RACERS), over: AtomicBool::new(false) };
    let mut winners = Vec::new();
    thread::scope(|scope| {
        let others: Vec<_> = (1..RACERS).map(|_| scope.spawn(|| contest.race(|_| false))).collect();
        // One racer decides for all whether there is another round.
        let own = contest.race(|rounds| {
            progress.tell(rounds).unwrap_or_else(|why| give_up(&why));
            stop.exists()
        });
        winners.push(own);
        winners.extend(others.into_iter().map(|racer| racer.join().unwrap_or_default()));
    });
    judge(&winners)
}

struct Contest<'a> {
    directory: &'a Path,
    start: Barrier,
    over: AtomicBool,
}

impl Contest<'_> {
    /// Returns for each name whether this racer succeeded.
    fn race(&self, is_over: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut won = Vec::new();
        loop {
            if is_over(won.len()) {
                self.over.store(true, Ordering::Relaxed);
            }
            self.start.wait();
            if self.over.load(Ordering::Relaxed) {
                return won;
            }
            won.push(makes(&self.directory.join(format!("name-{}", won.len()))));
            // No racer checks for the end before all others know of this round.
            self.start.wait();
        }
    }
}

/// Checks the names that each racer won.
fn judge(racers: &[Vec<bool>]) -> Checked {
    for name in 0..racers[0].len() {
        let winners = racers.iter().filter(|won| won.get(name) == Some(&true)).count();
        same(&format!("winners of name {name}"), 1, winners)?;
    }
    Ok(())
}

/// Returns whether this racer created it.
fn makes(path: &Path) -> bool {
    match fs::create_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => give_up(&format!("{path:?}: {error}")),
    }
}

// The others wait at the barrier: without this racer they would wait forever.
fn give_up(why: &str) -> ! {
    eprintln!("contest: {why}");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn each_name_is_won_once() {
        let judged = |one: [bool; 2], other: [bool; 2]| judge(&[one.to_vec(), other.to_vec()]);
        assert_eq!(judged([true, false], [false, true]), Ok(()));
        assert!(judged([true, false], [true, true]).is_err(), "two have one name");
        assert!(judged([true, false], [false, false]).is_err(), "nobody has a name that all were refused");
    }
}
