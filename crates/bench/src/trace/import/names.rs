//! Paths of file handles, from the names with which they were seen.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

/// The paths of all handles of a capture.
#[derive(Default)]
pub(super) struct Names {
    paths: HashMap<Bytes, String>,
    directories: BTreeSet<String>,
    unknown: u64,
}

impl Names {
    /// Says that a handle is the root, whose path is empty.
    pub(super) fn root(&mut self, handle: &[u8]) {
        self.paths.entry(Bytes::copy_from_slice(handle)).or_default();
    }

    /// Returns the path of a handle. One whose name was not seen gets a name of its own.
    pub(super) fn path(&mut self, handle: &[u8]) -> String {
        if let Some(path) = self.paths.get(handle) {
            return path.clone();
        }
        self.unknown += 1;
        let path = format!("unknown-{:05}", self.unknown);
        self.paths.insert(Bytes::copy_from_slice(handle), path.clone());
        path
    }

    /// Returns the path of a directory.
    pub(super) fn directory(&mut self, handle: &[u8]) -> String {
        let path = self.path(handle);
        self.is_directory(&path);
        path
    }

    /// Says that a path is a directory.
    pub(super) fn is_directory(&mut self, path: &str) {
        if !self.directories.contains(path) {
            self.directories.insert(path.to_owned());
        }
    }

    /// Returns whether a path is known to be a directory.
    pub(super) fn knows_directory(&self, path: &str) -> bool {
        self.directories.contains(path)
    }

    /// Says that a handle has a path. A handle keeps the path that it had first.
    pub(super) fn learn(&mut self, handle: &[u8], path: &str) {
        self.paths.entry(Bytes::copy_from_slice(handle)).or_insert_with(|| path.to_owned());
    }

    /// Moves a path and everything below it.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        for path in self.paths.values_mut() {
            if let Some(moved) = moved(path, from, to) {
                *path = moved;
            }
        }
        let directories: Vec<String> =
            self.directories.iter().filter(|path| moved(path, from, to).is_some()).cloned().collect();
        for path in directories {
            self.directories.remove(&path);
            self.directories.extend(moved(&path, from, to));
        }
    }
}

fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
}

/// Returns the path of a name in a directory. Names that a trace cannot have are replaced.
pub(super) fn child(directory: &str, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let is_plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    let name = if is_plain { name.into_owned() } else { format!("name-{}", name.len()) };
    if directory.is_empty() { name } else { format!("{directory}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_have_the_paths_of_their_names() {
        let mut names = Names::default();
        names.root(b"root");
        let directory = child(&names.directory(b"root"), b"d");
        names.learn(b"1", &directory);
        names.learn(b"2", &child(&directory, b"x"));
        assert_eq!((names.path(b"2"), names.path(b"3")), ("d/x".to_owned(), "unknown-00001".to_owned()));
        names.rename("d", "e/f");
        assert_eq!((names.path(b"2"), names.path(b"3")), ("e/f/x".to_owned(), "unknown-00001".to_owned()));
        names.learn(b"3", "later");
        assert_eq!(names.path(b"3"), "unknown-00001", "its earlier operations have this path");
        assert_eq!(child("a", b".."), "a/name-2");
    }
}
