//! GET_DIR_DELEGATION, CB_NOTIFY and DELEGRETURN of directories (RFC 8881 §18.39, §20.4, §18.6).

use std::future::poll_fn;

use bytes::Bytes;
use protocol::nfs4::callback::notify::{
    CbNotifyArgs, Notification, NotifyAdd, NotifyAttributes, NotifyRemove, NotifyRename, NotifyVerifier,
    notify_type,
};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DirDelegation};
use protocol::nfs4::types::{Bitmap, Status};
use xdr::{Decode, DecodeError, Reader};

use super::super::Nfs4;
use super::super::batch::Item;
use super::super::batch::SPREAD;
use super::super::getattr::{get_attributes, take_attributes};
use super::super::wire::{Results, put, take};
use super::delegated_directory::get_dir_delegation;
use super::many::{REPLY, REQUEST};
use crate::attributes::Attributes;
use crate::config::Caller;
use crate::directory_watches::{DirectoryEvent, DirectoryWatch};
use crate::error::OpError;
use crate::results::FileHandle;

/// Notifications of changes of names. Servers may send more, and need not grant them.
const NOTIFICATIONS: Bitmap =
    Bitmap::of(&[notify_type::REMOVE_ENTRY, notify_type::ADD_ENTRY, notify_type::RENAME_ENTRY]);

impl Nfs4 {
    /// Returns the attributes of objects.
    pub(crate) async fn get_attributes_many(
        &self,
        caller: &Caller,
        handles: &[FileHandle],
    ) -> Vec<Result<Attributes, OpError>> {
        let item = |handle: &FileHandle| {
            Ok(Item { ops: vec![put(*handle), get_attributes()], request: REQUEST, reply: REPLY })
        };
        let take = |results: &mut Results, _: &FileHandle| {
            results.skip()?;
            take_attributes(results)
        };
        self.run_many(caller, handles, SPREAD, item, take).await
    }

    /// Requests delegations of directories, with notifications.
    ///
    /// # Errors
    /// For each directory; a status that says that the server has no such delegations is an error too.
    pub(crate) async fn watch_directories(
        &self,
        caller: &Caller,
        directories: &[FileHandle],
    ) -> Vec<Result<DirectoryWatch, OpError>> {
        if !self.has_sessions() {
            return directories.iter().map(|_| Err(OpError::Unsupported("directory delegations"))).collect();
        }
        let item = |handle: &FileHandle| {
            let ops = vec![put(*handle), get_dir_delegation(NOTIFICATIONS)];
            Ok(Item { ops, request: REQUEST, reply: REPLY })
        };
        let take = |results: &mut Results, _: &FileHandle| {
            results.skip()?;
            take!(results, GetDirDelegation)
        };
        let _requests = self.directory_watches.request(directories);
        // A cache's delegation has no notifications.
        for directory in directories {
            self.give_back(directory).await;
        }
        let outcomes = self.run_many(caller, directories, SPREAD, item, take).await;
        let outcome = |(directory, outcome): (&FileHandle, Result<DirDelegation, OpError>)| {
            let granted = match &outcome {
                Ok(DirDelegation::Granted(granted)) => Some(granted.stateid),
                Ok(DirDelegation::Unavailable(_)) | Err(_) => None,
            };
            self.directory_watches.requested(*directory, granted);
            match (outcome, granted) {
                (_, Some(_)) => Ok(DirectoryWatch::Watched),
                (Ok(_) | Err(OpError::Status(Status::DIRDELEG_UNAVAIL)), None) => {
                    Ok(DirectoryWatch::Unavailable)
                }
                (Err(error), None) => Err(error),
            }
        };
        directories.iter().zip(outcomes).map(outcome).collect()
    }

    /// Returns delegations of directories, if they are held.
    pub(crate) async fn unwatch_directories(&self, caller: &Caller, directories: &[FileHandle]) {
        self.return_directories(caller, self.directory_watches.take(directories)).await;
    }

    /// Returns all delegations of directories.
    pub(in super::super) async fn unwatch_all(&self) {
        self.return_directories(&self.config.machine, self.directory_watches.take_all()).await;
    }

    async fn return_directories(
        &self,
        caller: &Caller,
        held: Vec<(FileHandle, protocol::nfs4::types::Stateid)>,
    ) {
        let item = |(handle, stateid): &(FileHandle, _)| {
            let ops = vec![put(*handle), Op::DelegReturn(DelegReturnArgs { stateid: *stateid })];
            Ok(Item { ops, request: REQUEST, reply: REPLY })
        };
        // One that the server has forgotten needs no return.
        let _ = self.run_many(caller, &held, SPREAD, item, |results, _| results.skip_many(2)).await;
    }

    /// Takes what the server has told about watched directories; waits for it.
    pub(crate) async fn directory_events(&self) -> Vec<(FileHandle, DirectoryEvent)> {
        poll_fn(|context| self.directory_watches.poll_events(context)).await
    }

    /// Answers CB_NOTIFY.
    ///
    /// # Errors
    /// The status of the reply.
    pub(in super::super) fn notified(&self, args: &CbNotifyArgs) -> Result<(), Status> {
        let mut events = Vec::new();
        for change in args.changes.iter() {
            decode(change, &mut events).map_err(|_| Status::BADXDR)?;
        }
        self.directory_watches.notified(args.handle, &args.stateid, events)
    }
}

/// Decodes notifications, whose values are in the order of their bits.
fn decode(change: &Notification, events: &mut Vec<DirectoryEvent>) -> Result<(), DecodeError> {
    let mut reader = Reader::new(change.values.bytes().clone());
    // The buffer of the callback must not stay in memory because of a name.
    let name = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    for kind in change.mask.iter() {
        match kind {
            notify_type::REMOVE_ENTRY => {
                let removed = NotifyRemove::decode(&mut reader)?;
                events.push(DirectoryEvent::Removed(name(&removed.old_entry.file)));
            }
            notify_type::ADD_ENTRY => {
                let added = NotifyAdd::decode(&mut reader)?;
                events.push(DirectoryEvent::Added(name(&added.new_entry.file)));
            }
            notify_type::RENAME_ENTRY => {
                let renamed = NotifyRename::decode(&mut reader)?;
                let (from, to) =
                    (name(&renamed.old_entry.old_entry.file), name(&renamed.new_entry.new_entry.file));
                events.push(DirectoryEvent::Renamed { from, to });
            }
            // Not requested.
            notify_type::CHANGE_CHILD_ATTRS | notify_type::CHANGE_DIR_ATTRS => {
                NotifyAttributes::decode(&mut reader)?;
            }
            notify_type::CHANGE_COOKIE_VERIFIER => {
                NotifyVerifier::decode(&mut reader)?;
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}
