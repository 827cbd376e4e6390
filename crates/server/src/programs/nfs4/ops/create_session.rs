//! CREATE_SESSION (RFC 8881 §18.36).

use protocol::nfs4::ops::backchannel::CallbackSecParms;
use protocol::nfs4::ops::session::{CreateSessionArgs, CreateSessionFlags};
use protocol::nfs4::types::{OpNum, Status};
use tracing::debug;
use xdr::{Decode, Encode, Reader, Writer};

use super::backchannel_ctl::has_contexts;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::CreateSession;

/// The defined flags.
const KNOWN: CreateSessionFlags = CreateSessionFlags::PERSIST
    .union(CreateSessionFlags::CONN_BACK_CHAN)
    .union(CreateSessionFlags::CONN_RDMA);

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = CreateSessionArgs::decode(arguments)?;
    if !KNOWN.contains(arguments.flags) {
        return Err(Status::INVAL.into());
    }
    // If the client offers another flavor as well, callbacks use that one and do not need the context. As in Linux's server and
    // NFS-Ganesha, the session then does not fail.
    let is_gss = |parms: &CallbackSecParms| matches!(parms, CallbackSecParms::Gss(_));
    let needs_context = arguments.sec_parms.iter().all(is_gss);
    let by = compound.credential();
    compound.state().admit_to_client(OpNum::CREATE_SESSION, arguments.client_id, &by)?;
    let created = compound.state().create_session(
        compound.now(),
        &CreateSession {
            client_id: arguments.client_id,
            sequence: arguments.sequence,
            flags: arguments.flags,
            fore_channel: &arguments.fore_channel,
            back_channel: &arguments.back_channel,
            callback_program: arguments.callback_program,
            security: &arguments.sec_parms,
            lacks_context: needs_context && !has_contexts(compound, &arguments.sec_parms),
            minor: compound.minor,
            principal: &by.principal,
            connection: compound.request.connection.id,
            outbox: Some(&compound.request.connection.outbox),
        },
    )?;
    let request = compound.request;
    let slots = created.fore_channel.max_requests;
    debug!(client = format_args!("{:#x}", arguments.client_id), slots, "session created");
    let client =
        compound.state().note_client_address(arguments.client_id, request.connection.peer, compound.minor);
    client.iter().for_each(|client| compound.log_confirmed(client));
    if created.flags.contains(CreateSessionFlags::PERSIST) {
        // The session must be durable before the reply.
        request.logged.set_must_sync();
    }
    created.encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::HasStatus;

    use super::*;
    use crate::testing::{Lab, channel, lab, session_args};

    #[test]
    fn grants_hundreds_of_slots() {
        let mut lab = lab();
        let mut other = Lab::without_session(lab.server.clone(), 9);
        let id = other.exchange(b"many");
        let mut fore = channel();
        fore.max_requests = 512;
        let created = other.create_session(&id, fore);
        // The paper of 2015 saw threads of one client wait for slots at 160 threads.
        assert_eq!(created.fore_channel.max_requests, 512);
        assert_ne!(created.session_id, lab.session);
        assert_eq!(lab.status(vec![]), Status::OK, "the other session is not touched");
    }

    #[test]
    fn refuses_unknown_clients_and_flags() {
        let mut lab = lab();
        let id = lab.exchange(b"new");
        let args = |client_id, flags| {
            let flags = CreateSessionFlags::from_bits_retain(flags);
            Op::CreateSession(CreateSessionArgs { flags, ..session_args(client_id, id.sequence_id) })
        };
        assert_eq!(lab.alone(args(id.client_id ^ 1 << 40, 0)).status(), Status::STALE_CLIENTID);
        assert_eq!(lab.alone(args(id.client_id, 8)).status(), Status::INVAL);
        assert_eq!(lab.alone(args(id.client_id, 0)).status(), Status::OK);
    }
}
