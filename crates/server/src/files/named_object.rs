//! The object that a name leads to, looked up before the name is removed or replaced.

use vfs::{Error, Found, Handle};

use super::object::File;
use super::recall::{announce_change, recall_conflicts};
use super::rights::Right;
use crate::Export;
use crate::replay::crash_replay::Directory;
use crate::request::Request;
use crate::state::{ChangeGuard, Client, Conflict};

/// The object that a name leads to, with its change announced.
pub(crate) enum NamedObject<'s> {
    /// Not looked up, because nothing was ever delegated. Nothing will be while this lives.
    Unknown { _changing: ChangeGuard<'s> },
    /// An object that is not delegated again while this lives.
    Found { found: Box<Found>, _changing: ChangeGuard<'s> },
    /// None that the caller may see ([`is_absent`]). The operation itself determines the error.
    Absent,
}

impl NamedObject<'_> {
    /// Returns false if the lookup found nothing.
    pub(crate) fn may_be_there(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Returns whether a client other than `client` has a delegation of the object.
    pub(crate) fn is_held(&self, request: &Request<'_>, client: Option<&Client>, export: &Export) -> bool {
        let Self::Found { found, .. } = self else { return false };
        let state = &request.server.state;
        let key = || File::new(export, found.handle).key(request.server);
        state.has_delegations(Conflict::Any) && state.has_conflicting_delegation(client, key(), Conflict::Any)
    }

    /// Recalls delegations that conflict with the announced change.
    ///
    /// # Errors
    /// As [`recall_conflicts`](fn@recall_conflicts).
    pub(crate) async fn recall_conflicts(
        &self,
        request: &Request<'_>,
        client: Option<&Client>,
        place: Directory<'_>,
    ) -> Result<(), Error> {
        let Self::Found { found, .. } = self else { return Ok(()) };
        let need = (place.context, self.right(place.directory));
        recall_conflicts(request, client, (place.export, &found.handle), Conflict::Any, need).await
    }

    /// Returns the right that the caller needs to remove the name, or to put another object in its place.
    pub(crate) fn right<'a>(&'a self, directory: &'a Handle) -> Right<'a> {
        match self {
            Self::Found { found, .. } => Right::Removal(directory, &found.attributes),
            Self::Unknown { .. } | Self::Absent => Right::Entries(directory),
        }
    }
}

/// Announces that the object of this name, if there is one, will lose the name. The result must live until the change is made.
///
/// # Errors
/// Why the lookup has no result for the name.
pub(crate) async fn announce_name<'s>(
    request: &Request<'s>,
    place: Directory<'_>,
    name: &[u8],
) -> Result<NamedObject<'s>, Error> {
    match request.server.state.begin_unnamed_change() {
        Some(_changing) => Ok(NamedObject::Unknown { _changing }),
        None => Box::pin(find(request, place, name)).await,
    }
}

async fn find<'s>(
    request: &Request<'s>,
    place: Directory<'_>,
    name: &[u8],
) -> Result<NamedObject<'s>, Error> {
    match place.export.backend.lookup(place.context, place.directory, name).await {
        Ok(found) => Ok(NamedObject::Found {
            _changing: announce_change(request, &found.handle),
            found: Box::new(found),
        }),
        Err(error) if is_absent(error) => Ok(NamedObject::Absent),
        Err(error) => Err(error),
    }
}

/// Returns whether a lookup error means that no object is there, or that the operation will fail the same way. A lookup that failed for
/// lack of memory or descriptors, or by a disk error, has no result.
pub(crate) fn is_absent(error: Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::NotDirectory
            | Error::Access
            | Error::NotPermitted
            | Error::BadName
            | Error::NameTooLong
            | Error::Stale
            | Error::BadHandle
            // A mount point: no client reaches the directory below it.
            | Error::CrossDevice
    )
}
