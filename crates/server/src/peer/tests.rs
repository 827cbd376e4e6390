//! The users that callers on this machine and on others may claim, in every program.

use core::net::SocketAddr;
use std::sync::Arc;

use protocol::mount::{self, DirPath, MountResult, MountStat};
use protocol::nfs3::{self, FileHandle, GetattrArgs, NfsStat};
use protocol::nfs4::attributes::number;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::exchange_id::{ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::types::{Bitmap, ClientOwner, Handle, HasStatus, Status};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM, VERSION};
use protocol::nfsacl;
use rpc::auth::AuthStatus;
use rpc::message::{Rejection, RpcError};
use xdr::{List, Opaque};

use super::{LocalUser, PeerOwner};
use crate::testing::{Lab, at, compound, export, lab_of};
use crate::{Connection, ConnectionId, ExportTable, Transport};

impl Lab {
    /// Moves calls to another connection, from `port` of `owner`'s machine.
    fn reconnect(&mut self, port: u16, owner: PeerOwner) {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let id = ConnectionId(self.connection.id.0 + 100);
        let connection = Connection::new(id, address(port), address(2049), Transport::Tcp, false);
        self.connection = Arc::new(connection.owned_by(owner));
    }

    fn is_too_weak(&mut self, what: (u32, u32, u32), arguments: &[u8]) -> bool {
        match self.ask(what, arguments) {
            Ok(_) => false,
            Err(RpcError::Denied(Rejection::AuthError(AuthStatus::TOOWEAK))) => true,
            Err(other) => panic!("{other:?}"),
        }
    }

    fn mount_status(&mut self) -> MountStat {
        let path = xdr::to_bytes(&DirPath::from_static(b"/export"));
        let results = self.ask((mount::PROGRAM, 3, mount::Proc::MNT.0), &path).expect("results");
        match xdr::from_bytes(results).unwrap() {
            MountResult::Ok(_) => MountStat::OK,
            MountResult::Fail(status) => status,
        }
    }
}

fn alice() -> PeerOwner {
    PeerOwner::User(Arc::new(LocalUser { uid: 1000, groups: vec![1000, 27] }))
}

/// Returns a server, and the encoded handle of its export.
fn scene() -> (Lab, Vec<u8>) {
    let exported = export(1, "/export");
    let root = crate::testing::KEY.seal(exported.id, &exported.backend.root()).to_vec();
    (lab_of(vec![exported]), root)
}

/// Returns a call of each program that has an effect.
fn calls(root: &[u8]) -> [((u32, u32, u32), Vec<u8>); 4] {
    let object = FileHandle::new(root).unwrap();
    let acl = nfsacl::GetAclArgs { fh: object, mask: nfsacl::Mask::all() };
    [
        ((PROGRAM, 3, nfs3::Proc::GETATTR.0), xdr::to_bytes(&GetattrArgs { object }).to_vec()),
        ((PROGRAM, VERSION, PROC_COMPOUND), xdr::to_bytes(&compound(vec![Op::PutRootFh])).to_vec()),
        ((nfsacl::PROGRAM, 3, nfsacl::Proc::GETACL.0), xdr::to_bytes(&acl).to_vec()),
        ((mount::PROGRAM, 3, mount::Proc::MNT.0), xdr::to_bytes(&DirPath::from_static(b"/export")).to_vec()),
    ]
}

#[test]
fn a_local_user_claims_only_itself_in_every_program() {
    let (mut lab, root) = scene();
    for port in [700, 40_000] {
        lab.reconnect(port, alice());
        for (what, arguments) in calls(&root) {
            for (uid, gids, expected) in
                [(1000, vec![27], false), (1001, vec![], true), (0, vec![], true), (1000, vec![4], true)]
            {
                (lab.uid, lab.gids) = (uid, gids);
                assert_eq!(lab.is_too_weak(what, &arguments), expected, "{what:?} as {uid} from {port}");
            }
        }
    }
}

#[test]
fn a_local_socket_without_a_known_owner_is_never_roots() {
    let (mut lab, root) = scene();
    for owner in [PeerOwner::Unknown, PeerOwner::Callback, PeerOwner::NotServed(1000)] {
        lab.reconnect(700, owner);
        for (what, arguments) in calls(&root) {
            for uid in [0, 1000] {
                lab.uid = uid;
                assert!(lab.is_too_weak(what, &arguments), "{what:?} as {uid}");
            }
        }
        // NULL has no effect, for any caller.
        assert!(!lab.is_too_weak((PROGRAM, 3, 0), &[]));
        assert!(!lab.is_too_weak((PROGRAM, VERSION, 0), &[]));
    }
}

