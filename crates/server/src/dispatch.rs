use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use protocol::nfs4::{PROC_COMPOUND, PROC_NULL};
use rpc::auth::{AuthFlavor, AuthStatus};
use rpc::message::{
    AcceptStatus, CallError, CallHeader, MessageType, ReplyHeader, VersionRange, encode_success, peek,
};
use tracing::{debug, info, warn};
use xdr::{Encode, Mark, Reader, Writer};

use crate::caller::CredentialError;
use crate::gss::{Creation, Entry, Gss, Sealing};
use crate::identity::Identity;
use crate::replay::crash_replay::{CallOwner, LoggedCall};
use crate::request::{Request, Served};
use crate::{Connection, Now, Operation, Server, Transport, Versions};

mod version3;

/// What the transport does after [`Server::handle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Sends what was written.
    Reply,
    /// Sends nothing.
    Drop,
    /// Closes the connection: what comes over it is not RPC, or a call that is not answered now has to come again over another
    /// one.
    Close,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// What to do now.
    pub disposition: Disposition,
    /// What it was.
    pub operation: Operation,
    /// Whether the answer, if any, says failure.
    pub is_error: bool,
}

/// RPC program numbers (RFC 1813 §2.1, §5; RFC 1833 §2).
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const PORTMAP: u32 = 100_000;
/// The side protocol for ACLs beside version 3.
const NFSACL: u32 = protocol::nfsacl::PROGRAM;

/// The port mapper's port (RFC 1833 §2.1).
const PORTMAP_PORT: u16 = protocol::portmap::PORT;

impl Server {
    /// Serves one RPC record: appends the reply, without record mark, to `reply`, or leaves it as it was.
    ///
    /// The future may be dropped at any time; a call that is cut off is then as if its reply were lost. Where it is run to
    /// its end although the connection is gone, an NFSv4.1 client that repeats the call over another finds its reply.
    pub async fn handle(
        &self,
        connection: &Arc<Connection>,
        now: Now,
        record: Bytes,
        reply: &mut Writer,
    ) -> Outcome {
        let start = reply.mark();
        if connection.outbox.is_used() && matches!(peek(&record), Ok((_, MessageType::REPLY))) {
            return self.replied(connection, record);
        }
        let mut reader = Reader::new(record);
        let mut header = match CallHeader::parse(&mut reader) {
            Ok(header) => header,
            Err(error) => return self.unreadable(connection, error, reply),
        };
        let (xid, procedure) = (header.xid, header.procedure);
        // What a call of RPCSEC_GSS has beside the others.
        let mut sealing = None;
        let identity = if header.credential.flavor == AuthFlavor::RPCSEC_GSS
            && let Some(gss) = &self.shared.gss
        {
            match gss.enter(now, &mut header, &mut reader) {
                Entry::Call(identity, protection) => {
                    sealing = Some(protection);
                    identity
                }
                Entry::Creation(creation) => {
                    return Box::pin(
                        self.create_context(gss, connection, now, &header, creation, reader, reply),
                    )
                    .await;
                }
                entry => return self.turn_away(entry, xid, reply),
            }
        } else {
            let identified = connection.callers.lock().identify(&header.credential, &connection.owner);
            match identified {
                Ok(identity) => identity,
                // NULL does nothing, for anybody.
                Err(CredentialError::Claim(_)) if procedure == PROC_NULL => Identity::Anonymous,
                Err(error) => return self.refuse_credential(connection, now, xid, error, reply),
            }
        };
        let operation = match self.select(&header, connection) {
            Ok(operation) => operation,
            Err(status) => {
                self.shared.metrics.unserved.fetch_add(1, Relaxed);
                let (operation, sealing) = (Operation::None, sealing.as_deref());
                return Call { xid, operation, sealing, start }.reject(status, reply);
            }
        };
        let is_compound = operation == Operation::Nfs4(PROC_COMPOUND);
        let mut request = Request {
            server: &self.shared,
            connection,
            now,
            logged: LoggedCall::new(
                CallOwner { client: connection.peer.ip(), caller: identity.number() },
                now.wall,
            ),
            identity,
            exports: self.shared.exports.load(),
            arguments: if is_compound { reader.unread() } else { Bytes::new() },
            is_too_weak: AtomicBool::new(false),
            may_splice: connection.can_splice && sealing.as_ref().is_none_or(|it| it.leaves_plain()),
            reply_overhead: sealing.as_ref().map_or(0, |it| it.overhead()),
        };
        match &mut sealing {
            None => encode_success(reply, xid),
            Some(sealing) => sealing.begin(xid, reply),
        }
        let served = match operation {
            Operation::Nfs3(_) => self.nfs3(&mut request, &header, reader, reply).await,
            Operation::Nfs4(PROC_NULL) => Served::Done { is_error: false },
            Operation::Nfs4(PROC_COMPOUND) => {
                match crate::programs::nfs4::begin(&request, &header, reader, reply) {
                    crate::programs::nfs4::Begun::Done(served) => served,
                    crate::programs::nfs4::Begun::Waits(rest) => rest.await,
                }
            }
            Operation::Nfs4(_) => Served::NoProcedure,
            Operation::Mount(_) => {
                Box::pin(crate::programs::mount::procedure(&request, &self.mounts, procedure, reader, reply))
                    .await
            }
            Operation::NfsAcl(_) => Box::pin(self.nfs_acl(&request, &header, reader, reply)).await,
            Operation::Portmap(_) => {
                crate::programs::portmap::procedure(&request, header.version, procedure, reader, reply)
            }
            Operation::None => unreachable!("select names an operation"),
        };
        // Something was taken from a client, and this call may be the first to see that.
        crate::files::durable::wait_durable(&request).await;
        let sealing = sealing.as_deref();
        self.conclude(Call { xid, operation, sealing, start }, served, reply)
    }

