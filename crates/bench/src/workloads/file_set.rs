//! Filebench's set of files: sizes with a gamma distribution, in a tree of one width, some of which exist at the start.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use fastrand::Rng;

use super::files::{make_directory, make_file};
use super::tree::Tree;
use crate::runner::Who;
use crate::targets::{Fault, Files};

/// Shape of the distribution of sizes, Filebench's default.
const GAMMA: f64 = 1.5;
/// Maximum size of a file, as a multiple of the mean size.
const MEANS_MAX: f64 = 20.0;

/// The files of all clients.
pub(super) struct FileSet {
    count: u64,
    mean_bytes: u64,
    tree: Tree,
    /// Part of the files that exist at the start.
    preallocated: f64,
    clients: Mutex<BTreeMap<u32, Numbers>>,
}

/// The files of one client, by number. A file that a thread works on alone is in neither list.
struct Numbers {
    existing: Vec<u64>,
    missing: Vec<u64>,
}

impl FileSet {
    pub(super) fn new(count: u64, mean_bytes: u64, width: u64, preallocated: f64) -> Self {
        let clients = Mutex::new(BTreeMap::new());
        Self { count, mean_bytes, tree: Tree::new(count, width), preallocated, clients }
    }

    /// Creates directories and files of a client.
    pub(super) async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        let root = root(who);
        make_directory(files, &root).await?;
        let files = files.enter(&root).await?;
        for directory in self.tree.directories() {
            make_directory(&files, &directory).await?;
        }
        let existing = (0..self.existing()).map(|number| (self.path(number), self.size(number)));
        super::files::make_files(&files, existing).await
    }

    /// Returns the number of files that exist at the start.
    fn existing(&self) -> u64 {
        (self.count as f64 * self.preallocated).round() as u64
    }

    /// Returns the path of a file below [`root`].
    pub(super) fn path(&self, number: u64) -> String {
        self.tree.file(number)
    }

    /// Returns the size of a file at its creation: the same in each run.
    pub(super) fn size(&self, number: u64) -> u64 {
        let mut rng = Rng::with_seed(number);
        let mean = self.mean_bytes as f64;
        (gamma(&mut rng, GAMMA) * mean / GAMMA).min(MEANS_MAX * mean) as u64
    }

    /// Returns the shape of the tree.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the number of files.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Takes a random file that exists; others do not take it until it is returned. `None` if there is none.
    pub(super) fn take_existing(&self, who: Who, rng: &mut Rng) -> Option<u64> {
        self.with(who, |numbers| take(&mut numbers.existing, rng))
    }

    /// Takes a random file that does not exist.
    pub(super) fn take_missing(&self, who: Who, rng: &mut Rng) -> Option<u64> {
        self.with(who, |numbers| take(&mut numbers.missing, rng))
    }

    /// Returns a file that exists now.
    pub(super) fn put_existing(&self, who: Who, number: u64) {
        self.with(who, |numbers| numbers.existing.push(number));
    }

    /// Returns a file that no longer exists.
    pub(super) fn put_missing(&self, who: Who, number: u64) {
        self.with(who, |numbers| numbers.missing.push(number));
    }

    fn with<T>(&self, who: Who, act: impl FnOnce(&mut Numbers) -> T) -> T {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let existing = self.existing();
            Numbers { existing: (0..existing).collect(), missing: (existing..self.count).collect() }
        };
        act(clients.entry(who.client).or_insert_with(new))
    }
}

/// Returns the directory of a client's files.
pub(super) fn root(who: Who) -> String {
    format!("client-{}", who.client + 1)
}

/// Creates a file outside of the set, for instance a log.
pub(super) async fn make_log<F: Files>(files: &F, who: Who, name: &str) -> Result<(), Fault> {
    make_file(files, &format!("{}/{name}", root(who)), 0).await
}

fn take(numbers: &mut Vec<u64>, rng: &mut Rng) -> Option<u64> {
    (!numbers.is_empty()).then(|| numbers.swap_remove(rng.usize(0..numbers.len())))
}

/// Returns a number with a gamma distribution of this shape (at least 1) and scale 1 (Marsaglia and Tsang 2000).
fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && rng.f64().max(f64::MIN_POSITIVE).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Returns a number with the standard normal distribution (Box and Muller 1958).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * rng.f64().max(f64::MIN_POSITIVE).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who = Who { client: 0, thread: 0, threads: 1, clients: 1 };

    /// A gamma distribution of shape k and mean m has the variance m²/k.
    #[test]
    fn sizes_have_mean_and_variance_of_the_distribution() {
        let set = FileSet::new(20_000, 128 << 10, 20, 0.8);
        let sizes: Vec<f64> = (0..20_000).map(|number| set.size(number) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
        let expected = f64::from(128 << 10);
        assert!((mean / expected - 1.0).abs() < 0.02, "{mean}");
        assert!((variance / (expected * expected / GAMMA) - 1.0).abs() < 0.06, "{variance}");
    }

    #[test]
    fn a_file_is_taken_once() {
        let set = FileSet::new(10, 1000, 20, 0.8);
        let mut rng = Rng::with_seed(1);
        let mut taken: Vec<u64> = std::iter::from_fn(|| set.take_existing(WHO, &mut rng)).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7]);
        let missing = set.take_missing(WHO, &mut rng).unwrap();
        assert!([8, 9].contains(&missing));
        set.put_existing(WHO, missing);
        assert_eq!(set.take_existing(WHO, &mut rng), Some(missing));
        assert!(set.take_existing(Who { client: 1, ..WHO }, &mut rng).is_some(), "each client has its own");
    }
}