#[test]
fn roots_socket_claims_any_user_from_any_port() {
    let (mut lab, root) = scene();
    lab.reconnect(40_000, PeerOwner::Superuser);
    for (what, arguments) in calls(&root) {
        for uid in [0, 1000, 1001] {
            lab.uid = uid;
            assert!(!lab.is_too_weak(what, &arguments), "{what:?} as {uid}");
        }
    }
    assert_eq!(lab.mount_status(), MountStat::OK);
}

#[test]
fn another_machine_needs_a_port_below_1024() {
    let (mut lab, root) = scene();
    let object = FileHandle::new(&root).unwrap();
    let put = PutFhArgs { handle: Handle::new(&root).unwrap() };
    for (port, v3, v4, mounted) in [
        (1023, NfsStat::OK, Status::OK, MountStat::OK),
        (1024, NfsStat::PERM, Status::PERM, MountStat::ACCES),
        (65_535, NfsStat::PERM, Status::PERM, MountStat::ACCES),
    ] {
        lab.reconnect(port, PeerOwner::Remote);
        assert_eq!(lab.nfs3(nfs3::Proc::GETATTR.0, &GetattrArgs { object }), v3, "{port}");
        assert_eq!(lab.status(at(&["export"], vec![Op::GetFh])), v4, "by name from {port}");
        assert_eq!(lab.status(vec![Op::PutFh(put), Op::GetFh]), v4, "by handle from {port}");
        // Above the exports there is nothing to protect.
        assert_eq!(lab.status(vec![Op::PutRootFh, Op::GetFh]), Status::OK);
        assert_eq!(lab.mount_status(), mounted, "{port}");
    }
}

#[test]
fn an_insecure_export_takes_any_port_of_another_machine() {
    let (mut lab, root) = scene();
    let mut exported = Arc::unwrap_or_clone(Arc::clone(lab.server.exports().iter().next().unwrap()));
    exported.options.insecure = true;
    lab.server.replace_exports(ExportTable::new(vec![exported]).unwrap());
    lab.reconnect(40_000, PeerOwner::Remote);
    let object = FileHandle::new(&root).unwrap();
    assert_eq!(lab.nfs3(nfs3::Proc::GETATTR.0, &GetattrArgs { object }), NfsStat::OK);
    assert_eq!(lab.status(at(&["export"], vec![Op::GetFh])), Status::OK);
    assert_eq!(lab.mount_status(), MountStat::OK);
    // The option does not let a local user act as another.
    lab.reconnect(40_000, alice());
    lab.uid = 1001;
    assert!(lab.is_too_weak((PROGRAM, 3, nfs3::Proc::GETATTR.0), &xdr::to_bytes(&GetattrArgs { object })));
}

/// The attack: an ordinary user of another machine pretends to be that machine's restarted kernel.
#[test]
fn users_of_another_machine_cannot_replace_their_kernels_client() {
    let (mut lab, _) = scene();
    let mut thief = Lab::without_session(Arc::clone(&lab.server), 7);
    thief.reconnect(40_000, PeerOwner::Remote);
    let args = ExchangeIdArgs {
        client_owner: ClientOwner { verifier: [2; 8], owner_id: Opaque::from_static(b"client") },
        flags: ExchangeIdFlags::empty(),
        state_protect: StateProtectArgs::None,
        implementation: List::default(),
    };
    assert_eq!(thief.alone(Op::ExchangeId(args.clone())).status(), Status::CLID_INUSE);
    assert_eq!(lab.status(vec![Op::PutRootFh]), Status::OK, "the kernel has its session");
    let mut exported = Arc::unwrap_or_clone(Arc::clone(lab.server.exports().iter().next().unwrap()));
    exported.options.insecure = true;
    lab.server.replace_exports(ExportTable::new(vec![exported]).unwrap());
    assert_eq!(thief.alone(Op::ExchangeId(args)).status(), Status::OK, "where such calls are accepted");
}

#[test]
fn a_listing_above_exports_shows_those_that_require_another_port() {
    let mut open = export(1, "/open");
    open.options.insecure = true;
    let mut lab = lab_of(vec![open, export(2, "/secure")]);
    lab.reconnect(40_000, PeerOwner::Remote);
    let arguments = ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: 1000,
        maxcount: 4000,
        attributes: Bitmap::of(&[number::FSID, number::FILEID]),
    };
    let OpResult::ReadDir(listed) = lab.last(vec![Op::PutRootFh, Op::ReadDir(arguments)]) else { panic!() };
    let listed = listed.into_result().unwrap();
    let names: Vec<_> = listed.entries.iter().map(|entry| entry.name.to_vec()).collect();
    assert_eq!(names, [b"open".to_vec(), b"secure".to_vec()]);
}