    /// Ends a reply, as what became of the call has it.
    fn conclude(&self, call: Call<'_>, served: Served, reply: &mut Writer) -> Outcome {
        let Call { xid, operation, sealing, start } = call;
        match served {
            Served::Done { .. } | Served::Later if sealing.is_some_and(|it| !it.finish(reply)) => {
                // RFC 2203 §5.3.3.4.2, §5.3.3.4.4: no answer; the client finds a connection that does not work.
                reply.rewind(start);
                Outcome { disposition: Disposition::Close, operation, is_error: true }
            }
            Served::Done { is_error } => Outcome { disposition: Disposition::Reply, operation, is_error },
            Served::Later => Outcome { disposition: Disposition::Reply, operation, is_error: true },
            Served::GarbageArguments => {
                self.shared.metrics.malformed.fetch_add(1, Relaxed);
                if let Some(counts) = self.shared.metrics.call(operation) {
                    counts.count(true);
                }
                call.reject(AcceptStatus::GarbageArguments, reply)
            }
            Served::TooWeak => {
                reply.rewind(start);
                // RFC 5531 §9: AUTH_TOOWEAK, "rejected for security reasons".
                self.refuse(&ReplyHeader::auth_error(xid, AuthStatus::TOOWEAK), reply)
            }
            Served::NoProcedure => {
                self.shared.metrics.unserved.fetch_add(1, Relaxed);
                call.reject(AcceptStatus::ProcedureUnavailable, reply)
            }
            Served::Drop => {
                reply.rewind(start);
                Outcome { disposition: Disposition::Drop, operation, is_error: false }
            }
            Served::Close => {
                reply.rewind(start);
                Outcome { disposition: Disposition::Close, operation, is_error: false }
            }
        }
    }

    /// A record that is no call, or none of a version of RPC that is spoken here.
    #[cold]
    fn unreadable(&self, connection: &Connection, error: CallError, reply: &mut Writer) -> Outcome {
        match error {
            CallError::Unanswerable(why) => {
                debug!(peer = %connection.peer, "record dropped: {why}");
                self.shared.metrics.malformed.fetch_add(1, Relaxed);
                let (disposition, operation) = (Disposition::Close, Operation::None);
                Outcome { disposition, operation, is_error: true }
            }
            CallError::Refused(header) => self.refuse(&header, reply),
        }
    }

    /// An answer to a call of ours. What answers nothing (late, doubled, or made up) is let pass: it costs no memory.
    fn replied(&self, connection: &Connection, record: Bytes) -> Outcome {
        let is_expected = self.shared.state.replied(connection.id, &connection.outbox, record);
        if !is_expected {
            self.shared.metrics.malformed.fetch_add(1, Relaxed);
        }
        let (disposition, operation) = (Disposition::Drop, Operation::None);
        Outcome { disposition, operation, is_error: !is_expected }
    }

