//! Times of files: clients that keep those of what is delegated to them (RFC 9754 §5), and look at those of others.

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

/// What a client that keeps times adds to the share access of an OPEN.
pub(super) const WANTED: ShareAccess = ShareAccess::WANT_DELEG_TIMESTAMPS;
/// Bytes of a file.
const SIZE: u64 = 8;

/// What a client knows of its file's attributes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    /// Whether it keeps them for all others.
    pub(super) is_ours: bool,
    /// With the delegation.
    pub(super) change: u64,
    /// Last change of the file.
    pub(super) modified: Timestamp,
}

impl Kept {
    /// Looks at attributes from the OPEN's compound.
    pub(super) fn see(&mut self, seen: &FileAttributes) {
        let seen = Attributes::from_file_attributes(seen).unwrap_or_default();
        self.change = seen.change.unwrap_or(self.change);
        // A write that waited has the time of its arrival. That of the grant may be later, and what is kept never goes back.
        self.modified = seen.time_modify.map_or(self.modified, timestamp).max(self.modified);
    }

    /// What comes before DELEGRETURN: the time, and a look at what has become of it.
    pub(super) fn hand_in(&self, stateid: Stateid) -> Vec<Op> {
        if !self.is_ours {
            return Vec::new();
        }
        let set = SetAttributes { time_deleg_modify: Some(time(self.modified)), ..SetAttributes::default() };
        vec![Op::SetAttr(SetAttrArgs { stateid, attributes: set.to_file_attributes() }), after()]
    }

    /// Judges the results of giving the file back.
    ///
    /// # Errors
    /// Where the file has not the time that its holder had handed in.
    pub(super) fn judge<'a>(&self, mut results: impl Iterator<Item = &'a OpResult>) -> Result<(), String> {
        if !self.is_ours {
            return Ok(());
        }
        match modified(&mut results) {
            Some(seen) if seen == self.modified => Ok(()),
            seen => Err(format!("it was changed at {:?}, and the server says at {seen:?}", self.modified)),
        }
    }
}

/// A look at a file's time.
pub(super) fn stat(name: &str) -> Vec<Op> {
    at_export(name).into_iter().chain([after()]).collect()
}

/// A look at a file between its OPEN and what changes it.
pub(super) fn before() -> Op {
    Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[n::CHANGE, n::TIME_MODIFY]) })
}

/// A look at a file's time, behind what changes it.
pub(super) fn after() -> Op {
    Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[n::TIME_MODIFY]) })
}

/// The last change attribute among some results.
pub(super) fn change<'a>(results: impl Iterator<Item = &'a OpResult>) -> Option<u64> {
    let changes = results.filter_map(|result| match result {
        OpResult::GetAttr(Outcome::Ok(seen)) => Attributes::from_file_attributes(seen).ok()?.change,
        _ => None,
    });
    changes.last()
}

/// The time among some results.
pub(super) fn modified<'a>(mut results: impl Iterator<Item = &'a OpResult>) -> Option<Timestamp> {
    results.find_map(|result| match result {
        OpResult::GetAttr(Outcome::Ok(seen)) => {
            Attributes::from_file_attributes(seen).ok()?.time_modify.map(timestamp)
        }
        _ => None,
    })
}

/// What the holder of a delegation answers to CB_GETATTR.
pub(super) fn answer(held: Option<&Held>, asked: &CbGetAttrArgs) -> Outcome<FileAttributes> {
    // Returned already, or the reply that brings it has not come yet.
    let Some(held) = held else { return Outcome::Error(Status::BADHANDLE) };
    let kept = held.kept;
    let time = asked.attributes.has(n::TIME_DELEG_MODIFY).then(|| time(kept.modified));
    let said = Attributes {
        change: Some(kept.change + u64::from(held.is_dirty)),
        size: Some(SIZE),
        time_deleg_access: time,
        time_deleg_modify: time,
        ..Attributes::default()
    };
    Outcome::Ok(said.to_file_attributes())
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
