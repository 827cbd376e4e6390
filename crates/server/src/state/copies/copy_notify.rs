//! COPY_NOTIFY: clients permit other servers to read files here (RFC 7862 §4.5, §15.3).
//!
//! A permission lets one address read one file by a stateid of its own, while the client could read it by the open that the
//! permission is based on, and no longer than a lease time after the last READ: the reader is no client whose lease would show
//! that it exists. Permissions are bounded by client and in all, and end with the client's record.

use core::net::IpAddr;
use std::time::Duration;

use vfs::Authority;

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::copy_notify::{CopyNotify, CopyNotifyTable};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::io::{IoKind, IoPermit};
use crate::state::tables::stateid::other_of;
use crate::state::tables::wire::{ClientId, Stateid, Status};

/// Maximum number of permissions of all clients.
const ALL_MAX: usize = 1024;
/// Maximum number of permissions of one client.
const PER_CLIENT_MAX: usize = 64;
/// Marks a COPY_NOTIFY stateid, in place of an index into the shards, which is never as large.
const COPY_NOTIFY_INDEX: u32 = u32::MAX - 1;
/// Separates the keyed numbers of these stateids from others.
const SECRET: u64 = 0x7072_6f6d << 32;

impl State {
    /// COPY_NOTIFY: returns the stateid to read by, and for how long it is valid. §15.3.3: "To renew the copy lease time, the client
    /// should resend the same copy notification request".
    ///
    /// # Errors
    /// DELAY if there are too many.
    pub(crate) fn add_copy_notify(
        &self,
        now: Duration,
        request: CopyNotify,
    ) -> Result<(Stateid, Duration), Status> {
        let until = now + self.lease;
        let mut inner = self.copy_notifies.0.lock();
        inner.granted.retain(|_, (_, until)| *until > now);
        let same = inner.granted.iter_mut().find(|(_, (given, _))| given.is_same(&request));
        if let Some((number, (_, good_until))) = same {
            *good_until = until;
            return Ok((self.copy_notify_stateid(*number), self.lease));
        }
        let client = request.client.id();
        let own = inner.granted.values().filter(|(given, _)| given.client.id() == client).count();
        // Under the lock: one added after `release_copy_notifies` would stay forever.
        if own >= PER_CLIENT_MAX || inner.granted.len() >= ALL_MAX || request.client.is_removed() {
            return Err(Status::DELAY);
        }
        let number = inner.last.wrapping_add(1);
        inner.last = number;
        inner.granted.insert(number, (request, until));
        Ok((self.copy_notify_stateid(number), self.lease))
    }

    /// Checks a READ from this address by a COPY_NOTIFY stateid.
    ///
    /// # Errors
    /// BAD_STATEID; PARTNER_NO_AUTH if its time is over, or its client could no longer read.
    pub(crate) fn check_copy_notify(
        &self,
        now: Duration,
        file: FileKey,
        stateid: &Stateid,
        reader: IpAddr,
    ) -> Result<IoPermit, Status> {
        let mut inner = self.copy_notifies.0.lock();
        let (granted, until) = self.find_copy_notify(&mut inner, stateid).ok_or(Status::BAD_STATEID)?;
        if granted.file != file || granted.reader != reader.to_canonical() {
            return Err(Status::BAD_STATEID);
        }
        // §15.3.3: "If the cnr_lease_time expires before the destination server uses READ or READ_PLUS to begin the transfer,
        // the source server can use NFS4ERR_PARTNER_NO_AUTH".
        if *until <= now {
            return Err(Status::PARTNER_NO_AUTH);
        }
        *until = now + self.lease;
        let granted = granted.clone();
        drop(inner);
        let permit = self.check_io(now, &granted.client, file, &granted.stateid, IoKind::Read);
        permit.map_err(|_| Status::PARTNER_NO_AUTH)?;
        // COPY_NOTIFY checked the permission of the caller.
        Ok(IoPermit { authority: Authority::Opened, opener: None, stateid: *stateid })
    }

    /// OFFLOAD_CANCEL of a COPY_NOTIFY stateid. Returns false if the client has no such stateid.
    pub(crate) fn cancel_copy_notify(
        &self,
        client: &Client,
        caller: u64,
        file: FileKey,
        stateid: &Stateid,
    ) -> bool {
        let mut inner = self.copy_notifies.0.lock();
        let given = self.find_copy_notify(&mut inner, stateid);
        let is_own = given.is_some_and(|(given, _)| {
            (given.client.id(), given.caller, given.file) == (client.id(), caller, file)
        });
        if is_own {
            inner.granted.remove(&number_of(stateid));
        }
        is_own
    }

    /// Removes the permissions of a client whose record is removed.
    pub(crate) fn release_copy_notifies(&self, client: ClientId) {
        self.copy_notifies.0.lock().granted.retain(|_, (given, _)| given.client.id() != client);
    }

    fn find_copy_notify<'i>(
        &self,
        inner: &'i mut CopyNotifyTable,
        stateid: &Stateid,
    ) -> Option<&'i mut (CopyNotify, Duration)> {
        let number = number_of(stateid);
        let is_it = self.copy_notify_stateid(number) == *stateid;
        inner.granted.get_mut(&number).filter(|_| is_it)
    }

    fn copy_notify_stateid(&self, number: u32) -> Stateid {
        // RFC 7862 §4.9.1.2: the stateid "provides initial authentication of the destination server": it must not be guessable.
        let secret = self.ids.keyed(SECRET | u64::from(number));
        let rest = secret >> 48 << 32 | u64::from(number);
        Stateid { seqid: secret as u32 | 1, other: other_of(self.ids.boot(), COPY_NOTIFY_INDEX, rest) }
    }
}

fn number_of(stateid: &Stateid) -> u32 {
    stateid.other.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
