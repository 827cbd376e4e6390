//! What clients have another server read here (COPY_NOTIFY, RFC 7862 §4.5, §15.3).
//!
//! Criteria. A promise lets one address read one file by a stateid of its own, for as long as the client could read it by the
//! open that the promise stands on, and no longer than a lease time after the last READ: the reader is no client that would
//! show that it is there. It goes with its client. Promises are bounded by client and in all.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vfs::Authority;

use crate::state::tables::client::Client;
use crate::state::tables::stateid::other_of;
use crate::state::tables::wire::{ClientId, Stateid, Status};
use crate::state::{FileKey, IoKind, IoPermit, State};

/// Promises of all clients at most.
const PROMISES_MAX: usize = 1024;
/// Promises of one client at most.
const PROMISES_A_CLIENT: usize = 64;
/// In the place of an index into the shards, where none reaches: the stateid is a promise's.
const PROMISE_INDEX: u32 = u32::MAX - 1;
/// RFC 7862 §4.8: no copy stateid has the seqid zero.
const SECRET: u64 = 0x7072_6f6d << 32;

/// Who may read what.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    pub(crate) client: Arc<Client>,
    /// Who asked, as [`OpenRequest::opener`](crate::state::OpenRequest::opener) tells users apart.
    pub(crate) caller: u64,
    pub(crate) file: FileKey,
    /// The open or the locks that it stands on.
    pub(crate) stateid: Stateid,
    pub(crate) reader: IpAddr,
}

impl Promise {
    fn is_same(&self, other: &Self) -> bool {
        let of = |promise: &Self| (promise.client.id(), promise.caller, promise.file, promise.reader);
        of(self) == of(other) && self.stateid.other == other.stateid.other
    }
}

/// All promises with the time until which each is good, by number.
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    given: HashMap<u32, (Promise, Duration)>,
    last: u32,
}

impl State {
    /// COPY_NOTIFY: the stateid to read by, and for how long it is good. §15.3.3: "To renew the copy lease time, the client
    /// should resend the same copy notification request".
    ///
    /// # Errors
    /// DELAY where there are too many.
    pub(crate) fn promise(&self, now: Duration, promise: Promise) -> Result<(Stateid, Duration), Status> {
        let until = now + self.lease;
        let mut inner = self.promises.0.lock();
        inner.given.retain(|_, (_, until)| *until > now);
        let same = inner.given.iter_mut().find(|(_, (given, _))| given.is_same(&promise));
        if let Some((number, (_, good_until))) = same {
            *good_until = until;
            return Ok((self.promise_stateid(*number), self.lease));
        }
        let client = promise.client.id();
        let own = inner.given.values().filter(|(given, _)| given.client.id() == client).count();
        // Under the lock: what comes behind `release_promises` would stay.
        if own >= PROMISES_A_CLIENT || inner.given.len() >= PROMISES_MAX || promise.client.is_removed() {
            return Err(Status::DELAY);
        }
        let number = inner.last.wrapping_add(1);
        inner.last = number;
        inner.given.insert(number, (promise, until));
        Ok((self.promise_stateid(number), self.lease))
    }

    /// Whether whoever reads from this address may do so by a promise.
    ///
    /// # Errors
    /// BAD_STATEID; PARTNER_NO_AUTH where its time is over, or its client could not read any more.
    pub(crate) fn check_promise(
        &self,
        now: Duration,
        file: FileKey,
        stateid: &Stateid,
        reader: IpAddr,
    ) -> Result<IoPermit, Status> {
        let mut inner = self.promises.0.lock();
        let (promise, until) = self.find_promise(&mut inner, stateid).ok_or(Status::BAD_STATEID)?;
        if promise.file != file || promise.reader != reader.to_canonical() {
            return Err(Status::BAD_STATEID);
        }
        // §15.3.3: "If the cnr_lease_time expires before the destination server uses READ or READ_PLUS to begin the transfer,
        // the source server can use NFS4ERR_PARTNER_NO_AUTH".
        if *until <= now {
            return Err(Status::PARTNER_NO_AUTH);
        }
        *until = now + self.lease;
        let promise = promise.clone();
        drop(inner);
        let permit = self.check_io(now, &promise.client, file, &promise.stateid, IoKind::Read);
        permit.map_err(|_| Status::PARTNER_NO_AUTH)?;
        // The caller was judged when it asked.
        Ok(IoPermit { authority: Authority::Opened, opener: None, stateid: *stateid })
    }

    /// OFFLOAD_CANCEL: nothing is read by it any more; false where the client has given no such promise.
    pub(crate) fn withdraw_promise(
        &self,
        client: &Client,
        caller: u64,
        file: FileKey,
        stateid: &Stateid,
    ) -> bool {
        let mut inner = self.promises.0.lock();
        let given = self.find_promise(&mut inner, stateid);
        let is_own = given.is_some_and(|(given, _)| {
            (given.client.id(), given.caller, given.file) == (client.id(), caller, file)
        });
        if is_own {
            inner.given.remove(&number_of(stateid));
        }
        is_own
    }

    /// Forgets the promises of a client whose record is gone.
    pub(crate) fn release_promises(&self, client: ClientId) {
        self.promises.0.lock().given.retain(|_, (given, _)| given.client.id() != client);
    }

    fn find_promise<'i>(
        &self,
        inner: &'i mut Inner,
        stateid: &Stateid,
    ) -> Option<&'i mut (Promise, Duration)> {
        let number = number_of(stateid);
        let is_it = self.promise_stateid(number) == *stateid;
        inner.given.get_mut(&number).filter(|_| is_it)
    }

    fn promise_stateid(&self, number: u32) -> Stateid {
        // RFC 7862 §4.9.1.2: the stateid "provides initial authentication of the destination server": it is not to be guessed.
        let secret = self.ids.keyed(SECRET | u64::from(number));
        let rest = secret >> 48 << 32 | u64::from(number);
        Stateid { seqid: secret as u32 | 1, other: other_of(self.ids.boot(), PROMISE_INDEX, rest) }
    }
}

fn number_of(stateid: &Stateid) -> u32 {
    stateid.other.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
