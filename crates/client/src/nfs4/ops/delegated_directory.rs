//! GET_DIR_DELEGATION for caches (RFC 8881 §10.9, §18.39): without notifications, so that the server recalls the delegation before
//! another client changes the directory.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DirDelegation, GetDirDelegationArgs};
use protocol::nfs4::types::{Bitmap, Stateid, Status, Time};

use super::super::Nfs4;
use super::super::getattr::{get_attributes, take_attributes};
use super::super::wire::{put, take};
use crate::attributes::Attributes;
use crate::config::Caller;
use crate::delegations::{Grant, Kind, Opening};
use crate::error::OpError;
use crate::opens::OpenMode;
use crate::results::FileHandle;

const NO_DELAY: Time = Time { seconds: 0, nanoseconds: 0 };

/// GET_DIR_DELEGATION with these notifications.
pub(super) const fn get_dir_delegation(notification_types: Bitmap) -> Op {
    Op::GetDirDelegation(GetDirDelegationArgs {
        signal_available: false,
        notification_types,
        child_attribute_delay: NO_DELAY,
        directory_attribute_delay: NO_DELAY,
        child_attributes: Bitmap::EMPTY,
        directory_attributes: Bitmap::EMPTY,
    })
}

impl Nfs4 {
    /// Returns the attributes of a directory, and the number of the delegation under which they were read, if the server grants one.
    /// This takes one request, unless the server refuses by an error. If the caller drops the future, a delegation that is granted later is
    /// returned.
    pub(crate) async fn delegate_directory(
        self: &Arc<Self>,
        caller: &Caller,
        directory: FileHandle,
    ) -> Result<(Attributes, Option<u64>), OpError> {
        let mut requested = (None, None);
        if self.may_delegate(&directory) {
            let (nfs4, of_caller) = (Arc::clone(self), caller.clone());
            let request = async move { nfs4.request_directory(&of_caller, directory).await };
            let nfs4 = Arc::clone(self);
            let guarded = self.background.guard(request, async move |(_, granted): (_, Option<u64>)| {
                if granted.is_some() {
                    nfs4.delegations.give_back(&directory);
                }
            });
            requested = guarded.await;
        }
        let (attributes, delegation) = requested;
        match attributes {
            Some(attributes) => Ok((attributes, delegation)),
            None => Ok((self.get_attributes(caller, directory).await?, delegation)),
        }
    }

    /// Requests a delegation once: a server that answers DELAY or GRACE has none now. Returns the attributes, if the server has sent them,
    /// and the number of the delegation.
    async fn request_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
    ) -> (Option<Attributes>, Option<u64>) {
        let (opening, bypasses) = (self.delegations.opening(), self.delegations.bypasses());
        // RFC 8881 §10.9.1: only attributes that are read after the grant are valid under it.
        let ops = [put(directory), get_dir_delegation(Bitmap::EMPTY), get_attributes()];
        // The request for the attributes alone, which follows a failure, tells the caller why.
        let Ok(mut results) = self.compound(caller, &ops, true).await else { return (None, None) };
        if results.skip().is_err() {
            return (None, None);
        }
        let delegation = match take!(results, GetDirDelegation) {
            Ok(DirDelegation::Granted(granted)) => {
                self.take_directory(caller, directory, granted.stateid, &opening, bypasses).await
            }
            Ok(DirDelegation::Unavailable(_)) => None,
            Err(error) => {
                if matches!(error, OpError::Status(Status::NOTSUPP | Status::OP_ILLEGAL)) {
                    self.lacks_directory_delegations.store(true, Ordering::Relaxed);
                }
                None
            }
        };
        (take_attributes(&mut results).ok(), delegation)
    }

    fn may_delegate(&self, directory: &FileHandle) -> bool {
        self.has_sessions()
            && self.uses_delegations()
            && !self.lacks_directory_delegations.load(Ordering::Relaxed)
            // A client has at most one delegation of a directory, and that of a watch has notifications.
            && !self.directory_watches.is_used()
            && !self.delegations.is_directory(directory)
    }

    /// Takes a delegation from a reply, or returns it at once if it cannot be used.
    async fn take_directory(
        &self,
        caller: &Caller,
        handle: FileHandle,
        stateid: Stateid,
        opening: &Opening<'_>,
        bypasses: u64,
    ) -> Option<u64> {
        let grant = Grant {
            handle,
            location: None,
            kind: Kind::Directory,
            stateid,
            caller: caller.clone(),
            mode: OpenMode::READ,
            preserves_unlinked: false,
            limit: None,
            change: None,
            modified: None,
            restarts: Some(opening.restarts),
        };
        let taken = match self.uses_delegations() && !self.directory_watches.is_used() {
            true => self.delegations.granted(grant, self.engine.now()),
            false => None,
        };
        // A change behind the caches that has ended in the meantime has not seen this delegation.
        if taken.is_some() && self.delegations.bypasses() != bypasses {
            self.delegations.give_back(&handle);
            return None;
        }
        if taken.is_none() {
            let ops = [put(handle), Op::DelegReturn(DelegReturnArgs { stateid })];
            // The server recalls it if it did not arrive.
            let _ = self.change(caller, &ops).await;
        }
        taken
    }

    /// Makes a change of names in directories. Caches whose change it is not revalidate the directories: the server does not recall
    /// the delegation of its holder.
    pub(super) async fn changing_names<T>(
        &self,
        directories: impl IntoIterator<Item = FileHandle>,
        change: impl Future<Output = T>,
    ) -> T {
        let directories = match self.uses_delegations() {
            true => directories.into_iter().collect(),
            false => Vec::new(),
        };
        let mut changing = ChangingNames { nfs4: self, directories, has_ended: false };
        let outcome = change.await;
        changing.has_ended = true;
        outcome
    }
    /// Makes changes of directories that no cache knows of: the delegations of these directories are returned.
    pub(super) async fn changing_behind_caches<T>(
        &self,
        directories: impl IntoIterator<Item = FileHandle>,
        change: impl Future<Output = T>,
    ) -> T {
        let directories: HashSet<_> = match self.uses_delegations() {
            true => directories.into_iter().collect(),
            false => HashSet::new(),
        };
        self.delegations.note_bypass();
        let _changing = ChangingBehindCaches { nfs4: self, directories };
        change.await
    }
}

/// A change behind the caches that is under way.
struct ChangingBehindCaches<'a> {
    nfs4: &'a Nfs4,
    directories: HashSet<FileHandle>,
}

impl Drop for ChangingBehindCaches<'_> {
    fn drop(&mut self) {
        let delegations = &self.nfs4.delegations;
        delegations.note_bypass();
        for directory in self.directories.iter().filter(|directory| delegations.is_directory(directory)) {
            delegations.give_back(directory);
        }
    }
}

/// A change of names that is under way.
struct ChangingNames<'a> {
    nfs4: &'a Nfs4,
    directories: Vec<FileHandle>,
    has_ended: bool,
}

impl Drop for ChangingNames<'_> {
    fn drop(&mut self) {
        let delegations = &self.nfs4.delegations;
        for directory in &self.directories {
            let is_held = delegations.is_directory(directory);
            if !self.has_ended {
                // The server may execute it later. This pauses requests for delegations too.
                delegations.caches().iter().for_each(|cache| cache.ended(directory));
                if is_held {
                    delegations.give_back(directory);
                }
            } else if is_held {
                delegations.caches().iter().for_each(|cache| cache.names_changed(directory));
            }
        }
    }
}
