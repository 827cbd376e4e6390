//! Checks of change attributes in listings.

use std::collections::BTreeMap;

use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::types::{Bitmap, Outcome, Stateid};

use super::FILES;
use super::client::name;
use crate::client::export;

/// Bytes of a listing; more than all files need.
const LISTING_BYTES: u32 = 4 << 10;

/// A client's delegations when it requests a listing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestContext {
    /// Files with read delegations, and their stateids.
    pub(super) held: Vec<(u64, Stateid)>,
    /// Files without delegations.
    pub(super) others: Vec<u64>,
}

/// Change attributes that one client has seen of files without delegations.
#[derive(Debug, Default)]
pub(super) struct ListedChanges {
    /// The last of each file.
    latest: BTreeMap<u64, u64>,
}

/// Returns the request for a listing, the same for all clients.
pub(super) fn list() -> Vec<Op> {
    let list = ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: LISTING_BYTES,
        maxcount: LISTING_BYTES,
        attributes: Bitmap::of(&[n::CHANGE]),
    };
    let mut ops = export();
    ops.push(Op::ReadDir(list));
    ops
}

/// Returns the change attributes in the results by file, if there is a complete listing.
pub(super) fn changes_in<'a>(results: impl Iterator<Item = &'a OpResult>) -> Option<BTreeMap<u64, u64>> {
    let listings = results.filter_map(|result| match result {
        OpResult::ReadDir(Outcome::Ok(listing)) if listing.eof => Some(listing),
        _ => None,
    });
    let file_of = |changes: &[u8]| (0..FILES).find(|file| name(*file).as_bytes() == changes);
    let entries = listings.last()?.entries.iter().map(|entry| {
        let seen = Attributes::from_file_attributes(&entry.attributes).ok()?;
        Some((file_of(&entry.name)?, seen.change?))
    });
    entries.collect()
}

impl ListedChanges {
    /// Checks the change attributes of a listing.
    ///
    /// # Errors
    /// Returns a file of `held` without the change attribute of its grant, or one of `others` with an older one than before.
    pub(super) fn check(
        &mut self,
        changes: &BTreeMap<u64, u64>,
        mut held: impl Iterator<Item = (u64, u64)>,
        others: &[u64],
    ) -> Result<(), String> {
        if let Some((file, granted)) = held.find(|(file, granted)| changes.get(file) != Some(granted)) {
            let listed = changes.get(&file);
            return Err(format!("file {file}: granted with change {granted}, listed with {listed:?}"));
        }
        for file in others {
            let (Some(change), latest) = (changes.get(file), self.latest.entry(*file).or_default()) else {
                continue;
            };
            if change < latest {
                return Err(format!("file {file}: listed with change {change} after {latest}"));
            }
            *latest = *change;
        }
        Ok(())
    }
}
