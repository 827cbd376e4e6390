//! Operations of version 4, one file for each group, as compounds in the session.

use std::future::Future;

use bytes::Bytes;
use protocol::nfs4::compound::Op;
use protocol::nfs4::types::{OpNum, Stateid, Status};

use super::Nfs4;
use super::session::{DELAY_FIRST, DELAY_MAX, GRACE_PAUSE, may_share};
use super::statuses::{Recovery, recovery};
use super::wire::Results;
use crate::config::Caller;
use crate::error::OpError;
use crate::opens::OpenFile;
use crate::results::OpenState;

mod acl;
mod clone;
mod copy;
mod delegated_directory;
mod directory;
mod file;
mod filesystem;
mod guarded;
mod lock;
mod lockt;
mod locku;
mod many;
mod moved;
mod name;
mod object;
mod open;
mod space;
mod watch;
mod write_many_v40;
mod write_trial;
mod xattr;

pub(super) use lock::lock_type;

/// Number of times that an operation is repeated because its open was lost, before the caller gets the error.
const REOPENS_MAX: u32 = 3;

/// Returns a compound of the operations from the `completed`th on, if they only ask for attributes of the file of the first PUTFH.
fn left_after(ops: &[Op], completed: usize) -> Option<Vec<Op>> {
    let (done, left) = (ops.get(1..completed)?, ops.get(completed..)?);
    let keeps_handle = |op: &Op| matches!(op, Op::GetAttr(_) | Op::SetAttr(_) | Op::Write(_) | Op::Commit(_));
    let asks = !left.is_empty() && left.iter().all(|op| matches!(op, Op::GetAttr(_)));
    let is_of_first = matches!(ops.first(), Some(Op::PutFh(_))) && done.iter().all(keeps_handle);
    (asks && is_of_first).then(|| ops[..1].iter().chain(left).cloned().collect())
}

/// Returns whether an operation can be repeated although it succeeded.
fn is_repeatable(op: &Op) -> bool {
    matches!(
        op.opnum(),
        OpNum::PUTFH
            | OpNum::PUTROOTFH
            | OpNum::SAVEFH
            | OpNum::RESTOREFH
            | OpNum::LOOKUP
            | OpNum::LOOKUPP
            | OpNum::GETFH
            | OpNum::GETATTR
            | OpNum::ACCESS
            | OpNum::READ
            | OpNum::READDIR
            | OpNum::READLINK
            | OpNum::VERIFY
            | OpNum::SEEK
            | OpNum::GETXATTR
            | OpNum::LISTXATTRS
            | OpNum::NVERIFY
            | OpNum::SECINFO
    )
}

/// Returns the stateid for I/O.
///
/// # Errors
/// The open is lost, or a lock through it: data that the lock protected may have changed.
fn usable_stateid(file: &OpenFile) -> Result<Stateid, OpError> {
    if file.has_lost_lock() { Err(OpError::LockLost) } else { Ok(file.io_stateid()?) }
}

impl Nfs4 {
    /// Returns an error for operations that need version 4.2.
    fn needs_4_2(&self, what: &'static str) -> Result<(), OpError> {
        if self.minor_version >= 2 { Ok(()) } else { Err(OpError::Unsupported(what)) }
    }

    /// Executes a compound that changes nothing.
    pub(in crate::nfs4) async fn read_only(&self, caller: &Caller, ops: &[Op]) -> Result<Results, OpError> {
        self.execute(caller, ops, &[], false).await
    }

    /// Executes a compound that changes something, so that the server must keep its reply.
    pub(in crate::nfs4) async fn change(&self, caller: &Caller, ops: &[Op]) -> Result<Results, OpError> {
        self.execute(caller, ops, &[], true).await
    }

    /// As [`Self::change`], with the data of a WRITE in parts.
    async fn write_gathered(
        &self,
        caller: &Caller,
        ops: &[Op],
        gathered: &[Bytes],
    ) -> Result<Results, OpError> {
        self.execute(caller, ops, gathered, true).await
    }

