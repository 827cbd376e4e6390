//! COMPOUND (RFC 8881 §16.2): decodes and executes operations one after the other, until one fails.
//!
//! Results are written straight into the reply; status and counts are filled in afterwards. Of an operation that fails, only the
//! status remains. Operations share the [`Compound`].

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::ops::{Needs, Operation, Position, operation};
use protocol::nfs4::types::{OpNum, Status};
use rpc::message::CallHeader;
use vfs::{NotDurable, boxed};
use xdr::{Mark, Reader, Writer};

use super::compound::{Compound, Header};
use super::execute::{Execution, Pending};
use super::sequencing::{self, First, FirstTime};
use super::status::{Failure, Result, in_minor, of_backend};
use crate::Effort;
use crate::request::{Request, Served};
use crate::state::SlotRequest;

/// Number of operations in a compound without a session (RFC 8881 §2.10.2.4).
const ALONE: u32 = 1;

/// A compound that has started.
pub(crate) enum Begun<'r> {
    /// The reply is complete.
    Done(Served),
    /// The future that completes it. Boxed: otherwise every version 3 call would carry and move the size of a compound, see
    /// `nfs3::procedure`.
    Waits(Pin<Box<dyn Future<Output = Served> + Send + 'r>>),
}

/// A compound that has to wait.
struct WaitingCompound<'r> {
    progress: Progress<'r>,
    next: Next<'r>,
}

/// The next step of a compound.
enum Next<'r> {
    /// Detect a retransmission, in version 4.0.
    FirstTime,
    /// Finish this operation, which may have to wait.
    Operation(RunningOperation, Pending<'r>),
    /// Make the changes so far durable, then continue.
    Commit,
    /// Complete the reply.
    End,
    /// Send the earlier reply.
    Replay(Bytes),
}

/// The progress of a compound.
struct Progress<'r> {
    compound: Compound<'r>,
    header: Header,
    arguments: Reader,
    start: Mark,
    /// Status of the last operation that ended.
    status: Status,
    /// Operations with changes that are not durable yet, and their indexes.
    deferred: Vec<(u32, RunningOperation)>,
    /// Whether an operation had to wait.
    waited: bool,
    /// Its entry in the reply cache of version 4.0.
    first: Option<First<'r>>,
}

/// Starts a COMPOUND, and completes it if no operation has to wait; only the others need a future.
pub(crate) fn begin<'r>(
    request: &'r Request<'r>,
    call: &'r CallHeader,
    mut arguments: Reader,
    reply: &'r mut Writer,
) -> Begun<'r> {
    let start = reply.mark();
    let Ok(header) = Header::open(&mut arguments, reply) else {
        return Begun::Done(Served::GarbageArguments);
    };
    if !request.server.settings.versions.has_minor(header.minor) {
        // RFC 8881 §16.2.3: "the server MUST return an error of NFS4ERR_MINOR_VERS_MISMATCH and a zero-length resultdata
        // array."
        return Begun::Done(header.close(Status::MINOR_VERS_MISMATCH, 0, reply));
    }
    let mut begun = WaitingCompound {
        progress: Progress {
            compound: Compound::new(request, &header, start),
            header,
            arguments,
            start,
            status: Status::OK,
            deferred: Vec::new(),
            waited: false,
            first: None,
        },
        // Version 4.0 has no slots: RFC 7530 §3.1.1.
        next: Next::FirstTime,
    };
    let WaitingCompound { progress, next } = &mut begun;
    if progress.header.minor > 0 {
        *next = progress.run(reply);
    }
    match next {
        Next::End if !progress.must_settle() => Begun::Done(progress.close(reply)),
        _ => Begun::Waits(boxed(|| begun.serve(call, reply))),
    }
}

