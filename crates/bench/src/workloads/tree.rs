//! A tree of directories of one width, with files in its lowest directories.

use super::Parameters;
use super::files::{make_directory, make_files};
use crate::runner::Who;
use crate::targets::{Fault, Files};

/// A tree of empty files that all clients share.
pub(super) struct EmptyFiles {
    pub(super) files: u64,
    pub(super) tree: Tree,
}

impl EmptyFiles {
    /// Reads `files` and `directory-width`.
    pub(super) fn new(parameters: &Parameters<'_>) -> Self {
        let files = parameters.count("files");
        Self { files, tree: Tree::new(files, parameters.count("directory-width")) }
    }

    /// Makes the tree, once for all clients.
    pub(super) async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        if who.client > 0 {
            return Ok(());
        }
        for directory in self.tree.directories() {
            make_directory(files, &directory).await?;
        }
        make_files(files, (0..self.files).map(|index| (self.tree.file(index), 0))).await
    }
}

/// The shape of a tree: each directory has at most `width` entries.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// Directories of each level, from the root's children down; empty if all files are in the root.
    levels: Vec<u64>,
    width: u64,
}

impl Tree {
    /// Returns the shape for this many files.
    pub(super) fn new(files: u64, width: u64) -> Self {
        let width = width.max(2);
        let mut levels = Vec::new();
        let mut count = files.div_ceil(width);
        while count > 1 {
            levels.push(count);
            count = count.div_ceil(width);
        }
        levels.reverse();
        Self { levels, width }
    }

    /// Returns all directories, each after its parent; without the root.
    pub(super) fn directories(&self) -> impl Iterator<Item = String> {
        let of_level =
            move |level: usize| (0..self.levels[level]).map(move |index| self.directory(level, index));
        (0..self.levels.len()).flat_map(of_level)
    }

    /// Returns the number of directories without the root.
    pub(super) fn directory_count(&self) -> u64 {
        self.levels.iter().sum()
    }

    /// Returns a directory by its number in the order of [`Self::directories`]; the root for numbers from their count.
    pub(super) fn directory_number(&self, mut number: u64) -> String {
        for (level, count) in self.levels.iter().enumerate() {
            if number < *count {
                return self.directory(level, number);
            }
            number -= count;
        }
        String::new()
    }

    /// Returns the path of a file, which has the name `file-N`.
    pub(super) fn file(&self, index: u64) -> String {
        match self.levels.len() {
            0 => format!("file-{index:07}"),
            levels => format!("{}/file-{index:07}", self.directory(levels - 1, index / self.width)),
        }
    }

    fn directory(&self, level: usize, index: u64) -> String {
        let mut names: Vec<String> = Vec::with_capacity(level + 1);
        let mut index = index;
        for _ in 0..=level {
            names.push(format!("d{}", index % self.width));
            index /= self.width;
        }
        names.reverse();
        names.join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn no_directory_has_more_entries_than_the_width() {
        for (files, width) in [(1, 5), (5, 5), (6, 5), (50_000, 5), (1000, 20), (17, 1_000_000)] {
            let tree = Tree::new(files, width);
            let mut entries: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let mut known = BTreeSet::from([String::new()]);
            let parent =
                |path: &str| path.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned());
            for directory in tree.directories() {
                assert!(known.contains(&parent(&directory)), "{directory} comes before its parent");
                entries.entry(parent(&directory)).or_default().insert(directory.clone());
                assert!(known.insert(directory.clone()), "{directory} twice");
            }
            for file in (0..files).map(|index| tree.file(index)) {
                assert!(known.contains(&parent(&file)), "{file}");
                assert!(entries.entry(parent(&file)).or_default().insert(file), "a file twice");
            }
            assert!(entries.values().all(|entries| entries.len() as u64 <= width), "{files} {width}");
            let by_number: BTreeSet<String> =
                (0..=tree.directory_count()).map(|number| tree.directory_number(number)).collect();
            assert_eq!(by_number, known);
        }
    }

    #[test]
    fn fifty_thousand_files_of_width_five_are_six_levels_deep() {
        let tree = Tree::new(50_000, 5);
        assert_eq!(tree.levels, [4, 16, 80, 400, 2000, 10_000]);
        assert_eq!(tree.file(49_999).matches('/').count(), 6);
    }
}