    /// Finds what a call is for, or why nothing here serves it.
    fn select(&self, header: &CallHeader, connection: &Connection) -> Result<Operation, AcceptStatus> {
        let mismatch = |low, high| Err(AcceptStatus::ProgramMismatch(VersionRange { low, high }));
        // The port mapper's port is for the port mapper. Datagrams above all: their source can be forged, so that `clients`
        // would mean nothing and long answers would go to somebody who never asked; and RFC 8881 §2.9.1 forbids NFSv4.1
        // over UDP.
        let is_port_mapper =
            connection.transport == Transport::Udp || connection.local.port() == PORTMAP_PORT;
        if is_port_mapper && self.shared.settings.portmap.is_some() && header.program != PORTMAP {
            return Err(AcceptStatus::ProgramUnavailable);
        }
        match (header.program, header.version) {
            (NFS, version) => match (version, self.shared.settings.versions.program_versions()) {
                (_, None) => Err(AcceptStatus::ProgramUnavailable),
                (3, Some((3, _))) => Ok(Operation::Nfs3(header.procedure)),
                (4, Some((_, 4))) => Ok(Operation::Nfs4(header.procedure)),
                (_, Some((low, high))) => mismatch(low, high),
            },
            (MOUNT, 3) => Ok(Operation::Mount(header.procedure)),
            (MOUNT, _) => mismatch(3, 3),
            (NFSACL, version) if self.shared.settings.versions.contains(Versions::V3) => match version {
                protocol::nfsacl::VERSION => Ok(Operation::NfsAcl(header.procedure)),
                _ => mismatch(protocol::nfsacl::VERSION, protocol::nfsacl::VERSION),
            },
            (PORTMAP, _) if self.shared.settings.portmap.is_none() => Err(AcceptStatus::ProgramUnavailable),
            (PORTMAP, 2..=4) => Ok(Operation::Portmap(header.procedure)),
            (PORTMAP, _) => mismatch(2, 4),
            _ => Err(AcceptStatus::ProgramUnavailable),
        }
    }

    /// A call of RPCSEC_GSS that is not served.
    #[cold]
    fn turn_away(&self, entry: Entry, xid: u32, reply: &mut Writer) -> Outcome {
        let (operation, start) = (Operation::None, reply.mark());
        match entry {
            Entry::Denied(status) => self.refuse(&ReplyHeader::auth_error(xid, status), reply),
            Entry::Garbage(sealing) => {
                self.shared.metrics.malformed.fetch_add(1, Relaxed);
                let call = Call { xid, operation, sealing: Some(&sealing), start };
                call.reject(AcceptStatus::GarbageArguments, reply)
            }
            _ => Outcome { disposition: Disposition::Drop, operation, is_error: true },
        }
    }

    /// A call that makes a security context (RFC 2203 §5.2): to a program that is served here.
    #[expect(clippy::too_many_arguments, reason = "all that a call is")]
    async fn create_context(
        &self,
        gss: &Gss,
        connection: &Connection,
        now: Now,
        header: &CallHeader,
        creation: Creation,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Outcome {
        let (xid, start) = (header.xid, reply.mark());
        let call = |operation| Call { xid, operation, sealing: None, start };
        let operation = match self.select(header, connection) {
            Ok(operation) => operation,
            Err(status) => {
                self.shared.metrics.unserved.fetch_add(1, Relaxed);
                return call(Operation::None).reject(status, reply);
            }
        };
        let Some(said) = gss.create(now, xid, creation, arguments, reply).await else {
            self.shared.metrics.malformed.fetch_add(1, Relaxed);
            return call(operation).reject(AcceptStatus::GarbageArguments, reply);
        };
        let is_error = said.is_failure();
        if is_error && let Some(suppressed) = self.shared.throttle.admit(now) {
            let (peer, major, minor) = (connection.peer, said.major, said.minor);
            info!(%peer, major = format_args!("{major:#x}"), minor, suppressed, "RPCSEC_GSS: no security context");
        }
        Outcome { disposition: Disposition::Reply, operation, is_error }
    }

    /// Answers a call whose credential is nobody's.
    #[cold]
    fn refuse_credential(
        &self,
        connection: &Connection,
        now: Now,
        xid: u32,
        error: CredentialError,
        reply: &mut Writer,
    ) -> Outcome {
        if let CredentialError::Claim(why) = error
            && connection.is_first_refusal()
            && let Some(suppressed) = self.shared.throttle.admit(now)
        {
            warn!(peer = %connection.peer, suppressed, "calls refused: {why}");
        }
        self.refuse(&ReplyHeader::auth_error(xid, error.status()), reply)
    }

    /// Answers a call whose header is refused.
    fn refuse(&self, header: &ReplyHeader, reply: &mut Writer) -> Outcome {
        self.shared.metrics.refused.fetch_add(1, Relaxed);
        header.encode(reply);
        Outcome { disposition: Disposition::Reply, operation: Operation::None, is_error: true }
    }
}

/// A call whose reply is being written.
#[derive(Clone, Copy)]
struct Call<'c> {
    xid: u32,
    operation: Operation,
    sealing: Option<&'c Sealing>,
    /// Where the reply begins.
    start: Mark,
}

impl Call<'_> {
    /// Replaces what was written by an answer without results.
    fn reject(self, status: AcceptStatus, reply: &mut Writer) -> Outcome {
        reply.rewind(self.start);
        match self.sealing {
            None => ReplyHeader::accepted(self.xid, status).encode(reply),
            Some(sealing) => sealing.reject(self.xid, status, reply),
        }
        Outcome { disposition: Disposition::Reply, operation: self.operation, is_error: true }
    }
}
