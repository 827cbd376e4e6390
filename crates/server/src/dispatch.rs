use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use protocol::nfs4::{PROC_COMPOUND, PROC_NULL};
use rpc::auth::{AuthFlavor, AuthStatus};
use rpc::message::{AcceptStatus, CallError, CallHeader, MessageType, ReplyHeader, encode_success, peek};
use tracing::{debug, info, warn};
use xdr::{Encode, Mark, Reader, Writer};

use crate::caller::CredentialError;
use crate::gss::{Creation, Entry, Gss, Sealing};
use crate::identity::Identity;
use crate::replay::crash_replay::{CallOwner, LoggedCall};
use crate::request::{Request, Served};
use crate::{Connection, Now, Operation, Registration, Server, Transport};

mod nlm;
mod once;
mod programs;
mod version2;
mod version3;

/// The action of the driver after [`Server::handle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Send the reply.
    Reply,
    /// Send nothing.
    Drop,
    /// Close the connection: its peer does not speak RPC, or must repeat a call over another connection.
    Close,
}

/// The outcome of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The action for the connection and the reply.
    pub disposition: Disposition,
    /// The operation that the record requested.
    pub operation: Operation,
    /// Whether the reply, if any, is a failure.
    pub is_error: bool,
}

impl Server {
    /// Returns all programs and versions that are served, except the port mapper.
    #[must_use]
    pub fn registrations(&self) -> Vec<Registration> {
        programs::registrations(&self.shared)
    }

    /// Returns whether datagrams to a port may call only the port mapper and the status monitor, which answer every sender alike. Otherwise
    /// the driver finds out who sends them.
    #[must_use]
    pub fn is_port_mapper_only(&self, udp_port: u16) -> bool {
        let is_portmap = udp_port == protocol::portmap::PORT;
        programs::is_for_every_sender(&self.shared, udp_port)
            && (is_portmap || !self.shared.settings.quotas_over_udp)
    }

