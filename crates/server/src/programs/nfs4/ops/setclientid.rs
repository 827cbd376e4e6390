//! SETCLIENTID (RFC 7530 §16.33), version 4.0 only: registers a client and its callback address.

use protocol::nfs4::ops::setclientid::SetClientIdArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::{CallbackClient, SetClientId, SetClientIdError};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let SetClientIdArgs { client, callback, callback_ident } = SetClientIdArgs::decode(arguments)?;
    if !compound.request.may_be_client() {
        // Linux's client retries PERM forever here; this status ends the mount. It carries an address (§16.33.2): the caller's
        // own, so that it reveals nothing.
        callback.location.encode(reply);
        return Err(Failure::Written(Status::CLID_INUSE));
    }
    let callback = CallbackClient {
        program: callback.program,
        location: callback.location,
        ident: callback_ident,
        from: Some(compound.request.connection.peer.ip()),
    };
    let principal = compound.principal();
    let request = SetClientId {
        owner: &client.owner_id,
        verifier: client.verifier,
        principal: &principal,
        callback: &callback,
    };
    match compound.state().set_client_id(compound.now(), &request) {
        Ok(ok) => {
            // Linux's client then takes another id string.
            compound.request.connection.v40_owner.announce(&client.owner_id);
            compound.state().note_client_address(
                ok.client_id,
                compound.request.connection.peer,
                compound.minor,
            );
            ok.encode(reply);
            Ok(())
        }
        Err(SetClientIdError::InUse(user)) => {
            user.encode(reply);
            Err(Failure::Written(Status::CLID_INUSE))
        }
        Err(SetClientIdError::Status(status)) => Err(status.into()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::setclientid::{RenewArgs, SetClientIdOk, SetClientIdResult};
    use protocol::nfs4::types::HasStatus;

    use super::*;
    use crate::testing::minor0::{V40Lab, v40_lab};
    use crate::testing::putfh;

    fn ok(lab: &mut V40Lab, verifier: u8, port: u8) -> SetClientIdOk {
        match lab.set_client_id(b"client", verifier, port) {
            SetClientIdResult::Ok(ok) => ok,
            other => panic!("{other:?}"),
        }
    }

    fn callback_port(lab: &V40Lab) -> Option<u16> {
        let state = &lab.lab.server.shared.state;
        let client = state.named_client(lab.lab.now().monotonic, lab.client_id).unwrap();
        state.callback_of(&client)?.address().map(|address| address.port())
    }

    #[test]
    fn new_callbacks_apply_once_confirmed_and_keep_state() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let (first, second) = (ok(&mut lab, 1, 9), ok(&mut lab, 1, 10));
        assert_eq!((first.client_id, second.client_id), (lab.client_id, lab.client_id));
        assert_eq!(callback_port(&lab), None, "port 0 is invalid");
        // "Any pre-existing unconfirmed { v, x, c, *, * } is removed."
        assert_eq!(lab.confirm(&first), Status::STALE_CLIENTID);
        assert_eq!((lab.confirm(&second), lab.confirm(&second)), (Status::OK, Status::OK));
        assert_eq!(callback_port(&lab), Some(10));
        let close = lab.close_op(open, b"owner");
        assert_eq!(lab.status(vec![putfh(file), close]), Status::OK);
    }

    #[test]
    fn a_confirmed_restart_ends_the_old_state() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let rebooted = ok(&mut lab, 2, 0);
        assert_ne!(rebooted.client_id, lab.client_id);
        assert_eq!(lab.lab.server.counts().opens, 1, "not before it is confirmed");
        let again = ok(&mut lab, 3, 0);
        assert_eq!(lab.confirm(&rebooted), Status::STALE_CLIENTID, "replaced by the next one");
        assert_eq!(lab.confirm(&SetClientIdOk { confirm: [0; 8], ..again }), Status::STALE_CLIENTID);
        assert_eq!(lab.confirm(&again), Status::OK);
        assert_eq!(lab.lab.server.counts().opens, 0);
        let close = lab.close_op(open, b"owner");
        assert_eq!(lab.status(vec![putfh(file), close]), Status::EXPIRED);
        let renew = Op::Renew(RenewArgs { client_id: lab.client_id });
        assert_eq!(lab.status(vec![renew]), Status::EXPIRED);
    }

    #[test]
    fn another_principal_gets_a_name_only_without_state() {
        let mut lab = v40_lab();
        lab.open("file", b"owner");
        let update = ok(&mut lab, 1, 9);
        lab.lab.uid = 1000;
        assert_eq!(lab.confirm(&update), Status::CLID_INUSE);
        let SetClientIdResult::InUse(user) = lab.set_client_id(b"client", 2, 0) else { panic!() };
        assert_eq!((&user.netid[..], &user.address[..]), (&b"tcp"[..], &b"192.0.2.1.0.0"[..]));
        // After the lease, the name is free.
        lab.lab.seconds += 91;
        assert_eq!(lab.set_client_id(b"client", 2, 0).status(), Status::OK);
    }

    #[test]
    fn names_are_separate_from_later_minor_versions() {
        let mut lab = v40_lab();
        lab.reboot(b"both", 1);
        let mut other = crate::testing::Lab::without_session(lab.lab.server.clone(), 9);
        other.connect(b"both");
        assert_ne!(other.client_id, lab.client_id);
        let renew = |client_id| vec![Op::Renew(RenewArgs { client_id })];
        assert_eq!(lab.status(renew(lab.client_id)), Status::OK);
        assert_eq!(lab.status(renew(other.client_id)), Status::STALE_CLIENTID);
    }
}
