//! Creation of many files in version 4.0. It has no current stateid, so that a file cannot be opened and written in one compound: some
//! compounds open files, each with an owner of its own (RFC 7530 §9.1.7), and others write and close them. New owners are confirmed
//! in between (§16.18); the client keeps owners, so that later files need no OPEN_CONFIRM.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, OpenResultFlags, ShareDeny};
use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::types::{Component, Handle, Stateid, Status};

use super::super::Nfs4;
use super::super::batch::{Item, ItemOutcome, SPREAD};
use super::super::convert::{component, set_attributes};
use super::super::getattr::get_attributes;
use super::super::open_args::{Wanted, granted, open_owner, share_access};
use super::super::session::Session;
use super::super::statuses::{Recovery, recovery};
use super::super::wire::{Results, put, take};
use super::many::{REPLY, REQUEST, take_written, write_ops};
use crate::attributes::SetAttributes;
use crate::config::Caller;
use crate::error::OpError;
use crate::many::NewFile;
use crate::opens::OpenMode;
use crate::owner::Owner;
use crate::results::{FileHandle, Object};

/// Maximum number of files that are open at a time.
const OPEN_MAX: usize = 1024;

/// The outcome of a file; `None` if it must be written by single operations, which recover lost state.
type WriteOutcome = Option<Result<Object, OpError>>;

/// A file that is written.
struct Job {
    directory: FileHandle,
    name: Component,
    mode: u32,
    data: Bytes,
    set: SetAttributes,
    owner: Owner,
    state: State,
    /// The delegation that the server has granted unasked; it is returned with the CLOSE.
    delegation: Option<Stateid>,
    outcome: WriteOutcome,
}

/// The state of a file at the server.
#[derive(Clone, Copy)]
enum State {
    New,
    Unconfirmed(Handle, Stateid),
    Open(Handle, Stateid),
    /// It failed while it was open.
    LeftOpen(Handle, Stateid),
    Closed,
}

impl Job {
    fn fail(&mut self, error: OpError) {
        self.state = match self.state {
            State::Open(handle, stateid) => State::LeftOpen(handle, stateid),
            _ => State::Closed,
        };
        let is_final = match &error {
            OpError::Status(status) => *status != Status::BAD_SEQID && recovery(*status) == Recovery::Fail,
            OpError::Call(_) | OpError::BadReply(_) => true,
            _ => false,
        };
        self.outcome = is_final.then_some(Err(error));
    }

    fn open_item(&self, session: &Session) -> Item {
        let set = SetAttributes { size: Some(0), ..SetAttributes::with_mode(self.mode) };
        let open = Op::Open(OpenArgs {
            seqid: 0,
            share_access: share_access(OpenMode::WRITE, 0, Wanted::NONE),
            share_deny: ShareDeny::empty(),
            owner: open_owner(session.client_id, self.owner.number()),
            how: OpenHow::Create(CreateHow::Unchecked(set_attributes(&set))),
            claim: OpenClaim::Null(self.name.clone()),
        });
        let ops = vec![put(self.directory), open, Op::GetFh];
        Item { ops, request: REQUEST + self.name.len(), reply: REPLY }
    }

    fn take_opened(&mut self, outcome: ItemOutcome) {
        let opened = outcome.and_then(|mut results| {
            results.skip()?;
            let opened = take!(results, Open)?;
            Ok((opened, take!(results, GetFh)?))
        });
        match opened {
            Ok((opened, handle)) if opened.flags.contains(OpenResultFlags::CONFIRM) => {
                self.state = State::Unconfirmed(handle, opened.stateid);
            }
            Ok((opened, handle)) => {
                self.state = State::Open(handle, opened.stateid);
                self.delegation = granted(&opened.delegation).map(|granted| granted.stateid);
            }
            Err(error) => self.fail(error),
        }
    }

    fn take_confirmed(&mut self, handle: Handle, outcome: ItemOutcome) {
        let confirmed = outcome.and_then(|mut results| {
            results.skip()?;
            take!(results, OpenConfirm)
        });
        match confirmed {
            Ok(stateid) => self.state = State::Open(handle, stateid),
            Err(error) => self.fail(error),
        }
    }

    fn write_item(&self, handle: Handle, stateid: Stateid) -> Result<Item, OpError> {
        let mut ops = vec![put(handle)];
        ops.extend(write_ops(stateid, &self.data, &self.set)?);
        ops.extend([get_attributes(), close(stateid)]);
        ops.extend(self.give_back());
        Ok(Item { ops, request: REQUEST + self.data.len(), reply: REPLY })
    }

    /// DELEGRETURN, if there is a delegation.
    fn give_back(&self) -> Option<Op> {
        self.delegation.map(|stateid| Op::DelegReturn(DelegReturnArgs { stateid }))
    }

