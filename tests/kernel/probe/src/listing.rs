//! A large directory listed while it changes: entries that stay are seen exactly once.

use std::collections::HashMap;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::fs::RawDir;

use crate::{Checked, same, told};

/// Small, so that one listing needs many calls, between which the directory changes.
const GETDENTS_BYTES: usize = 2048;
/// Entries that are created and removed at the same time.
const CHURN_WIDTH: usize = 50;

/// Creates `files` entries that stay.
pub(crate) fn populate(directory: &Path, files: usize) -> Checked {
    (0..files).map(kept_name).try_for_each(|name| {
        let path = directory.join(name);
        File::create(&path).map(drop).map_err(told(&path))
    })
}

/// Lists `directory` `rounds` times while `other`, the same directory by this or another mount, changes.
pub(crate) fn check(directory: &Path, other: &Path, files: usize, rounds: usize) -> Checked {
    let (done, churned) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (listed, changed) = thread::scope(|scope| {
        let churner = scope.spawn(|| churn(other, &done, &churned));
        let listed = (0..rounds).try_for_each(|round| list_once(directory, files, round, &churned));
        done.store(true, Ordering::Relaxed);
        (listed, churner.join().unwrap_or(Err("the changing thread panicked".into())))
    });
    changed.and(listed)
}

fn list_once(directory: &Path, files: usize, round: usize, churned: &AtomicUsize) -> Checked {
    let changes_before = churned.load(Ordering::Relaxed);
    let seen = list(directory, churned)?;
    let changes = churned.load(Ordering::Relaxed) - changes_before;
    println!("round {round}: {} entries while {changes} changed", seen.len());
    if changes == 0 {
        return Err(format!("round {round}: the directory did not change, so nothing is proved"));
    }
    for name in (0..files).map(kept_name) {
        same(
            &format!("round {round}: times {name} was seen"),
            1,
            seen.get(name.as_bytes()).copied().unwrap_or(0),
        )?;
    }
    // No name is used twice, so even an entry that comes or goes must not be seen twice.
    match seen.iter().find(|(_, times)| **times > 1) {
        Some((name, times)) => Err(format!("round {round}: {} was seen {times} times", name.escape_ascii())),
        None => Ok(()),
    }
}

/// Returns the names and the number of times that each was seen. Waits for a change periodically, because a quick listing would see none.
fn list(directory: &Path, churned: &AtomicUsize) -> Result<HashMap<Vec<u8>, usize>, String> {
    let file = File::open(directory).map_err(told(directory))?;
    let mut buffer = [MaybeUninit::uninit(); GETDENTS_BYTES];
    let mut entries = RawDir::new(&file, &mut buffer);
    let mut seen = HashMap::new();
    let mut count = 0usize;
    while let Some(entry) = entries.next() {
        *seen.entry(entry.map_err(told(directory))?.file_name().to_bytes().to_vec()).or_insert(0) += 1;
        count += 1;
        if count.is_multiple_of(1000) {
            let changes = churned.load(Ordering::Relaxed);
            while churned.load(Ordering::Relaxed) == changes {
                thread::yield_now();
            }
        }
    }
    Ok(seen)
}

/// Creates and removes entries until `done`, each with its own name; removes all at the end.
fn churn(directory: &Path, done: &AtomicBool, churned: &AtomicUsize) -> Checked {
    let path = |number: usize| directory.join(format!("{:03}-churn-{number}", number % 251));
    let mut number = 0;
    let result = loop {
        if done.load(Ordering::Relaxed) {
            break Ok(());
        }
        let made = File::create(path(number)).map(drop).map_err(told(path(number)));
        let gone = if number < CHURN_WIDTH { Ok(()) } else { remove(&path(number - CHURN_WIDTH)) };
        number += 1;
        churned.fetch_add(1, Ordering::Relaxed);
        if let Err(why) = made.and(gone) {
            break Err(why);
        }
    };
    // A listing that waits for changes must not wait without end.
    if result.is_err() {
        eprintln!("listing: {result:?}");
        std::process::exit(1);
    }
    (number.saturating_sub(CHURN_WIDTH)..number).try_for_each(|left| remove(&path(left)))
}

fn remove(path: &Path) -> Checked {
    fs::remove_file(path).map_err(told(path))
}

/// Names have different lengths, so that replies end at different entries.
fn kept_name(number: usize) -> String {
    format!("keep-{number:05}-{}", "x".repeat(number % 40))
}