    /// Executes a compound, and again as a new request while an operation returns DELAY or GRACE. An operation that has changed
    /// something is not repeated (RFC 8881 §15.1.1.3): then the caller gets the results, as on a soft mount after its time.
    async fn execute(
        &self,
        caller: &Caller,
        ops: &[Op],
        gathered: &[Bytes],
        cache_this: bool,
    ) -> Result<Results, OpError> {
        let (mut pause, end) = (DELAY_FIRST, self.retry_deadline());
        let shares = !cache_this && may_share(ops);
        loop {
            let results = match shares {
                true => self.shared_compound(caller, ops).await?,
                false => self.compound_with(caller, ops, gathered, cache_this).await?,
            };
            let completed = results.len().saturating_sub(1);
            if !ops.iter().take(completed).all(is_repeatable) {
                return match left_after(ops, completed) {
                    Some(left) if results.status() == Status::DELAY => {
                        self.finish_delayed(caller, results, &left).await
                    }
                    _ => Ok(results),
                };
            }
            match results.status() {
                Status::DELAY if self.engine.now() < end => {
                    self.engine.sleep(pause).await;
                    pause = (pause * 2).min(DELAY_MAX);
                }
                Status::GRACE => self.engine.sleep(GRACE_PAUSE).await,
                _ => return Ok(results),
            }
        }
    }

    /// Asks again for the attributes after an operation that has changed the file, while GETATTR returns DELAY. A server of 4.0 does not
    /// see that the caller has the file's delegation, and asks the holder by CB_GETATTR (RFC 7530 §10.4.3).
    async fn finish_delayed(
        &self,
        caller: &Caller,
        mut results: Results,
        left: &[Op],
    ) -> Result<Results, OpError> {
        let is_repeated = results.is_repeated;
        let mut done = results.take_results(results.len().saturating_sub(1));
        let (mut pause, end) = (DELAY_FIRST, self.retry_deadline());
        loop {
            self.engine.sleep(pause).await;
            pause = (pause * 2).min(DELAY_MAX);
            let mut results = self.compound_with(caller, left, &[], false).await?;
            if results.status() != Status::DELAY || self.engine.now() >= end {
                // Without that of PUTFH.
                let count = results.len();
                done.extend(results.take_results(count).into_iter().skip(1));
                return Ok(Results::new(results.status(), done, is_repeated));
            }
        }
    }

    /// Runs an operation with the stateid of an open file, and again after the open was replaced because the server had lost
    /// it. Without an open the stateid is the anonymous one.
    async fn with_stateid<T, F: Future<Output = Result<T, OpError>>>(
        &self,
        state: &OpenState,
        run: impl Fn(Stateid) -> F,
    ) -> Result<T, OpError> {
        let Some(file) = &state.file else { return run(Stateid::ANONYMOUS).await };
        let mut tries = self.tries(REOPENS_MAX);
        loop {
            let stateid = usable_stateid(file)?;
            let status = match run(stateid).await {
                Err(OpError::Status(status)) => status,
                outcome => return outcome,
            };
            if !tries.count() {
                return Err(OpError::Status(status));
            }
            match recovery(status) {
                Recovery::Retry => {}
                Recovery::Reopen => self.renew_open(file, stateid).await?,
                _ => return Err(OpError::Status(status)),
            }
        }
    }

    /// Checks whether a server of 4.0 that refuses a stateid still knows the client. If not, waits until state is reclaimed in the
    /// next session, and returns false. Later versions learn of a lost session by SEQUENCE.
    async fn is_lease_kept(&self) -> Result<bool, OpError> {
        if self.has_sessions() {
            return Ok(true);
        }
        let session = self.session().await?;
        match self.setup().renew(&session).await {
            Ok(_) => Ok(true),
            Err(OpError::Status(Status::BADSESSION)) => self.session().await.map(|_| false),
            Err(error) => Err(error),
        }
    }

    /// Opens a file again whose stateid the server refuses. The locks through it are lost.
    async fn renew_open(&self, file: &OpenFile, refused: Stateid) -> Result<(), OpError> {
        let session = self.session().await?;
        let renewed = {
            let mut owner = file.turn().await;
            if file.is_closed() {
                return Err(OpError::Status(Status::BAD_STATEID));
            }
            // Another operation, or the reclaiming after a restart, may have replaced it already.
            if file.io_stateid()? != refused {
                return Ok(());
            }
            self.replace_open(&session, file, &mut owner).await
        };
        match renewed {
            // The session was lost meanwhile. In the next one the file is reclaimed, which comes first.
            Err(OpError::Status(Status::BADSESSION)) => self.session().await.map(|_| ()),
            renewed => renewed,
        }
    }
}