    fn take_closed(&mut self, handle: Handle, outcome: ItemOutcome) {
        let written = outcome.and_then(|mut results: Results| {
            results.skip()?;
            let attributes = take_written(&mut results, self.data.len(), &self.set)?;
            take!(results, Close)?;
            Ok(Object { handle, attributes })
        });
        match written {
            Ok(object) => (self.state, self.outcome) = (State::Closed, Some(Ok(object))),
            Err(error) => self.fail(error),
        }
    }
}

/// CLOSE of a file with this stateid; the batch sets the seqid.
fn close(open_stateid: Stateid) -> Op {
    Op::Close(CloseArgs { seqid: 0, open_stateid })
}

impl Nfs4 {
    /// Creates files with all their data, which are stable afterwards. If the caller drops the future, the files that are open are
    /// written and closed.
    pub(crate) async fn write_many_v40(
        self: &Arc<Self>,
        caller: &Caller,
        files: &[NewFile<'_>],
    ) -> Vec<WriteOutcome> {
        let mut outcomes = Vec::with_capacity(files.len());
        for part in files.chunks(OPEN_MAX) {
            let session = match self.session().await {
                Ok(session) => session,
                Err(error) => {
                    outcomes.extend(part.iter().map(|_| Some(Err(error.clone()))));
                    continue;
                }
            };
            let jobs = part.iter().map(|file| self.job(file)).collect();
            let (nfs4, caller) = (Arc::clone(self), caller.clone());
            let written = async move { nfs4.write_jobs(&session, &caller, jobs).await };
            outcomes.extend(self.background.guard(written, async |_| {}).await);
        }
        outcomes
    }

    /// `None` if the name is not valid; the single operation tells the reason.
    fn job(&self, file: &NewFile<'_>) -> Option<Job> {
        Some(Job {
            directory: file.directory,
            name: component(file.name).ok()?,
            mode: file.mode,
            data: file.data.clone(),
            set: file.set,
            owner: self.opens.take_owner(),
            state: State::New,
            delegation: None,
            outcome: None,
        })
    }

    async fn write_jobs(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        mut all: Vec<Option<Job>>,
    ) -> Vec<WriteOutcome> {
        let mut jobs: Vec<&mut Job> = all.iter_mut().flatten().collect();
        let open = |job: &Job| Ok(Some(job.open_item(session)));
        self.step(session, caller, &mut jobs, SPREAD, open, Job::take_opened).await;
        let confirm = |job: &Job| match job.state {
            State::Unconfirmed(handle, open_stateid) => {
                let confirm = Op::OpenConfirm(OpenConfirmArgs { open_stateid, seqid: 0 });
                Ok(Some(Item { ops: vec![put(handle), confirm], request: REQUEST, reply: REPLY }))
            }
            _ => Ok(None),
        };
        let confirmed = |job: &mut Job, outcome| {
            if let State::Unconfirmed(handle, _) = job.state {
                job.take_confirmed(handle, outcome);
            }
        };
        self.step(session, caller, &mut jobs, 1, confirm, confirmed).await;
        let write = |job: &Job| match job.state {
            State::Open(handle, stateid) => job.write_item(handle, stateid).map(Some),
            _ => Ok(None),
        };
        let written = |job: &mut Job, outcome| {
            if let State::Open(handle, _) = job.state {
                job.take_closed(handle, outcome);
            }
        };
        self.step(session, caller, &mut jobs, SPREAD, write, written).await;
        let left = |job: &Job| match job.state {
            State::LeftOpen(handle, stateid) if job.owner.is_known() => {
                let ops = [put(handle), close(stateid)].into_iter().chain(job.give_back()).collect();
                Ok(Some(Item { ops, request: REQUEST, reply: REPLY }))
            }
            _ => Ok(None),
        };
        // The file has failed already: the result of CLOSE does not matter.
        self.step(session, caller, &mut jobs, 1, left, |job, _| job.state = State::Closed).await;
        let outcome = |job: Job| {
            self.opens.free_owner(job.owner);
            job.outcome
        };
        all.into_iter().map(|job| job.and_then(outcome)).collect()
    }

    /// Executes an item for each job that has one, spread over some compounds, and gives the job its outcome.
    async fn step(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        jobs: &mut [&mut Job],
        spread: usize,
        item: impl Fn(&Job) -> Result<Option<Item>, OpError>,
        take: impl Fn(&mut Job, ItemOutcome),
    ) {
        let (mut numbers, mut items) = (Vec::new(), Vec::new());
        for (at, job) in jobs.iter_mut().enumerate() {
            match item(job) {
                Ok(Some(item)) => {
                    numbers.push(at);
                    items.push((item, job.owner.seqid));
                }
                Ok(None) => {}
                Err(error) => job.fail(error),
            }
        }
        let (outcomes, seqids) = self.batch_as(session, caller, items, spread).await;
        for ((at, outcome), seqid) in numbers.into_iter().zip(outcomes).zip(seqids) {
            jobs[at].owner.seqid = seqid;
            take(jobs[at], outcome);
        }
    }
}
