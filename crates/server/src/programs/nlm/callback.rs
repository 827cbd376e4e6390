//! Calls of this server to lock managers and status monitors of clients, as bytes.

use bytes::Bytes;
use protocol::nlm::{self, Res, Stats};
use protocol::nsm::{self, StateChange};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call, parse_reply};
use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::shared::Shared;
use crate::state::{CallKind, HostAnswer, PendingCall};

/// Encoded arguments.
struct Raw<'b>(&'b [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self.0);
    }
}

/// Results that are not read.
struct Ignored;

impl Decode for Ignored {
    fn decode(_: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

/// Returns the program and the version that a call is for.
pub(crate) fn program(call: &PendingCall) -> (u32, u32) {
    match &call.kind {
        CallKind::Granted(grant) => (nlm::PROGRAM, grant.version),
        CallKind::Result(_, (version, _), _) => (nlm::PROGRAM, *version),
        CallKind::Notify(..) => (nsm::PROGRAM, nsm::VERSION),
    }
}

/// Returns whether the client answers the call. Results of messages are not answered by all.
pub(crate) fn is_answered(call: &PendingCall) -> bool {
    !matches!(call.kind, CallKind::Result(..))
}

/// Encodes a call. Like Linux's server, this server calls as the superuser.
pub(crate) fn record(server: &Shared, call: &PendingCall) -> Bytes {
    let credential = OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"enfys"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    });
    let (program, version) = program(call);
    let xid = server.state.host_call_xid(call);
    let mut record = Writer::new();
    let mut encode = |procedure: u32, arguments: &[u8]| {
        let header = CallHeader {
            credential: credential.clone(),
            ..CallHeader::new(xid, program, version, procedure)
        };
        encode_call(&mut record, &header, &Raw(arguments));
    };
    match &call.kind {
        CallKind::Granted(grant) => encode(nlm::Proc::GRANTED.0, &grant.arguments),
        CallKind::Result(_, (_, procedure), arguments) => encode(*procedure, arguments),
        CallKind::Notify(..) => {
            let mon_name = Opaque::new(server.settings.host_name.clone()).unwrap_or_default();
            let change = StateChange { mon_name, state: server.state.monitor_state() };
            encode(nsm::Proc::NOTIFY.0, &xdr::to_bytes(&change));
        }
    }
    record.into_bytes()
}

/// Returns the meaning of a reply.
pub(crate) fn answer(call: &PendingCall, reply: Bytes) -> HostAnswer {
    match &call.kind {
        CallKind::Granted(_) => match parse_reply::<Res>(reply) {
            Ok(Res { stat: Stats::GRANTED, .. }) => HostAnswer::Taken,
            Ok(Res { stat: Stats::DENIED_GRACE_PERIOD, .. }) => HostAnswer::Later,
            Ok(_) => HostAnswer::Refused,
            // Its lock manager does not run, or does not know this server: no process gets the lock.
            Err(_) => HostAnswer::None { was_sent: false },
        },
        CallKind::Result(..) | CallKind::Notify(..) => match parse_reply::<Ignored>(reply) {
            Ok(Ignored) => HostAnswer::Taken,
            Err(_) => HostAnswer::None { was_sent: true },
        },
    }
}