impl<'r> WaitingCompound<'r> {
    /// Serves the rest of the compound.
    #[expect(clippy::manual_async_fn, reason = "an async fn would store this future twice")]
    fn serve(mut self, call: &'r CallHeader, reply: &'r mut Writer) -> impl Future<Output = Served> + Send {
        async move {
            let Self { progress, next } = &mut self;
            let request = progress.compound.request;
            // One loop instead of nested futures: each nested future is moved whole before it first runs.
            loop {
                *next = match std::mem::replace(next, Next::End) {
                    Next::FirstTime => {
                        match sequencing::first_time(request, call, progress.arguments.clone()).await {
                            FirstTime::Yes(first) => progress.run_first(first, reply),
                            FirstTime::No(cached) => Next::Replay(cached),
                            // RFC 7530 §3.1.1: "the NFSv4 server MUST NOT silently drop the request, except if the established
                            // transport connection has been broken."
                            FirstTime::Unknown => return Served::Close,
                        }
                    }
                    Next::Operation(operation, pending) => {
                        let done = {
                            let Progress { compound, arguments, waited, .. } = &mut *progress;
                            let mut execution = pin!(compound.finish(pending, arguments, reply));
                            poll_fn(|context| {
                                let polled = execution.as_mut().poll(context);
                                *waited |= polled.is_pending();
                                polled
                            })
                            .await
                        };
                        progress.run_after(&operation, done, reply)
                    }
                    Next::Commit => {
                        progress.commit(reply).await;
                        progress.run(reply)
                    }
                    Next::End => {
                        progress.commit(reply).await;
                        // Before the slot keeps the reply: after a restart the client reclaims the state that the reply grants.
                        if let Some(change) = progress.pending_change() {
                            let _ = progress.compound.state().wait_durable(change, request.thread()).await;
                            progress.waited = true;
                        }
                        let served = progress.close(reply);
                        progress.compound.settle_written().await;
                        return served;
                    }
                    Next::Replay(cached) => return replay(request, &cached, progress.start, reply).await,
                };
            }
        }
    }
}

impl<'r> Progress<'r> {
    /// Executes operations until one has to wait.
    fn run(&mut self, reply: &mut Writer) -> Next<'r> {
        while self.status == Status::OK && self.compound.index < self.compound.count {
            if self.must_commit() {
                return Next::Commit;
            }
            let (operation, done) = self.compound.start(&mut self.arguments, reply);
            let done = match done {
                Ok(Execution::Pending(pending)) => return Next::Operation(operation, pending),
                done => done.map(drop),
            };
            if let Err(cached) = self.end(&operation, done, reply) {
                return Next::Replay(cached);
            }
        }
        Next::End
    }

    /// As [`Self::run`], for a 4.0 compound that was not executed before.
    fn run_first(&mut self, first: First<'r>, reply: &mut Writer) -> Next<'r> {
        self.compound.call = Some(first.call);
        self.first = Some(first);
        self.compound.find_sender();
        self.run(reply)
    }

    /// As [`Self::run`], after an operation that waited.
    fn run_after(&mut self, operation: &RunningOperation, done: Result, reply: &mut Writer) -> Next<'r> {
        match self.end(operation, done, reply) {
            Ok(()) => self.run(reply),
            Err(cached) => Next::Replay(cached),
        }
    }

    /// Ends an operation.
    ///
    /// # Errors
    /// As [`Compound::end`].
    fn end(
        &mut self,
        operation: &RunningOperation,
        done: Result,
        reply: &mut Writer,
    ) -> std::result::Result<(), Bytes> {
        self.status = self.compound.end(operation, done, &self.arguments, reply)?;
        let index = self.compound.index;
        if self.status == Status::OK && self.compound.last_deferred() == Some(index) {
            self.deferred.push((index, *operation));
        }
        self.compound.index += 1;
        Ok(())
    }

    /// Returns whether the changes so far must be durable before the next operation.
    fn must_commit(&self) -> bool {
        self.arguments
            .peek()
            .first_chunk()
            .is_some_and(|number| self.compound.must_commit_before(OpNum(u32::from_be_bytes(*number))))
    }

    /// Makes the changes so far durable. If that fails, the reply ends at the first operation whose change is not durable.
    async fn commit(&mut self, reply: &mut Writer) {
        if self.compound.last_deferred().is_none() {
            return;
        }
        let committed = self.compound.commit_group().await;
        self.waited = true;
        let deferred = std::mem::take(&mut self.deferred);
        let Err(NotDurable { operation: failed, error }) = committed else { return };
        // An operation that failed for another reason keeps its status.
        let Some((index, operation)) = deferred.into_iter().find(|(index, _)| *index == failed) else {
            return;
        };
        self.status = operation.fail(of_backend(error), self.compound.minor, reply);
        reply.patch_u32(operation.status_at, self.status.0);
        self.compound.index = index + 1;
    }

    /// Returns the change to the state log that the reply has to wait for.
    fn pending_change(&self) -> Option<u64> {
        let state = self.compound.state();
        self.compound.who().and_then(|client| state.pending_change(Some(client)))
    }

    /// Returns whether the reply has to wait for a log.
    fn must_settle(&self) -> bool {
        self.pending_change().is_some() || self.compound.request.logged.must_sync()
    }

    /// Completes the header, and keeps the reply for retransmissions.
    fn close(&mut self, reply: &mut Writer) -> Served {
        let served = self.header.close(self.status, self.compound.index, reply);
        let (compound, first) = (&mut self.compound, self.first.take());
        let running = compound.session.take();
        let must_keep =
            compound.changed && first.is_some() || running.as_ref().is_some_and(SlotRequest::cache_this);
        let inline = reply.inline_since(self.start);
        let copied;
        let all = if inline.len() == reply.length_since(self.start) {
            Some(inline)
        } else if must_keep {
            // RFC 8881 §2.10.6.4: a reply that the client wants cached "MUST be cached", even if its data are in a file.
            copied = reply.copy_since(self.start);
            Some(&copied[..])
        } else {
            None
        };
        compound.write_reply(running.as_ref(), all);
        match (running, first, all) {
            // There is no clock here: a compound that never waited ends at the time of its request.
            (Some(running), _, all) if self.waited => running.finish_untimed(all),
            (Some(running), _, all) => running.finish(compound.request.now.monotonic, all),
            (None, Some(first), Some(all)) if compound.changed => first.keep(all),
            _ => {}
        }
        served
    }
}

