//! A client and its session: the client's engine creates them over one connection; they are destroyed after the measurement.
//!
//! The engine carries the calls before and after the measurement. In between, the load has the connection and the slots.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use client::config::{self, Config, Version};
use client::engine::{CallError, ConnectionId, Engine, RetryPolicy};
use client::error::OpError;
use client::raw::{RawSession, send_compound};
use net::transport::{Carrier, SystemClock};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::{Handle, Outcome as Answer, Stateid};
use tokio::net::TcpStream;

use super::component;
use super::slots::{Slots, all_well};
use crate::error::LoadError;
use crate::layout;
use crate::load::LoadPlan;
use crate::load::caller::CALL_TIMEOUT;
use crate::load::replies::REPLY_BYTES_MAX;
use crate::load::template::user;
use crate::operation::LARGE_BYTES;

/// A client and its session.
pub(crate) struct Session {
    engine: Arc<Engine>,
    connection: ConnectionId,
    raw: RawSession,
    slots: Rc<Slots>,
    minor_version: u32,
    /// Opens that last for the whole measurement, and are closed after it.
    open: Vec<(Handle, Stateid)>,
}

impl Session {
    /// Creates a client, and a session over `carrier`'s connection with as many slots as the plan's depth.
    pub(super) async fn open(
        carrier: &mut Carrier,
        plan: &LoadPlan,
        minor_version: u32,
    ) -> Result<Self, LoadError> {
        let first_xid = plan.xids.take(0);
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), first_xid));
        let policy = RetryPolicy { timeout: CALL_TIMEOUT, retries: Some(0), fails_fast: true };
        let connection =
            engine.open_connection(plan.server.port(), policy).map_err(|error| failed("connect", error))?;
        let config = session_config(
            &format!("enfys-bench-{}-{first_xid}", std::process::id()),
            minor_version,
            plan.shape.depth,
        );
        let opening =
            RawSession::open(Arc::clone(&engine), connection, Arc::new(config), CreateSessionFlags::empty());
        let raw = carrier.carry(&engine, connection, opening).await.map_err(|error| match error {
            OpError::Call(error) => failed("CREATE_SESSION", error),
            error => LoadError::wrong("CREATE_SESSION", error),
        })?;
        let slots = Rc::new(Slots::new(raw.id(), minor_version, raw.sequences()));
        Ok(Self { engine, connection, raw, slots, minor_version, open: Vec::new() })
    }

    /// Returns the slots that the server granted; at most as many as requested.
    pub(super) fn slots(&self) -> Rc<Slots> {
        Rc::clone(&self.slots)
    }

    /// Returns the number of slots.
    pub(crate) fn depth(&self) -> usize {
        self.slots.count()
    }

    /// Sends `operations` outside the measured window and returns their results.
    async fn call(
        &self,
        carrier: &mut Carrier,
        what: &str,
        operations: &[Op],
    ) -> Result<Vec<OpResult>, LoadError> {
        let (caller, sequence) = (config::Caller::sys(&user()), Some(self.slots.single()));
        let call =
            send_compound(&self.engine, self.connection, &caller, self.minor_version, sequence, operations);
        let result = carrier.carry(&self.engine, self.connection, call).await;
        let mut results = all_well(result.map_err(|error| failed(what, error))?)
            .map_err(|why| LoadError::wrong(what, why))?;
        results.remove(0);
        Ok(results)
    }

    /// Destroys the session and its client.
    async fn end(mut self, carrier: &mut Carrier) -> Result<(), LoadError> {
        for (handle, open_stateid) in std::mem::take(&mut self.open) {
            let close = Op::Close(CloseArgs { seqid: 0, open_stateid });
            self.call(carrier, "CLOSE", &[Op::PutFh(PutFhArgs { handle }), close]).await?;
        }
        let ended = carrier.carry(&self.engine, self.connection, self.raw.destroy()).await;
        ended.map_err(|error| LoadError::wrong("DESTROY_SESSION", error))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// Returns the configuration of a client whose sessions have this number of slots. Its name is new on every run, so that the
/// verifier does not matter.
#[must_use]
pub fn session_config(owner: &str, minor_version: u32, slots: u32) -> Config {
    Config {
        version: Version::ALL.into_iter().find(|version| version.minor() == Some(minor_version)),
        slots,
        read_size: LARGE_BYTES,
        write_size: LARGE_BYTES,
        ..Config::new("the server", owner.as_bytes(), [0; 8], config::Caller::sys(&user()))
    }
}

fn failed(what: &str, error: CallError) -> LoadError {
    match error {
        CallError::TimedOut => LoadError::Silent(what.to_owned()),
        CallError::Unreachable(error) => {
            LoadError::Connection(what.to_owned(), std::io::Error::other(error.to_string()))
        }
        error => LoadError::wrong(what, error),
    }
}

/// Returns a carrier of the calls around the measurement.
pub(super) fn carrier(stream: TcpStream) -> Carrier {
    Carrier::new(stream, REPLY_BYTES_MAX)
}

/// Destroys each session on the connection with the same index.
pub(crate) async fn end_all(sessions: Vec<Session>, streams: Vec<TcpStream>) -> Result<(), LoadError> {
    for (session, stream) in sessions.into_iter().zip(streams) {
        session.end(&mut carrier(stream)).await?;
    }
    Ok(())
}

/// Tools for a workload's preparation.
pub(super) struct Setup<'a> {
    /// Number of the connection, from 0.
    pub(super) connection: u32,
    pub(super) session: &'a mut Session,
    plan: &'a LoadPlan,
    carrier: &'a mut Carrier,
}

impl<'a> Setup<'a> {
    pub(super) fn new(
        plan: &'a LoadPlan,
        connection: u32,
        carrier: &'a mut Carrier,
        session: &'a mut Session,
    ) -> Self {
        Self { connection, session, plan, carrier }
    }

    /// Calls inside the session.
    pub(super) async fn call(&mut self, what: &str, operations: Vec<Op>) -> Result<Vec<OpResult>, LoadError> {
        self.session.call(self.carrier, what, &operations).await
    }

    /// Returns the handle of `name` in the directory of the measurement.
    pub(super) async fn find(&mut self, name: &str) -> Result<Handle, LoadError> {
        let export = self.plan.export.split('/').filter(|part| !part.is_empty());
        let path = export.chain([layout::DIRECTORY, name]);
        let lookups = path.map(|part| Op::Lookup(LookupArgs { name: component(part) }));
        let operations = std::iter::once(Op::PutRootFh).chain(lookups).chain([Op::GetFh]).collect();
        let results = self.call(&format!("LOOKUP {name}"), operations).await?;
        match results.last() {
            Some(OpResult::GetFh(Answer::Ok(handle))) => Ok(*handle),
            _ => Err(unexpected("GETFH", &results)),
        }
    }

    /// Registers the open of the file `handle` for a CLOSE after the measurement.
    pub(super) fn close_later(&mut self, handle: Handle, open: Stateid) {
        self.session.open.push((handle, open));
    }
}

/// Results of the right status and the wrong kind.
pub(super) fn unexpected(what: &str, results: &[OpResult]) -> LoadError {
    LoadError::wrong(what, format!("results {results:?}"))
}
