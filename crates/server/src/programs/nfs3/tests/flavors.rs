//! Exports that do not allow AUTH_SYS.

use protocol::mount::{self, DirPath, MountResult};
use protocol::nfs3::{FsinfoArgs, FsinfoResult, FsstatArgs};
use protocol::nfsacl;
use rpc::auth::AuthStatus;
use rpc::gss::Service;
use rpc::message::{Rejection, RpcError};

use super::*;
use crate::{Flavor, Flavors};

/// Returns a server that allows only Kerberos by default.
fn shut() -> Pair {
    let flavors =
        Flavors::new(&[Flavor::Kerberos(Service::Privacy), Flavor::Kerberos(Service::Integrity)]).unwrap();
    pair_with(
        ExportOptions { flavors, squash: Squash::None, ..ExportOptions::default() },
        &MemOptions::default(),
        0,
    )
}

fn is_too_weak(pair: &Pair, xid: u32, program: u32, procedure: u32, args: &impl Encode) -> bool {
    let reply = pair.raw(xid, program, VERSION, procedure, args).expect("a reply");
    match parse_reply::<()>(reply) {
        Err(RpcError::Denied(Rejection::AuthError(status))) => status == AuthStatus::TOOWEAK,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_with_other_flavors_get_tooweak_and_change_nothing() {
    let pair = shut();
    let directory = pair.root;
    assert!(is_too_weak(&pair, 2, PROGRAM, Proc::LOOKUP.0, &LookupArgs { what: pair.at(b"file") }));
    assert!(is_too_weak(&pair, 3, PROGRAM, Proc::FSSTAT.0, &FsstatArgs { fsroot: directory }));
    assert!(is_too_weak(
        &pair,
        4,
        PROGRAM,
        Proc::ACCESS.0,
        &AccessArgs { object: directory, access: Access::all() }
    ));
    let create = CreateArgs { where_: pair.at(b"file"), how: CreateHow::Unchecked(Sattr::default()) };
    // Neither does a retransmission.
    for _ in 0..2 {
        assert!(is_too_weak(&pair, 5, PROGRAM, Proc::CREATE.0, &create));
    }
    let acl = nfsacl::GetAclArgs { fh: directory, mask: nfsacl::Mask::all() };
    assert!(is_too_weak(&pair, 6, nfsacl::PROGRAM, nfsacl::Proc::GETACL.0, &acl));
    let root = pair.server.exports().iter().next().unwrap().backend.clone();
    let context = vfs::Context::new(Arc::new(vfs::Credentials::root()), Timestamp::default());
    let top = root.root();
    let found = root.lookup(&context, &top, b"file");
    assert!(matches!(found.now_or_never(), Some(Err(vfs::Error::NotFound))));
}

/// RFC 2623 §2.3.2, and the calls of Linux's client before its users have credentials.
#[test]
fn mount_accepts_any_flavor() {
    let pair = shut();
    let null: () = pair.call(Proc::NULL, &());
    assert_eq!(null, ());
    let info: FsinfoResult = pair.call(Proc::FSINFO, &FsinfoArgs { fsroot: pair.root });
    assert_eq!(info.status(), NfsStat::OK);
    let top: GetattrResult = pair.call(Proc::GETATTR, &GetattrArgs { object: pair.root });
    assert_eq!(top.status(), NfsStat::OK);
    // Only for the root of the export.
    let backend = pair.server.exports().iter().next().unwrap().backend.clone();
    let below = vfs::Handle::new(&[7; 24]).unwrap();
    assert_ne!(below, backend.root());
    let below = FileHandle::new(&KEY.seal(ExportId(1), &below)).unwrap();
    assert!(is_too_weak(&pair, 9, PROGRAM, Proc::GETATTR.0, &GetattrArgs { object: below }));
    assert!(is_too_weak(&pair, 10, PROGRAM, Proc::FSINFO.0, &FsinfoArgs { fsroot: below }));
}

#[test]
fn mount_returns_pseudo_flavors_in_order() {
    let flavors = |pair: &Pair| {
        let path = DirPath::from_static(b"/export");
        let reply = pair.raw(8, mount::PROGRAM, 3, mount::Proc::MNT.0, &path).expect("a reply");
        match parse_reply(reply).expect("results") {
            MountResult::Ok(ok) => ok.auth_flavors.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(flavors(&shut()), [390_005, 390_004]);
    assert_eq!(flavors(&pair()), [1]);
}