    /// Serves one RPC record: appends the reply, without record mark, to `reply`, or leaves it unchanged.
    ///
    /// The future may be dropped at any time; the call then ends as if its reply were lost. Run it to its end even if the connection is
    /// closed: an NFSv4.1 client that repeats the call over another connection then finds its reply.
    pub async fn handle(
        &self,
        connection: &Arc<Connection>,
        now: Now,
        record: Bytes,
        reply: &mut Writer,
    ) -> Outcome {
        let (start, received) = (reply.mark(), record.len());
        if connection.outbox.is_used() && matches!(peek(&record), Ok((_, MessageType::REPLY))) {
            return self.replied(connection, record);
        }
        let mut reader = Reader::new(record);
        let mut header = match CallHeader::parse(&mut reader) {
            Ok(header) => header,
            Err(error) => return self.unreadable(connection, error, reply),
        };
        let (xid, procedure) = (header.xid, header.procedure);
        // Protection of the reply to a call of RPCSEC_GSS.
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
                entry => return self.refuse_gss(entry, xid, reply),
            }
        } else {
            let identified = connection.callers.lock().identify(&header.credential, &connection.owner);
            match identified {
                Ok(identity) => identity,
                // NULL does nothing: any caller may call it.
                Err(CredentialError::Claim(_)) if procedure == PROC_NULL => Identity::Anonymous,
                Err(error) => return self.refuse_credential(connection, now, xid, error, reply),
            }
        };
        let operation = match programs::select(&self.shared, &header, connection) {
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
                CallOwner { client: connection.peer.ip(), incarnation: 0, caller: identity.number() },
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
            Operation::Nfs2(_) => Box::pin(self.nfs2(&mut request, &header, reader, reply)).await,
            Operation::Nfs3(_) => self.nfs3(&mut request, &header, reader, reply).await,
            Operation::Nfs4(PROC_NULL) => Served::Done { is_error: false },
            Operation::Nfs4(PROC_COMPOUND) => {
                match crate::programs::nfs4::begin(&request, &header, reader, reply) {
                    crate::programs::nfs4::Begun::Done(served) => served,
                    crate::programs::nfs4::Begun::Waits(rest) => rest.await,
                }
            }
            Operation::Nfs4(_) => Served::NoProcedure,
            _ => Box::pin(self.serve_beside(operation, &request, &header, reader, reply)).await,
        };
        // This call may be the first that sees a revocation.
        crate::files::durable::wait_durable(&request).await;
        let call = Call { xid, operation, sealing: sealing.as_deref(), start };
        self.conclude(connection.transport, received, call, served, reply)
    }

    /// Serves a call of a program beside NFS.
    async fn serve_beside(
        &self,
        operation: Operation,
        request: &Request<'_>,
        header: &CallHeader,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        let (procedure, call) = (header.procedure, (header.version, header.procedure));
        match operation {
            Operation::Mount(_) => {
                crate::programs::mount::procedure(request, &self.mounts, call, arguments, reply).await
            }
            Operation::NfsAcl(_) => self.nfs_acl(request, header, arguments, reply).await,
            Operation::Nlm(_) => self.nlm(request, header, arguments, reply).await,
            Operation::Nsm(_) => crate::programs::nsm::procedure(request, procedure, arguments, reply),
            Operation::Portmap(_) => self.port_mapper(request, header, arguments, reply),
            Operation::Rquota(_) => crate::programs::rquota::procedure(request, call, arguments, reply).await,
            Operation::Nfs2(_) | Operation::Nfs3(_) | Operation::Nfs4(_) | Operation::None => {
                unreachable!("NFS is served by `handle`, and select names an operation")
            }
        }
    }

    /// Serves a call of the port mapper.
    fn port_mapper(
        &self,
        request: &Request<'_>,
        header: &CallHeader,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        let listed = programs::registrations(&self.shared);
        let (version, procedure) = (header.version, header.procedure);
        crate::programs::portmap::procedure(request, listed, version, procedure, arguments, reply)
    }

    /// Completes a reply according to the outcome of the call.
    fn conclude(
        &self,
        transport: Transport,
        received: usize,
        call: Call<'_>,
        served: Served,
        reply: &mut Writer,
    ) -> Outcome {
        let Call { xid, operation, sealing, start } = call;
        if transport == Transport::Udp && !may_send(operation, received, reply.length_since(start)) {
            return call.reject(AcceptStatus::SystemError, reply);
        }
        match served {
            Served::Done { .. } | Served::Later if sealing.is_some_and(|it| !it.finish(reply)) => {
                // RFC 2203 §5.3.3.4.2, §5.3.3.4.4: no reply. The client sees a closed connection.
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

    /// Answers a record that is not a call of RPC version 2.
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

    /// Handles a client's reply to a callback of this server. A reply to no known call (late, duplicate, or forged) is counted
    /// and dropped.
    fn replied(&self, connection: &Connection, record: Bytes) -> Outcome {
        let is_expected = self.shared.state.callback_replied(connection.id, &connection.outbox, record);
        if !is_expected {
            self.shared.metrics.malformed.fetch_add(1, Relaxed);
        }
        let (disposition, operation) = (Disposition::Drop, Operation::None);
        Outcome { disposition, operation, is_error: !is_expected }
    }

    /// Refuses a call of RPCSEC_GSS.
    #[cold]
    fn refuse_gss(&self, entry: Entry, xid: u32, reply: &mut Writer) -> Outcome {
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

    /// Serves a call that creates a security context (RFC 2203 §5.2), if its program is served.
    #[expect(clippy::too_many_arguments, reason = "the parts of a call")]
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
        let operation = match programs::select(&self.shared, header, connection) {
            Ok(operation) => operation,
            Err(status) => {
                self.shared.metrics.unserved.fetch_add(1, Relaxed);
                return call(Operation::None).reject(status, reply);
            }
        };
        let Some(status) = gss.create(now, xid, creation, arguments, reply).await else {
            self.shared.metrics.malformed.fetch_add(1, Relaxed);
            return call(operation).reject(AcceptStatus::GarbageArguments, reply);
        };
        let is_error = status.is_failure();
        if is_error && let Some(suppressed) = self.shared.throttle.admit(now) {
            let (peer, major, minor) = (connection.peer, status.major, status.minor);
            info!(%peer, major = format_args!("{major:#x}"), minor, suppressed, "RPCSEC_GSS: no security context");
        }
        Outcome { disposition: Disposition::Reply, operation, is_error }
    }

    /// Answers a call whose credential is refused.
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

/// Bytes of a reply over UDP for each byte of its call, for callers that have sent nothing that this server issued. Their addresses may be
/// forged, and the replies are then traffic that others did not ask for. RFC 9000 §8 has the same bound.
const AMPLIFICATION_MAX: usize = 3;

/// Returns whether a reply may be sent over UDP. Calls of NFS are not limited: READ and listings would be useless.
///
/// Their senders need a handle, but a handle is not bound to an address. A caller that has one can forge calls from every address that its
/// export admits. Each of these gets up to 32 KiB for a call of about 100 bytes. Other addresses get an error, which is shorter than its call.
/// The manual therefore tells administrators to limit exports over UDP by `clients`.
fn may_send(operation: Operation, received: usize, length: usize) -> bool {
    match operation {
        Operation::Mount(_) | Operation::Nsm(_) | Operation::Portmap(_) | Operation::Rquota(_) => {
            length <= AMPLIFICATION_MAX * received
        }
        Operation::Nfs2(_)
        | Operation::Nfs3(_)
        | Operation::Nfs4(_)
        | Operation::NfsAcl(_)
        | Operation::Nlm(_)
        | Operation::None => true,
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
    /// Replaces the reply by one without results.
    fn reject(self, status: AcceptStatus, reply: &mut Writer) -> Outcome {
        reply.rewind(self.start);
        match self.sealing {
            None => ReplyHeader::accepted(self.xid, status).encode(reply),
            Some(sealing) => sealing.reject(self.xid, status, reply),
        }
        Outcome { disposition: Disposition::Reply, operation: self.operation, is_error: true }
    }
}
