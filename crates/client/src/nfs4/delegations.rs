//! Delegations of files at the server: local opens, and the requests that end a delegation (RFC 8881 §10.4, §18.6; RFC 7530 §10.4).
//!
//! In 4.0 a file is opened by its name only, also under its delegation: the name is kept with that.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes, number};
use protocol::nfs4::callback::recall::{CbGetAttrArgs, CbRecallAnyArgs, recallable};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::open::{
    ClaimDelegateCur, DelegationWant, OpenClaim, OpenHow, OpenOk, OpenResultFlags,
};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{Component, Handle, Stateid, Status, Time};

use super::Nfs4;
use super::getattr::{get_attributes, get_change, take_attributes, take_change};
use super::open_args::{Wanted, granted};
use super::owned::{OpenedFile, Opening};
use super::recovery::RENAMES_MAX;
use super::statuses::{Recovery, recovery};
use super::wire::{Results, put};
use crate::attributes::{Before, Changed, Timestamp};
use crate::config::Caller;
use crate::delegations::{Closing, EndedTimes, Grant, Granted, Held, Kind, Location, Verdict};
use crate::error::OpError;
use crate::opens::{NewOpen, OpenFile, OpenMode};
use crate::results::{FileHandle, Object, OpenState};

/// How much a server's clock may be ahead of this machine's.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// Operations of the compound that returns a delegation, beside the CLOSEs: SEQUENCE, PUTFH, GETATTR, SETATTR, GETATTR and
/// DELEGRETURN.
const RETURN_OPERATIONS: usize = 6;
/// Delegations that are returned at a time.
const RETURNS_MAX: usize = 64;
/// The pause before a task that waits for a return looks whether the client was closed; closing ends it.
const ENDED_PAUSE: Duration = Duration::from_secs(60);

/// SETATTR of the time of the last change that a program has made under a delegation (RFC 9754 §5).
fn set_modified(times: &EndedTimes) -> Op {
    let Timestamp { seconds, nanoseconds } = times.modified;
    let time_deleg_modify = Some(Time { seconds, nanoseconds });
    let set = SetAttributes { time_deleg_modify, ..SetAttributes::default() };
    Op::SetAttr(SetAttrArgs { stateid: times.stateid, attributes: set.to_file_attributes() })
}

/// Takes the results of PUTFH, [`get_change`], [`set_modified`] and [`get_attributes`].
fn take_modified(results: &mut Results) -> Result<Changed, OpError> {
    results.skip()?;
    let before = take_change(results)?.map(Before::Change);
    results.skip()?;
    let after = Some(take_attributes(results)?);
    Ok(Changed { before, after, ..Changed::default() })
}

/// Opens and closes.
impl Nfs4 {
    /// Returns the delegation that an OPEN asks for.
    pub(super) fn wanted_delegation(&self, mode: OpenMode) -> Wanted {
        match mode.write {
            _ if !self.uses_delegations() => Wanted::NONE,
            true => Wanted { delegation: DelegationWant::WRITE_DELEG, times: self.delegates_times() },
            false => Wanted { delegation: DelegationWant::READ_DELEG, times: false },
        }
    }

    /// Returns whether a file's time is so far in the future that times of changes cannot be kept: the server ignores times before it
    /// (RFC 9754 §5), and must set the time itself.
    fn is_far_ahead(&self, modified: Timestamp) -> bool {
        self.engine.time_of_day().is_some_and(|now| modified.seconds > now.seconds + CLOCK_SKEW_SECONDS)
    }

    pub(super) fn uses_delegations(&self) -> bool {
        // In 4.0 the server can recall them only at a port of this machine.
        let can_recall = self.has_sessions() || self.engine.is_listening();
        self.config.caches.delegations && can_recall && self.delegations.has_cache()
    }