/// Answers a retransmission with the earlier reply.
async fn replay(request: &Request<'_>, cached: &[u8], start: Mark, reply: &mut Writer) -> Served {
    request.sync_log_of_earlier_call().await;
    request.server.metrics().replayed.fetch_add(1, Relaxed);
    reply.rewind(start);
    reply.raw(cached);
    Served::Done { is_error: false }
}

/// An operation that has started.
#[derive(Debug, Clone, Copy)]
struct RunningOperation {
    /// `None` if the minor version has no such operation.
    row: Option<&'static Operation>,
    /// The number in the reply.
    shown: OpNum,
    status_at: Mark,
    body: Mark,
    /// Start time by the observer's clock, and offset of the arguments.
    began: Option<(Duration, usize)>,
}

impl RunningOperation {
    /// Removes the results, and everything after them. Returns the status for the reply.
    fn fail(&self, status: Status, minor: u32, reply: &mut Writer) -> Status {
        reply.rewind(self.body);
        if self.shown == OpNum::SETATTR {
            // RFC 8881 §18.30.2: SETATTR4res has its attrsset, here none, for any status.
            reply.u32(0);
        }
        in_minor(status, minor)
    }
}

impl<'r> Compound<'r> {
    /// Starts an operation: writes its number, reserves its status, and runs it in place where it can.
    fn start(
        &mut self,
        arguments: &mut Reader,
        reply: &mut Writer,
    ) -> (RunningOperation, Result<Execution<'r>>) {
        let began = self.request.server.observer().map(|observer| (observer.now(), arguments.position()));
        // A truncated number names no operation: RFC 8881 §18.52 permits BADXDR for OP_ILLEGAL.
        let number = arguments.u32();
        let row = number.ok().and_then(|number| operation(number, self.minor));
        // RFC 8881 §16.2.3: for an unknown operation "the server's response will encode the opcode OP_ILLEGAL".
        let shown = row.map_or(OpNum::ILLEGAL, |row| row.opcode.number());
        reply.u32(shown.0);
        let status_at = reply.reserve_u32();
        let operation = RunningOperation { row, shown, status_at, body: reply.mark(), began };
        let done = match row {
            Some(row) => match self.prepare(row, reply) {
                Ok(()) => self.execute(row.opcode, arguments, reply),
                Err(status) => Err(status.into()),
            },
            None if number.is_err() => Err(Status::BADXDR.into()),
            // An operation that the minor version does not have is illegal at any position.
            None => Err(Status::OP_ILLEGAL.into()),
        };
        (operation, done)
    }

