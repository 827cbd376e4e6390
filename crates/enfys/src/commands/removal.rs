//! Removes trees: many names in a request, so that the number of round trips depends on the depth.

use std::future::Future;
use std::pin::Pin;

use super::attributes::{Attributes, FileKind};
use super::session::Failure;
use super::tree::{Tree, TreePath};

/// Directories of one level that are emptied together.
const DIRECTORIES: usize = 256;

/// An object to remove.
pub type ObjectToRemove = (TreePath, Attributes);

/// Removes trees. An object that cannot be removed is reported, and the others are still removed.
pub struct Removal<'a, T> {
    pub tree: &'a T,
    /// Whether directories are removed with everything below; otherwise only empty ones.
    pub is_recursive: bool,
    /// Returns the reason why an object must not be removed.
    pub refuse: &'a dyn Fn(&TreePath, &Attributes) -> Option<Failure>,
    /// Gets the outcome for each object.
    pub report: &'a dyn Fn(&TreePath, Result<(), Failure>),
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
                if let Some(why) = (self.refuse)(path, attributes) {
                    (self.report)(path, Err(why));
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
            for (directory, listing) in left.into_iter().zip(listings) {
                match listing {
                    None => later.push(directory),
                    Some(Err(failure)) => {
                        (self.report)(&directory.1.0, Err(failure));
                        kept.push(directory.0);
                    }
                    Some(Ok(listing)) => {
                        for entry in listing {
                            match directory.1.0.join(&entry.name) {
                                Ok(path) => entries.push((listed.len(), (path, entry.attributes))),
                                Err(error) => {
                                    (self.report)(&directory.1.0, Err(Failure::new(error.to_string())));
                                }
                            }
                        }
                        listed.push(directory);
                    }
                }
            }
            let mut emptied = vec![true; listed.len()];
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
                Err(failure) if failure.is_missing() && self.is_recursive => (self.report)(path, Ok(())),
                removed => {
                    if removed.is_err() {
                        kept.push(*parent);
                    }
                    (self.report)(path, removed);
                }
            }
        }
        kept
    }
}
