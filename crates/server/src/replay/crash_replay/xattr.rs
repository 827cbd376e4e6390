//! Extended attributes that are created or removed.
//!
//! SETXATTR with EITHER or REPLACE can be repeated, and is not logged.

use bytes::Bytes;
use vfs::{Change, Context, Error, Handle, SetXattr};

use super::ops::{Directory, LoggedOps, unchanged};
use super::record::Kind;
use crate::Export;

impl LoggedOps<'_> {
    /// [`Backend::set_xattr`](vfs::Backend::set_xattr) of an attribute that must not exist.
    pub(crate) async fn create_xattr(
        &self,
        export: &Export,
        context: &Context,
        file: &Handle,
        (name, value): (&[u8], &Bytes),
    ) -> Result<Change, Error> {
        let backend = &export.backend;
        let attempt = self.begin(export, Kind::CreateXattr, [Some((file, &named(name)[..])), None]).await;
        let mut change = backend.set_xattr(context, file, name, value, SetXattr::Create).await;
        let Some(attempt) = attempt else { return change };
        if change == Err(Error::Exists)
            && let Some(window) = attempt.window(export)
            && let Ok(found) = backend.getattr(context, file).await
            && window.is_reached(found.changed)
            && backend.get_xattr(context, file, name).await.is_ok_and(|kept| kept == *value)
            && attempt.wins()
        {
            change = backend.sync_inherited().await.map(|()| unchanged(&found));
        }
        attempt.end(&change, change.is_ok(), context);
        change
    }

    /// [`Backend::remove_xattr`](vfs::Backend::remove_xattr).
    pub(crate) async fn remove_xattr(
        &self,
        export: &Export,
        context: &Context,
        file: &Handle,
        name: &[u8],
    ) -> Result<Change, Error> {
        let backend = &export.backend;
        let attempt = self.begin(export, Kind::RemoveXattr, [Some((file, &named(name)[..])), None]).await;
        if let Some(attempt) = attempt.as_ref()
            && let Some(is_lost) = attempt.remade()
        {
            let of_file = Directory { export, context, directory: file };
            return attempt.removed_before(of_file, is_lost).await.map_err(no_xattr);
        }
        let mut change = backend.remove_xattr(context, file, name).await;
        let Some(attempt) = attempt else { return change };
        if change == Err(Error::NoXattr)
            && let Some(window) = attempt.window(export)
            && let Ok(found) = backend.getattr(context, file).await
            && window.is_reached(found.changed)
            && attempt.wins()
        {
            change = backend.sync_inherited().await.map(|()| unchanged(&found));
        }
        attempt.end(&change, change.is_ok(), context);
        change
    }
}

/// Returns the name for the log. The NUL distinguishes it from names of directory entries.
fn named(name: &[u8]) -> Vec<u8> {
    [&[0], name].concat()
}

fn no_xattr(error: Error) -> Error {
    if error == Error::NotFound { Error::NoXattr } else { error }
}
