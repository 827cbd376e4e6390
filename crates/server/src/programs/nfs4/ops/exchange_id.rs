//! EXCHANGE_ID (RFC 8881 §18.35): registers a client.

use protocol::nfs4::ops::exchange_id::{
    ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, StateProtectArgs, StateProtectResult,
};
use protocol::nfs4::types::{ImplementationId, ServerOwner, Status, Utf8};
use xdr::{Decode, Encode, List, Opaque, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{ExchangeId, StateProtect};

/// The implementation name that clients see.
const IMPLEMENTATION: &[u8] = concat!("Enfys ", env!("CARGO_PKG_VERSION")).as_bytes();

/// Flags that a client may send.
const KNOWN: ExchangeIdFlags = ExchangeIdFlags::SUPP_MOVED_REFER
    .union(ExchangeIdFlags::SUPP_MOVED_MIGR)
    .union(ExchangeIdFlags::BIND_PRINC_STATEID)
    .union(ExchangeIdFlags::MASK_PNFS)
    .union(ExchangeIdFlags::UPD_CONFIRMED_REC_A);

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = ExchangeIdArgs::decode(arguments)?;
    if !compound.request.may_be_client() {
        // Linux's client retries PERM forever here; this status ends the mount.
        return Err(Status::CLID_INUSE.into());
    }
    // "Bits not defined above cannot be set in the eia_flags field. If they are, the server MUST reject the operation
    // with NFS4ERR_INVAL" (§18.35.3); CONFIRMED_R "can only be set in eir_flags".
    // SUPP_FENCE_OPS is version 4.2's (RFC 7862 §14.1.4).
    let fence = if compound.minor < 2 { ExchangeIdFlags::empty() } else { ExchangeIdFlags::SUPP_FENCE_OPS };
    if !KNOWN.union(fence).contains(arguments.flags) {
        return Err(Status::INVAL.into());
    }
    let by = compound.credential();
    let protect = match arguments.state_protect {
        StateProtectArgs::None => StateProtect::None,
        StateProtectArgs::MachineCredential(asked) => StateProtect::machine(&asked, &by)?,
        StateProtectArgs::Ssv(_) => return Err(Status::ENCR_ALG_UNSUPP.into()),
    };
    let known = compound.state().exchange_id(
        compound.now(),
        &ExchangeId {
            owner: &arguments.client_owner.owner_id,
            verifier: arguments.client_owner.verifier,
            by: &by,
            update: arguments.flags.contains(ExchangeIdFlags::UPD_CONFIRMED_REC_A),
            protect,
            from: Some(compound.request.connection.peer.ip()),
        },
    )?;
    compound.state().note_client_address(known.client_id, compound.request.connection.peer, compound.minor);
    let confirmed = if known.confirmed { ExchangeIdFlags::CONFIRMED_R } else { ExchangeIdFlags::empty() };
    let name = &compound.server().settings().server_name;
    ExchangeIdOk {
        client_id: known.client_id,
        sequence_id: known.sequence_id,
        // §18.35.3: "If the server will potentially perform a referral, it MUST set" the first, for a migration the second. A reload may
        // add one at any time.
        flags: ExchangeIdFlags::USE_NON_PNFS
            | ExchangeIdFlags::SUPP_MOVED_REFER
            | ExchangeIdFlags::SUPP_MOVED_MIGR
            | confirmed,
        state_protect: match known.protect {
            StateProtect::None => StateProtectResult::None,
            StateProtect::Machine(agreed) => StateProtectResult::MachineCredential(agreed),
        },
        server_owner: ServerOwner { minor_id: 0, major_id: Opaque::new(name.clone())? },
        server_scope: Opaque::new(name.clone())?,
        implementation: List::new(vec![ImplementationId {
            domain: Utf8::default(),
            name: Utf8::from_static(IMPLEMENTATION),
            date: Default::default(),
        }])?,
    }
    .encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, DirFromClient};
    use protocol::nfs4::ops::exchange_id::{DestroyClientIdArgs, SsvParms, StateProtectOps};
    use protocol::nfs4::ops::session::{CreateSessionFlags, DestroySessionArgs};
    use protocol::nfs4::types::{Bitmap, ClientOwner, HasStatus};

    use super::*;
    use crate::ConnectionId;
    use crate::state::{CreateSession, Credential, Principal};
    use crate::testing::{Lab, channel, lab, session_args};

    fn args(flags: ExchangeIdFlags, state_protect: StateProtectArgs) -> Op {
        Op::ExchangeId(ExchangeIdArgs {
            client_owner: ClientOwner { verifier: [2; 8], owner_id: Opaque::from_static(b"someone") },
            flags,
            state_protect,
            implementation: List::default(),
        })
    }

    #[test]
    fn returns_the_server_identity() {
        let mut lab = lab();
        let OpResult::ExchangeId(result) =
            lab.alone(args(ExchangeIdFlags::USE_PNFS_MDS, StateProtectArgs::None))
        else {
            panic!()
        };
        let result = result.into_result().unwrap();
        let moves = ExchangeIdFlags::SUPP_MOVED_REFER | ExchangeIdFlags::SUPP_MOVED_MIGR;
        assert_eq!(result.flags, ExchangeIdFlags::USE_NON_PNFS | moves);
        assert_eq!((&*result.server_owner.major_id, &*result.server_scope), (&b"test"[..], &b"test"[..]));
        let again = lab.exchange(b"client");
        assert!(again.flags.contains(ExchangeIdFlags::CONFIRMED_R));
        assert_eq!(again.client_id, lab.client_id);
    }

    /// Returns a client with SP4_MACH_CRED protection, whose machine no flavor here can authenticate, and its session on connection 9.
    fn protected(lab: &Lab) -> (u64, [u8; 16]) {
        let by = Credential { principal: Principal::Gss(b"nfs@client"[..].into()), is_protected: true };
        let asked = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::EMPTY };
        let protect = StateProtect::machine(&asked, &by).unwrap();
        let (state, now) = (&lab.server.shared.state, lab.now().monotonic);
        let (owner, verifier, from) = (b"guarded", [1; 8], None);
        let request = ExchangeId { owner, verifier, by: &by, update: false, protect, from };
        let id = state.exchange_id(now, &request).unwrap();
        let created = state.create_session(
            now,
            &CreateSession {
                client_id: id.client_id,
                sequence: id.sequence_id,
                flags: CreateSessionFlags::empty(),
                fore_channel: &channel(),
                back_channel: &channel(),
                callback_program: 1,
                security: &Default::default(),
                lacks_context: false,
                minor: 1,
                principal: &by.principal,
                connection: ConnectionId(9),
                outbox: None,
            },
        );
        (id.client_id, created.unwrap().session_id)
    }

    #[test]
    fn only_its_machine_maintains_a_protected_client() {
        let lab = lab();
        let (client_id, session_id) = protected(&lab);
        let mut stranger = Lab::without_session(lab.server.clone(), 9);
        let create = Op::CreateSession(session_args(client_id, 2));
        let bind = BindConnToSessionArgs { session_id, direction: DirFromClient::FORE, use_rdma: false };
        for op in [
            create,
            Op::BindConnToSession(bind),
            Op::DestroySession(DestroySessionArgs { session_id }),
            Op::DestroyClientId(DestroyClientIdArgs { client_id }),
        ] {
            let text = format!("{op:?}");
            assert_eq!(stranger.alone(op).status(), Status::WRONG_CRED, "{text}");
        }
    }

    #[test]
    fn refuses_unknown_flags_and_protections() {
        let mut lab = lab();
        let none = || StateProtectArgs::None;
        for flags in [0x8000_0000, 0x4, 0x8, 0x0100_0000] {
            let result = lab.alone(args(ExchangeIdFlags::from_bits_retain(flags), none()));
            assert_eq!(result.status(), Status::INVAL, "{flags:x}");
        }
        let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::EMPTY };
        let machine = StateProtectArgs::MachineCredential(ops);
        assert_eq!(lab.alone(args(ExchangeIdFlags::empty(), machine)).status(), Status::INVAL);
        let ssv = StateProtectArgs::Ssv(SsvParms {
            ops,
            hash_algorithms: List::default(),
            encryption_algorithms: List::default(),
            window: 1,
            gss_handles: 0,
        });
        assert_eq!(lab.alone(args(ExchangeIdFlags::empty(), ssv)).status(), Status::ENCR_ALG_UNSUPP);
    }
}