    /// Takes the delegation from the reply to an OPEN. Returns its number. One that this client cannot use is returned at once.
    pub(super) async fn take_delegation(
        &self,
        caller: &Caller,
        object: &Object,
        location: Option<&Location>,
        mode: OpenMode,
        opened: &OpenOk,
    ) -> Option<u64> {
        let handle = object.handle;
        let Some(Granted { kind, stateid, is_recalled, limit, keeps_times }) = granted(&opened.delegation)
        else {
            self.delegations.permit(&handle, caller, mode);
            return None;
        };
        if self.uses_delegations() {
            let preserves_unlinked = opened.flags.contains(OpenResultFlags::PRESERVE_UNLINKED);
            let (caller, change) = (caller.clone(), object.attributes.change);
            let modified =
                keeps_times.then_some(object.attributes.mtime).filter(|mtime| !self.is_far_ahead(*mtime));
            let location = location.filter(|_| !self.has_sessions()).cloned();
            let grant = Grant {
                handle,
                location,
                kind,
                stateid,
                caller,
                mode,
                preserves_unlinked,
                limit,
                change,
                modified,
                restarts: None,
            };
            let id = self.delegations.granted(grant, self.engine.now());
            if is_recalled {
                self.delegations.recall(&handle, &stateid);
            }
            if self.opens.has_writer(&handle) {
                // Own changes would make what was read under it obsolete.
                self.delegations.give_back_read(&handle);
            }
            if id.is_some() {
                return id;
            }
        }
        let ops = [put(handle), Op::DelegReturn(DelegReturnArgs { stateid })];
        // The server recalls it if it did not arrive.
        let _ = self.change(caller, &ops).await;
        None
    }

    /// Returns the delegation of a file or directory that is held, if the lease is not over (§8.3). That of a directory ends with a
    /// restart of the server: after the loss of a connection it counts only once a reply has shown that the session still exists.
    pub(crate) fn delegation(&self, handle: &FileHandle) -> Option<Held> {
        if !self.config.caches.delegations {
            return None;
        }
        let now = self.engine.now();
        let held = self.delegations.held(handle, now).filter(|_| self.is_lease_valid(now))?;
        (held.kind != Kind::Directory || self.is_confirmed()).then_some(held)
    }

    /// Opens a file without a request, if its delegation allows it.
    pub(crate) fn open_delegated(
        &self,
        caller: &Caller,
        handle: FileHandle,
        mode: OpenMode,
    ) -> Option<OpenState> {
        self.delegation(&handle)?;
        let location = self.delegations.location(&handle);
        if location.is_none() && !self.has_sessions() {
            return None;
        }
        let new = |stateid| {
            let owner = self.opens.take_owner();
            self.opens.add(owner, caller, NewOpen { handle, location, mode, stateid, is_local: true })
        };
        let opened = self.delegations.open(&handle, caller, mode, self.engine.now(), new)?;
        Some(OpenState { file: Some(opened.file), preserves_unlinked: opened.preserves_unlinked })
    }

    /// Closes a file without a request. Returns false if the server must close it.
    pub(super) async fn close_delegated(&self, file: &Arc<OpenFile>) -> bool {
        let closing = {
            // An OPEN for the recall may be under way.
            let _turn = file.turn().await;
            let closing = self.delegations.close(file, self.engine.now());
            if closing == Closing::Local {
                file.note_closed();
                file.lose(Status::BAD_STATEID);
            }
            closing
        };
        if closing == Closing::Local {
            self.opens.remove(file);
        }
        closing != Closing::AtServer
    }

    /// Makes the server know a local open, for requests that need the stateid of an open.
    ///
    /// # Errors
    /// As OPEN. The open is lost then.
    pub(super) async fn make_known(&self, file: &OpenFile) -> Result<(), OpError> {
        let (mut attempts, mut renames_left) = (self.attempts(), RENAMES_MAX);
        loop {
            let session = attempts.session().await?;
            let mut owner = file.turn().await;
            // Closed, reclaimed or established meanwhile.
            if !file.is_local() || file.stateid().is_err() {
                return Ok(());
            }
            let held = self.delegations.stateid(&file.handle);
            // Version 4.0 opens by the name.
            let location = file.location().filter(|_| !self.has_sessions() && renames_left > 0);
            let is_renamed = || location.is_some() && self.may_be_renamed(file, location.as_ref());
            let Some(opening) = self.opening_known(file, held) else {
                return Err(self.lose_open(file, Status::STALE));
            };
            match self.open_in(&session, &file.caller, &mut owner, &opening).await {
                Ok(Ok(OpenedFile { opened, object, .. })) if object.handle != file.handle => {
                    // The name is another file's now.
                    let stateid = opened.stateid;
                    let _ = self.close_unwanted(&session, file, &mut owner, stateid, object.handle).await;
                    if !is_renamed() {
                        return Err(self.lose_open(file, Status::STALE));
                    }
                    drop(owner);
                    renames_left -= 1;
                    self.rename_pause().await;
                }
                Ok(Ok(OpenedFile { opened, .. })) => {
                    file.reclaimed(opened.stateid);
                    let new = granted(&opened.delegation).map(|granted| granted.stateid);
                    if let Some(new) = new.filter(|new| held.is_none_or(|held| held.other != new.other)) {
                        // The server recalls it if this does not arrive.
                        let _ = self.return_unwanted(&session, file, new).await;
                    }
                    return Ok(());
                }
                Ok(Err(OpError::Status(Status::NOENT))) if is_renamed() => {
                    drop(owner);
                    renames_left -= 1;
                    self.rename_pause().await;
                }
                Ok(Err(error)) => {
                    drop(owner);
                    self.lose_locks_of(file);
                    let status = if let OpError::Status(status) = error { status } else { Status::IO };
                    let Some(stateid) = held.filter(|_| recovery(status) == Recovery::Reopen) else {
                        file.lose(status);
                        return Err(error);
                    };
                    // The server has revoked the delegation: the file is opened without it.
                    self.delegation_revoked(&file.handle, &stateid);
                    self.free(&file.caller, stateid).await;
                }
                Err(error) => attempts.handle(error)?,
            }
        }
    }