    /// Ends an operation: fills in its status, and removes the results of a failed one.
    ///
    /// # Errors
    /// The whole earlier reply, if SEQUENCE found one.
    fn end(
        &mut self,
        operation: &RunningOperation,
        done: Result,
        arguments: &Reader,
        reply: &mut Writer,
    ) -> std::result::Result<Status, Bytes> {
        let done = match done {
            Ok(()) | Err(Failure::Written(_)) => self.check_length(operation.row, reply).and(done),
            done => done,
        };
        let status = match done {
            Ok(()) => Status::OK,
            Err(Failure::Written(status)) => status,
            Err(Failure::Status(status)) => operation.fail(status, self.minor, reply),
            Err(Failure::Saved(saved)) => {
                reply.rewind(operation.body);
                match self.make_current_again(&saved) {
                    Ok(()) => {
                        reply.raw(&saved.body);
                        saved.status
                    }
                    Err(status) => status,
                }
            }
            Err(Failure::Replay(cached)) => return Err(cached),
        };
        reply.patch_u32(operation.status_at, status.0);
        let server = self.request.server;
        server.metrics().nfs4_operation(operation.shown.0).count(status != Status::OK);
        if let (Some(observer), Some((began, at))) = (server.observer(), operation.began) {
            let effort = Effort {
                took: observer.now().saturating_sub(began),
                received: arguments.position() - at,
                // Number and status are the eight bytes before the body.
                sent: 8 + reply.length_since(operation.body),
            };
            observer.nfs4_operation(operation.shown, effort);
        }
        Ok(status)
    }

    /// Runs the checks that all operations require: position, file handles, space for the result.
    fn prepare(&mut self, row: &Operation, reply: &Writer) -> std::result::Result<(), Status> {
        self.check_position(row)?;
        // Later versions MUST NOT implement some operations of 4.0 (RFC 8881 §17); that comes before other errors: §2.10.6.1.3.
        if row.last_minor < self.minor {
            return Err(Status::NOTSUPP);
        }
        if let Some(status) = self.refusal {
            return Err(status);
        }
        self.check_handles(row.needs)?;
        self.check_present(row)?;
        if !row.keeps_attributes {
            self.fresh = None;
        }
        // An operation that must not run twice must not run without room for its result.
        if let Some(length) = row.once {
            self.check_room(reply, length)?;
            self.changed = true;
        }
        Ok(())
    }

    /// RFC 8881 §2.10.2.4, §18.46.3: SEQUENCE comes first and once; few others may come without it, and then alone.
    fn check_position(&self, row: &Operation) -> std::result::Result<(), Status> {
        if self.minor == 0 {
            return Ok(());
        }
        match (self.index, row.position) {
            (0, Position::First) => Ok(()),
            (0, Position::InSession) => Err(Status::OP_NOT_IN_SESSION),
            (0, Position::SessionOrAlone | Position::Alone) if self.count == ALONE => Ok(()),
            (0, Position::SessionOrAlone | Position::Alone) => Err(Status::NOT_ONLY_OP),
            (_, Position::InSession | Position::SessionOrAlone) => Ok(()),
            (_, Position::First) => Err(Status::SEQUENCE_POS),
            // RFC 8881 §18.34.3: "It MUST be the only operation in the COMPOUND procedure."
            (_, Position::Alone) => Err(Status::NOT_ONLY_OP),
        }
    }

    /// Checks that the file handles for an operation are set.
    fn check_handles(&self, needs: Needs) -> std::result::Result<(), Status> {
        let lacks_current =
            self.current.is_none() && matches!(needs, Needs::Current | Needs::CurrentAndSaved);
        let lacks_saved = self.saved.is_none() && matches!(needs, Needs::Saved | Needs::CurrentAndSaved);
        match needs {
            // RFC 7530 §16.29.4; later versions answer NOFILEHANDLE (RFC 8881 §18.27.3).
            Needs::Saved if lacks_saved && self.minor == 0 => Err(Status::RESTOREFH),
            // RFC 8881 §18.9.4, §18.26.4: NOFILEHANDLE is also the status for a missing saved file handle.
            _ if lacks_current || lacks_saved => Err(Status::NOFILEHANDLE),
            _ => Ok(()),
        }
    }

    /// Checks that the results fit. Operations that must not run twice had their longest result checked before.
    fn check_length(&self, row: Option<&Operation>, reply: &Writer) -> Result {
        match row {
            Some(row) if row.once.is_none() => Ok(self.check_room(reply, 0)?),
            _ => Ok(()),
        }
    }
}
