//! Changes of attributes in whole trees, for `chmod -R` and `chown -R`.

use std::future::Future;
use std::pin::Pin;

use client::attributes::{Attributes, SetAttributes};
use client::results::{FileHandle, Object};

use super::output::Output;
use super::session::{Location, below, failed};
use super::walk::{Entry, named};

/// Directories of one level whose entries are changed together.
const DIRECTORIES: usize = 256;

/// A change for each object; `None` leaves it unchanged.
pub type Change<'a> = &'a dyn Fn(&Attributes) -> Option<SetAttributes>;

/// Changes an object, and with `is_recursive` everything below; reports what fails. A directory is changed before it is listed.
pub async fn change(
    location: &Location,
    object: Object,
    is_recursive: bool,
    change: Change<'_>,
    output: &Output,
) {
    let start = Entry::start(object);
    let changer = Changer { location, change, output };
    changer.set(std::slice::from_ref(&start)).await;
    if is_recursive && start.is_directory() {
        changer.entries(vec![start]).await;
    }
}

struct Changer<'a> {
    location: &'a Location,
    change: Change<'a>,
    output: &'a Output,
}

impl Changer<'_> {
    /// Changes the entries of directories of one level, and the objects below.
    fn entries<'s>(&'s self, directories: Vec<Entry>) -> Pin<Box<dyn Future<Output = ()> + 's>> {
        Box::pin(async move {
            for chunk in directories.chunks(DIRECTORIES) {
                let objects: Vec<Object> = chunk.iter().map(|directory| directory.object).collect();
                let listings = self.location.fs.list_many(&objects).await;
                let mut entries = Vec::new();
                for (directory, listing) in chunk.iter().zip(listings) {
                    let listed = match listing {
                        Ok(listing) => self.location.fs.list_whole(&directory.object, listing).await,
                        Err(cause) => Err(cause),
                    };
                    match listed {
                        Ok(listed) => {
                            let listed = listed.into_iter().filter_map(named);
                            entries.extend(listed.map(|(name, object)| directory.child(&name, object)));
                        }
                        Err(cause) => {
                            let url = below(&self.location.url, &directory.path);
                            self.output.fail(&failed("list", &url, &cause));
                        }
                    }
                }
                self.set(&entries).await;
                entries.retain(Entry::is_directory);
                self.entries(entries).await;
            }
        })
    }

    async fn set(&self, entries: &[Entry]) {
        let new = |entry: &Entry| Some((entry.object.handle, (self.change)(&entry.object.attributes)?));
        let (changed, sets): (Vec<&Entry>, Vec<(FileHandle, SetAttributes)>) =
            entries.iter().filter_map(|entry| Some((entry, new(entry)?))).unzip();
        let fs = &self.location.fs;
        for (entry, outcome) in
            changed.into_iter().zip(fs.client().set_attributes_many(fs.caller(), &sets).await)
        {
            if let Err(cause) = outcome {
                self.output.fail(&failed("change", &below(&self.location.url, &entry.path), &cause));
            }
        }
    }
}