    /// Returns the OPEN that makes the server know a local open, under the delegation with this stateid or, if that is lost, without.
    /// `None` if the file has no name, which 4.0 needs.
    fn opening_known(&self, file: &OpenFile, held: Option<Stateid>) -> Option<Opening> {
        let (at, claim) = if self.has_sessions() {
            (file.handle, held.map_or(OpenClaim::Fh, OpenClaim::DelegateCurFh))
        } else {
            let (directory, name) = file.location()?;
            let claim = match held {
                Some(stateid) => {
                    OpenClaim::DelegateCur(ClaimDelegateCur { delegate_stateid: stateid, file: name })
                }
                None => OpenClaim::Null(name),
            };
            (directory, claim)
        };
        Some(Opening { at, mode: file.mode, how: OpenHow::NoCreate, claim, want: Wanted::NONE })
    }

    /// Notes that an open is lost, with the locks through it. Returns the error of its user.
    fn lose_open(&self, file: &OpenFile, status: Status) -> OpError {
        self.locks.lose_of_open(file);
        file.lose(status);
        OpError::Status(status)
    }

    /// Notes that a name was changed.
    pub(super) fn note_renamed(&self, from: (&Handle, &Component), to: (&Handle, &Component)) {
        self.opens.renamed(from, to);
        if !self.has_sessions() {
            self.delegations.renamed(from, to);
        }
    }
}

/// Restarts of the server.
impl Nfs4 {
    /// Returns whether an open is local without a delegation.
    pub(super) fn is_undelegated(&self, file: &OpenFile) -> bool {
        file.is_local() && self.delegations.stateid(&file.handle).is_none()
    }
}

/// Recalls and returns.
impl Nfs4 {
    /// Handles CB_RECALL_ANY (§20.6).
    pub(super) fn recall_any(&self, args: &CbRecallAnyArgs) {
        let is_asked = |kind| {
            args.type_mask.has(match kind {
                Kind::Read => recallable::RDATA_DLG,
                Kind::Write => recallable::WDATA_DLG,
                Kind::Directory => recallable::DIR_DLG,
            })
        };
        self.delegations.recall_any(args.objects_to_keep as usize, is_asked);
    }

    /// Returns the delegation of a file, if there is one: its name will be removed, or bytes must be locked at the server.
    pub(crate) async fn give_back(&self, handle: &FileHandle) {
        if self.delegations.give_back(handle) {
            self.ended(Some(handle)).await;
        }
    }

    /// Returns the delegation for reading of a file, if there is one: this client will write it.
    pub(crate) async fn give_back_read(&self, handle: &FileHandle) {
        if self.delegations.give_back_read(handle) {
            self.ended(Some(handle)).await;
        }
    }

    /// Waits until the delegation of a file has ended, or all of them, or the client was closed.
    async fn ended(&self, handle: Option<&FileHandle>) {
        while !self.engine.is_shut_down() {
            let mut timer = self.engine.sleep(ENDED_PAUSE);
            let has_ended = poll_fn(|context| match self.delegations.poll_ended(handle, context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => Pin::new(&mut timer).poll(context).map(|()| false),
            });
            if has_ended.await {
                return;
            }
        }
    }

    /// Returns all delegations.
    pub(super) async fn give_back_all(&self) {
        self.delegations.give_back_all();
        self.ended(None).await;
    }

