//! Calls of versions 2 and 3, and of the programs beside them: headers, transaction IDs, and a bound for those in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use protocol::nfs4::types::Status;
use rpc::message::{CallHeader, encode_call, parse_reply};
use xdr::Decode;

use crate::config::{Caller, Config};
use crate::engine::{CallError, Completion, ConnectionId, Engine, Label, RetryPolicy};
use crate::error::OpError;
use crate::permits::{Permit, Permits};
use crate::record::RecordWriter;
use crate::url::Transport;

/// A procedure of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Procedure {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) number: u32,
}

impl Procedure {
    /// Returns the label under which calls are counted.
    pub(crate) fn label(self) -> Label {
        let Self { program, version, number } = self;
        Label { program, version, number }
    }
}

/// The results of a call.
#[derive(Debug)]
pub(crate) struct Replied<T> {
    /// Results, or the status of a failure.
    pub(crate) result: Result<T, Status>,
    /// Whether the server may have executed the call before, because it was sent more than once. A server without the reply
    /// in its cache has executed it again.
    pub(crate) is_repeated: bool,
}

impl<T> Replied<T> {
    /// Returns whether the operation failed with this status, and was possibly executed before.
    pub(crate) fn is_repeated_with(&self, status: Status) -> bool {
        self.is_repeated && self.result.as_ref().err() == Some(&status)
    }

    /// Converts the results.
    ///
    /// # Errors
    /// That of `convert`.
    pub(crate) fn try_map<U>(
        self,
        convert: impl FnOnce(T) -> Result<U, OpError>,
    ) -> Result<Replied<U>, OpError> {
        let Self { result, is_repeated } = self;
        let result = match result {
            Ok(results) => Ok(convert(results)?),
            Err(status) => Err(status),
        };
        Ok(Replied { result, is_repeated })
    }
}

/// Holds the permit of a call until the reply.
pub(crate) struct HeldPermit(pub(crate) Permit);

impl Completion for HeldPermit {
    fn complete(self: Box<Self>, _outcome: Option<&Result<Bytes, CallError>>) {
        drop(self.0);
    }
}

/// Opens a connection of this kind.
///
/// # Errors
/// As [`Engine::open_connection`].
pub(crate) fn open_connection(
    engine: &Engine,
    transport: Transport,
    port: u16,
    policy: RetryPolicy,
) -> Result<ConnectionId, CallError> {
    match transport {
        Transport::Tcp => engine.open_connection(port, policy),
        Transport::Udp => engine.open_datagrams(port, policy),
    }
}

/// Begins a record with the header of a call.
pub(crate) fn start_record(xid: u32, caller: &Caller, procedure: Procedure) -> RecordWriter {
    let Procedure { program, version, number } = procedure;
    let header = CallHeader {
        credential: caller.credential().clone(),
        ..CallHeader::new(xid, program, version, number)
    };
    let mut record = RecordWriter::default();
    encode_call(record.writer(), &header, &());
    record
}

/// The calls of one server's NFS.
pub(crate) struct Calls {
    pub(crate) engine: Arc<Engine>,
    pub(crate) connections: Vec<ConnectionId>,
    next_connection: AtomicUsize,
    permits: Arc<Permits>,
}

impl Calls {
    pub(crate) fn new(engine: Arc<Engine>, config: &Config, connections: Vec<ConnectionId>) -> Self {
        let permits = Arc::new(Permits::new(config.v3_calls as usize));
        Self { engine, connections, next_connection: AtomicUsize::new(0), permits }
    }

    /// Calls NULL, which every version has.
    pub(crate) async fn null(&self, program: u32, version: u32) -> Result<(), OpError> {
        let (caller, null) = (Caller::anonymous(), Procedure { program, version, number: 0 });
        let call = self.engine.call(self.connections[0], |xid| start_record(xid, &caller, null).finish());
        Ok(parse_reply(call.await?)?)
    }

    /// Calls a procedure. Returns its results, and whether the call was sent more than once.
    pub(crate) async fn call<T: Decode>(
        &self,
        caller: &Caller,
        procedure: Procedure,
        encode: impl FnOnce(&mut RecordWriter),
    ) -> Result<(T, bool), OpError> {
        let began = self.engine.now();
        let (permit, has_waited) = self.permits.take_and_tell().await;
        if has_waited {
            self.engine.note_wait(began);
        }
        let held = Box::new(HeldPermit(permit));
        let mut call = self.engine.call_labelled(self.pick_connection(), procedure.label(), held, |xid| {
            let mut record = start_record(xid, caller, procedure);
            encode(&mut record);
            record.finish()
        });
        let record = (&mut call).await?;
        Ok((parse_reply(record)?, call.transmissions() > 1))
    }

    /// Returns the number of calls in flight, and of those that had to wait for others.
    pub(crate) fn usage(&self) -> (usize, usize) {
        self.permits.usage()
    }

    fn pick_connection(&self) -> ConnectionId {
        let next = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections[next % self.connections.len()]
    }
}
