//! Delegated timestamps (RFC 9754 §5), and checks of modification times.

use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes, number as n};
use protocol::nfs4::callback::recall::CbGetAttrArgs;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::open::ShareAccess;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::types::{Bitmap, Outcome, Stateid, Status, Time};
use vfs::Timestamp;

use super::client::Held;
use crate::client::at_export;

/// Share access bits that request delegated timestamps.
pub(super) const WANTED: ShareAccess = ShareAccess::WANT_DELEG_TIMESTAMPS;
/// Bytes of a file.
const SIZE: u64 = 8;

/// A holder's knowledge of its file's attributes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    /// Whether the timestamps are delegated.
    pub(super) is_ours: bool,
    /// At the grant.
    pub(super) change: u64,
    /// Last change of the file.
    pub(super) modified: Timestamp,
}

impl Kept {
    /// Reads attributes from the compound of the OPEN.
    pub(super) fn see(&mut self, seen: &FileAttributes) {
        let seen = Attributes::from_file_attributes(seen).unwrap_or_default();
        self.change = seen.change.unwrap_or(self.change);
        // A write that waited has the time of its arrival, which may precede the grant. The time never goes backwards.
        self.modified = seen.time_modify.map_or(self.modified, timestamp).max(self.modified);
    }

    /// Returns the operations before DELEGRETURN: SETATTR of the time, and GETATTR.
    pub(super) fn hand_in(&self, stateid: Stateid) -> Vec<Op> {
        if !self.is_ours {
            return Vec::new();
        }
        let set = SetAttributes { time_deleg_modify: Some(time(self.modified)), ..SetAttributes::default() };
        vec![Op::SetAttr(SetAttrArgs { stateid, attributes: set.to_file_attributes() }), after()]
    }

    /// Checks the results of a return.
    ///
    /// # Errors
    /// The file does not have the holder's time.
    pub(super) fn check<'a>(&self, mut results: impl Iterator<Item = &'a OpResult>) -> Result<(), String> {
        if !self.is_ours {
            return Ok(());
        }
        match modified(&mut results) {
            Some(seen) if seen == self.modified => Ok(()),
            seen => Err(format!("the holder set {:?}, but the server returns {seen:?}", self.modified)),
        }
    }
}

/// Returns GETATTR of a file's time.
pub(super) fn stat(name: &str) -> Vec<Op> {
    at_export(name).into_iter().chain([after()]).collect()
}

/// Returns GETATTR before a change.
pub(super) fn before() -> Op {
    Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[n::CHANGE, n::TIME_MODIFY]) })
}

/// Returns GETATTR of the time after a change.
pub(super) fn after() -> Op {
    Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[n::TIME_MODIFY]) })
}

/// Returns the last change attribute in the results.
pub(super) fn change<'a>(results: impl Iterator<Item = &'a OpResult>) -> Option<u64> {
    let changes = results.filter_map(|result| match result {
        OpResult::GetAttr(Outcome::Ok(seen)) => Attributes::from_file_attributes(seen).ok()?.change,
        _ => None,
    });
    changes.last()
}

/// Returns the modification time in the results.
pub(super) fn modified<'a>(mut results: impl Iterator<Item = &'a OpResult>) -> Option<Timestamp> {
    results.find_map(|result| match result {
        OpResult::GetAttr(Outcome::Ok(seen)) => {
            Attributes::from_file_attributes(seen).ok()?.time_modify.map(timestamp)
        }
        _ => None,
    })
}

/// Returns a holder's reply to CB_GETATTR.
pub(super) fn answer(held: Option<&Held>, asked: &CbGetAttrArgs) -> Outcome<FileAttributes> {
    // Returned already, or the reply with the grant has not arrived yet.
    let Some(held) = held else { return Outcome::Error(Status::BADHANDLE) };
    let kept = held.kept;
    let time = asked.attributes.has(n::TIME_DELEG_MODIFY).then(|| time(kept.modified));
    let held = Attributes {
        change: Some(kept.change + u64::from(held.is_dirty)),
        size: Some(SIZE),
        time_deleg_access: time,
        time_deleg_modify: time,
        ..Attributes::default()
    };
    Outcome::Ok(held.to_file_attributes())
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
