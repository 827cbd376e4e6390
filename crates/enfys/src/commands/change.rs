//! Changes of attributes in whole trees, for `chmod -R` and `chown -R`.

use client::attributes::{Attributes, FileKind, SetAttributes};
use client::fs::FileSystem;
use client::results::{Object, OpenState};
use client::url::Url;
use futures_util::stream::{self, StreamExt};

use super::output::Output;
use super::session::{Location, below, failed};
use super::walk::{Entry, Step, Walk};

/// Requests of one directory that are under way together.
const REQUESTS: usize = 64;

/// A change for each object; `None` leaves it as it is.
pub type Change<'a> = &'a dyn Fn(&Attributes) -> Option<SetAttributes>;

/// Changes an object, and with `is_recursive` everything below; reports what fails. A directory is changed before it is listed.
pub async fn change(
    location: &Location,
    object: Object,
    is_recursive: bool,
    change: Change<'_>,
    output: &Output,
) {
    set(&location.fs, output, &location.url, &object, change).await;
    if !is_recursive || object.attributes.kind != FileKind::Directory {
        return;
    }
    let mut walk = Walk::new(location.fs.clone(), Entry::start(object), 0);
    while let Some(step) = walk.next() {
        let Step::Enter(mut node) = step else { continue };
        if !node.entry.is_directory() {
            continue;
        }
        let url = below(&location.url, &node.entry.path);
        match walk.list(&mut node).await {
            Ok(listing) => {
                let changes = stream::iter(&listing).for_each_concurrent(REQUESTS, async |(name, object)| {
                    set(&location.fs, output, &below(&url, name), object, change).await;
                });
                changes.await;
                walk.descend(node.entry, listing);
            }
            Err(cause) => output.fail(&failed("list", &url, &cause)),
        }
    }
}

async fn set(fs: &FileSystem, output: &Output, url: &Url, object: &Object, change: Change<'_>) {
    let Some(new) = change(&object.attributes) else { return };
    let state = OpenState::default();
    if let Err(cause) = fs.client().set_attributes(fs.caller(), object.handle, &state, &new).await {
        output.fail(&failed("change", url, &cause));
    }
}
