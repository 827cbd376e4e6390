//! Removes trees: many names in a request, so that the number of round trips depends on the depth.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::{NameError, Tree, TreePath};
use crate::attributes::{Attributes, FileKind};

/// Directories of one level that are emptied together.
const DIRECTORIES: usize = 256;

/// An object to remove.
pub type ObjectToRemove = (TreePath, Attributes);

/// The reason why an object was not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoveError<E> {
    /// An operation of the tree failed.
    Tree(E),
    /// An entry of the directory has a name that could lead elsewhere.
    Name(NameError),
    /// [`Removal::keeps`] forbids it.
    Kept,
}

impl<E: fmt::Display> fmt::Display for RemoveError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(error) => error.fmt(f),
            Self::Name(error) => error.fmt(f),
            Self::Kept => f.write_str("it must not be removed"),
        }
    }
}

impl<E: std::error::Error> std::error::Error for RemoveError<E> {}

/// Gets the outcome of an object.
pub type RemoveReport<'a, E> = dyn Fn(&TreePath, Result<(), RemoveError<E>>) + 'a;

/// Removes trees. An object that cannot be removed is reported, and the others are still removed; a directory with an object
/// that remains is kept without a report of its own.
pub struct Removal<'a, T: Tree> {
    /// The tree.
    pub tree: &'a T,
    /// Whether directories are removed with everything below; otherwise only empty ones.
    pub is_recursive: bool,
    /// Returns whether an object must not be removed.
    pub keeps: &'a dyn Fn(&TreePath, &Attributes) -> bool,
    /// Gets the outcome for each object.
    pub report: &'a RemoveReport<'a, T::Error>,
}

impl<T: Tree> Removal<'_, T> {
    /// Removes objects with everything below. Returns whether all are gone.
    pub async fn remove(&self, objects: Vec<ObjectToRemove>) -> bool {
        self.objects(objects.into_iter().map(|object| (0, object)).collect(), &mut [true]).await
    }

    /// Removes objects, each an entry of the directory of its number; clears the flags of directories that keep one. Returns
    /// whether all are gone.
    fn objects<'s>(
        &'s self,
        objects: Vec<(usize, ObjectToRemove)>,
        emptied: &'s mut [bool],
    ) -> Pin<Box<dyn Future<Output = bool> + 's>> {
        Box::pin(async move {
            let is_directory =
                |(_, (_, attributes)): &(_, ObjectToRemove)| attributes.kind == FileKind::Directory;
            let (mut directories, mut names, mut all) = (Vec::new(), Vec::new(), true);
            for object in objects {
                let (path, attributes) = &object.1;
                if (self.keeps)(path, attributes) {
                    (self.report)(path, Err(RemoveError::Kept));
                    (emptied[object.0], all) = (false, false);
                } else if is_directory(&object) && self.is_recursive {
                    directories.push(object);
                } else {
                    names.push(object);
                }
            }
            let names = self.names(&names);
            let directories = async {
                let mut kept = Vec::new();
                for chunk in directories.chunks(DIRECTORIES) {
                    kept.extend(self.directories(chunk).await);
                }
                kept
            };
            let (names, directories) = futures_util::future::join(names, directories).await;
            for parent in names.into_iter().chain(directories) {
                (emptied[parent], all) = (false, false);
            }
            all
        })
    }

    /// Removes directories with their entries. Returns the numbers of those that remain.
    async fn directories(&self, directories: &[(usize, ObjectToRemove)]) -> Vec<usize> {
        let mut gone = Vec::new();
        let mut kept = Vec::new();
        let mut left: Vec<&(usize, ObjectToRemove)> = directories.iter().collect();
        while !left.is_empty() {
            let paths: Vec<TreePath> = left.iter().map(|(_, (path, _))| path.clone()).collect();
            let listings = self.tree.list_many(&paths).await;
            let (mut entries, mut listed, mut later) = (Vec::new(), Vec::new(), Vec::new());
            let mut refused = Vec::new();
            for (directory, listing) in left.into_iter().zip(listings) {
                match listing {
                    None => later.push(directory),
                    Some(Err(error)) => {
                        (self.report)(&directory.1.0, Err(RemoveError::Tree(error)));
                        kept.push(directory.0);
                    }
                    Some(Ok(listing)) => {
                        for entry in listing {
                            match directory.1.0.join(&entry.name) {
                                Ok(path) => entries.push((listed.len(), (path, entry.attributes))),
                                Err(error) => {
                                    (self.report)(&directory.1.0, Err(RemoveError::Name(error)));
                                    refused.push(listed.len());
                                }
                            }
                        }
                        listed.push(directory);
                    }
                }
            }
            let mut emptied = vec![true; listed.len()];
            refused.into_iter().for_each(|at| emptied[at] = false);
            self.objects(entries, &mut emptied).await;
            for (directory, is_empty) in listed.into_iter().zip(emptied) {
                if is_empty { gone.push(directory.clone()) } else { kept.push(directory.0) }
            }
            left = later;
        }
        kept.extend(self.names(&gone).await);
        kept
    }

    /// Removes names. Returns the numbers of those that remain.
    async fn names(&self, objects: &[(usize, ObjectToRemove)]) -> Vec<usize> {
        let names: Vec<_> = objects.iter().map(|(_, (path, attributes))| (path, attributes.kind)).collect();
        let mut kept = Vec::new();
        for ((parent, (path, _)), removed) in objects.iter().zip(self.tree.remove_many(&names).await) {
            match removed {
                // Another process has removed it.
                Err(error) if T::is_missing(&error) && self.is_recursive => (self.report)(path, Ok(())),
                removed => {
                    if removed.is_err() {
                        kept.push(*parent);
                    }
                    (self.report)(path, removed.map_err(RemoveError::Tree));
                }
            }
        }
        kept
    }
}