    /// Returns delegations that are recalled, idle or too many. Does not end.
    pub(super) async fn return_delegations(&self) {
        let mut running = FuturesUnordered::new();
        loop {
            let mut sleep = None;
            while running.len() < RETURNS_MAX {
                let (handle, search_at) = self.delegations.next_return(self.engine.now());
                match handle {
                    Some(handle) => running.push(self.return_one(handle)),
                    None => {
                        sleep = search_at.map(|at| self.engine.sleep_until(at));
                        break;
                    }
                }
            }
            poll_fn(|context| {
                let is_raised = self.delegations.poll_signal(context).is_ready();
                let has_ended = matches!(running.poll_next_unpin(context), Poll::Ready(Some(())));
                let is_due = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(context).is_ready());
                if is_raised || has_ended || is_due { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// Returns a delegation. Before, written data are written back and its local opens are established (RFC 8881 §10.4.4); its
    /// parked opens are closed with it.
    async fn return_one(&self, handle: Handle) {
        if self.delegations.is_directory(&handle) {
            // Other clients may change it before the reply to DELEGRETURN arrives.
            self.delegations.caches().iter().for_each(|cache| cache.ended(&handle));
        }
        self.write_back(handle).await;
        self.make_opens_known(&handle).await;
        // Of opens that were lost with the delegation.
        self.write_back(handle).await;
        self.make_locks_known(&handle).await;
        self.send_return(handle).await;
        self.delegations.ended(&handle);
        self.delegations.caches().iter().for_each(|cache| cache.ended(&handle));
    }

    /// Waits until written data are stable. If the delegation is revoked meanwhile, nothing is sent before the verdict about them.
    async fn write_back(&self, handle: Handle) {
        loop {
            let revoked = poll_fn(|context| self.delegations.poll_revoked(&handle, context));
            let written = async {
                for cache in self.delegations.caches() {
                    cache.write_back(handle).await;
                }
            };
            match select(pin!(revoked), pin!(written)).await {
                Either::Left(_) => self.judge_revoked(handle).await,
                Either::Right(_) => break,
            }
        }
        for cache in self.delegations.caches() {
            cache.close_unused(handle).await;
        }
    }

    /// Decides about the data of a file whose delegation was revoked.
    async fn judge_revoked(&self, handle: Handle) {
        let mut verdict = Verdict::Write;
        for cache in self.delegations.caches() {
            if cache.check_revoked(handle).await == Verdict::Discard {
                verdict = Verdict::Discard;
            }
        }
        self.delegations.decide(&handle, verdict);
        if verdict == Verdict::Discard {
            for cache in self.delegations.caches() {
                cache.writes_ended(handle).await;
            }
        }
    }

    async fn make_opens_known(&self, handle: &Handle) {
        while let Some(file) = self.delegations.next_local(handle) {
            // Its user gets the error.
            let _ = self.make_known(&file).await;
        }
    }

    /// Gives the delegation of a file and its parked opens back, in one compound as far as they fit.
    async fn send_return(&self, handle: Handle) {
        let times = self.delegations.end_times(&handle);
        let Some(ending) = self.delegations.ending(&handle) else { return };
        let give_back = ending.stateid.map(|stateid| Op::DelegReturn(DelegReturnArgs { stateid }));
        // The remaining opens are closed one by one afterwards.
        let room = self.session().await.map_or(0, |session| session.limits.operations as usize);
        let together = ending.parked.iter().take(room.saturating_sub(RETURN_OPERATIONS));
        let closing: Vec<_> = together.map(|file| file.stateid().ok()).collect();
        let close = |open_stateid| Op::Close(CloseArgs { seqid: 0, open_stateid });
        let ops: Vec<Op> =
            give_back.into_iter().chain(closing.iter().flatten().copied().map(close)).collect();
        let outcome = match ops.is_empty() {
            true => Ok(Status::OK),
            false => self.return_with_times(&ending.caller, handle, times, ops).await,
        };
        if let (Ok(Status::ADMIN_REVOKED | Status::DELEG_REVOKED | Status::EXPIRED), Some(stateid)) =
            (&outcome, ending.stateid)
        {
            self.free(&ending.caller, stateid).await;
        }
        let are_closed = outcome == Ok(Status::OK);
        let closing = closing.into_iter().map(|stateid| stateid.filter(|_| are_closed));
        for (file, closed) in ending.parked.iter().zip(closing.chain(std::iter::repeat(None))) {
            self.end_parked(file, handle, closed).await;
        }
    }

    /// Ends an open that was parked. `closed` is its stateid if the server has closed it.
    async fn end_parked(&self, file: &Arc<OpenFile>, handle: Handle, closed: Option<Stateid>) {
        let is_closed = {
            // The reply may come when the session was lost, and the open is being reclaimed in the next one.
            let _turn = file.turn().await;
            let is_closed = closed.is_some() && file.stateid().ok() == closed;
            if is_closed {
                file.note_closed();
            }
            is_closed
        };
        if !is_closed {
            // The delegation is gone for the server, or the session was lost meanwhile.
            let _ = self.close_open(&file.caller, handle, file).await;
            file.note_closed();
        }
        self.opens.remove(file);
    }

    /// Sends the operations that end a delegation. Before them, the server gets the time of the last change by a program: RFC 9754
    /// §5 allows that "in the same compound, as an operation before the DELEGRETURN". If it refuses, the file keeps the time at
    /// which it got the data.
    async fn return_with_times(
        &self,
        caller: &Caller,
        handle: Handle,
        times: Option<EndedTimes>,
        ends: Vec<Op>,
    ) -> Result<Status, OpError> {
        if let Some(times) = times {
            let caches = self.delegations.caches().into_iter();
            let changes: Vec<_> = caches.filter_map(|cache| cache.start_change(&handle)).collect();
            let timed = [put(handle), get_change(), set_modified(&times), get_attributes()];
            let returned = self.change(caller, &timed.iter().chain(&ends).cloned().collect::<Vec<_>>()).await;
            let (outcome, ended) = match returned {
                // DELEGRETURN was executed.
                Ok(mut results) if results.len() > timed.len() => {
                    let status = results.status();
                    (take_modified(&mut results), Some(Ok(status)))
                }
                Ok(results) => (Err(OpError::Status(results.status())), None),
                Err(error) => (Err(error.clone()), Some(Err(error))),
            };
            changes.into_iter().for_each(|end| end(outcome.clone()));
            if let Some(ended) = ended {
                return ended;
            }
        }
        let ops: Vec<Op> = [put(handle)].into_iter().chain(ends).collect();
        self.change(caller, &ops).await.map(|results| results.status())
    }

    /// Answers CB_GETATTR (RFC 8881 §10.4.3): a change attribute other than that of the grant says that this client has data that
    /// the server does not have.
    ///
    /// # Errors
    /// BADHANDLE if there is no delegation for writing, or nothing is known about the file.
    pub(super) fn held_attributes(&self, args: &CbGetAttrArgs) -> Result<FileAttributes, Status> {
        let granted = self.delegations.granted_change(&args.handle).flatten().ok_or(Status::BADHANDLE)?;
        let caches = self.delegations.caches();
        let cached = caches.iter().find_map(|cache| cache.cached(&args.handle)).ok_or(Status::BADHANDLE)?;
        let change = granted.wrapping_add(u64::from(cached.is_modified));
        let asked = |attribute| args.attributes.has(attribute);
        let time = |Timestamp { seconds, nanoseconds }| Time { seconds, nanoseconds };
        let (accessed, modified) = (time(cached.accessed), time(cached.modified));
        let attributes = Attributes {
            change: asked(number::CHANGE).then_some(change),
            size: asked(number::SIZE).then_some(cached.size),
            time_deleg_access: asked(number::TIME_DELEG_ACCESS).then_some(accessed),
            time_deleg_modify: asked(number::TIME_DELEG_MODIFY).then_some(modified),
            ..Attributes::default()
        };
        Ok(attributes.to_file_attributes())
    }

    /// Waits until data that were written to a file under a delegation may be sent.
    ///
    /// # Errors
    /// DELEG_REVOKED if the delegation was revoked, and others may have changed the file.
    pub(super) async fn may_write(&self, handle: &Handle) -> Result<(), Status> {
        if !self.config.caches.delegations {
            return Ok(());
        }
        poll_fn(|context| self.delegations.poll_may_write(handle, context)).await
    }

    /// Lets the server forget a stateid that it has revoked (§18.38), which 4.0 does not have.
    pub(super) async fn free(&self, caller: &Caller, stateid: Stateid) {
        if !self.has_sessions() {
            return;
        }
        // Whether the server knew the stateid does not matter.
        let _ = self.change(caller, &[Op::FreeStateid(FreeStateidArgs { stateid })]).await;
    }

    /// Notes that the server has revoked a delegation: the locks that were local under it are lost.
    pub(super) fn delegation_revoked(&self, handle: &Handle, stateid: &Stateid) {
        if self.delegations.revoked(handle, stateid) && self.locks.lose_local(handle) {
            self.locks_lost(handle);
        }
    }

    /// Notes that locks of a file are lost: data that were written under them must not reach the server (RFC 8881 §10.5).
    pub(super) fn locks_lost(&self, handle: &Handle) {
        self.locks.note_loss(handle);
        for cache in self.delegations.caches() {
            cache.lock_lost(handle);
        }
    }

    /// Notes that the server has given up all locks through an open.
    pub(super) fn lose_locks_of(&self, file: &OpenFile) {
        if self.locks.lose_of_open(file) {
            self.locks_lost(&file.handle);
        }
    }
}
