//! Calls that are cut short, too long, or have lengths beyond their end.

use protocol::nfs2::{
    CreateArgs, LinkArgs, ReadArgs, ReaddirArgs, RenameArgs, SattrArgs, SymlinkArgs, TABLE, WriteArgs,
};
use rpc::message::AcceptStatus;
use xdr::Opaque;

use super::*;

/// Returns the arguments of every procedure that has some.
fn arguments(client: &Client) -> Vec<(Proc, Bytes)> {
    let (file, dir, attributes) = (client.root, client.root, Sattr::NONE);
    let at = |name: &[u8]| place(dir, name);
    let create = CreateArgs { where_: at(b"name"), attributes };
    let data = Opaque::from_static(b"data");
    let to = Path::from_static(b"text");
    vec![
        (Proc::GETATTR, xdr::to_bytes(&file)),
        (Proc::SETATTR, xdr::to_bytes(&SattrArgs { file, attributes })),
        (Proc::LOOKUP, xdr::to_bytes(&at(b"name"))),
        (Proc::READLINK, xdr::to_bytes(&file)),
        (Proc::READ, xdr::to_bytes(&ReadArgs { file, offset: 0, count: 1, totalcount: 0 })),
        (Proc::WRITE, xdr::to_bytes(&WriteArgs { file, beginoffset: 0, offset: 0, totalcount: 0, data })),
        (Proc::CREATE, xdr::to_bytes(&create)),
        (Proc::REMOVE, xdr::to_bytes(&at(b"name"))),
        (Proc::RENAME, xdr::to_bytes(&RenameArgs { from: at(b"name"), to: at(b"other") })),
        (Proc::LINK, xdr::to_bytes(&LinkArgs { from: file, to: at(b"name") })),
        (Proc::SYMLINK, xdr::to_bytes(&SymlinkArgs { from: at(b"name"), to, attributes })),
        (Proc::MKDIR, xdr::to_bytes(&create)),
        (Proc::RMDIR, xdr::to_bytes(&at(b"name"))),
        (Proc::READDIR, xdr::to_bytes(&ReaddirArgs { dir, cookie: [0; 4], count: 1024 })),
        (Proc::STATFS, xdr::to_bytes(&file)),
    ]
}

#[test]
fn calls_that_are_cut_short_are_garbage() {
    let client = Client::new();
    let all = arguments(&client);
    assert_eq!(all.len() + 3, TABLE.procedures.len(), "all but NULL, ROOT and WRITECACHE");
    let garbage = Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments));
    for (procedure, arguments) in all {
        for length in 0..arguments.len() {
            assert_eq!(
                client.raw(procedure, &arguments[..length]),
                garbage,
                "{procedure:?} of {length} bytes"
            );
        }
        let padded = [&arguments[..], &[0xff; 8]].concat();
        assert!(client.raw(procedure, &padded).is_ok(), "{procedure:?}: some clients pad");
    }
}

#[test]
fn lengths_beyond_the_end_are_garbage() {
    let client = Client::new();
    let garbage = Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments));
    for length in [5_u32, 1024, 1025, 8193, 1 << 31, u32::MAX] {
        let name = [&client.root[..], &length.to_be_bytes(), b"name"].concat();
        for procedure in [Proc::LOOKUP, Proc::REMOVE, Proc::RMDIR] {
            assert_eq!(client.raw(procedure, &name), garbage, "{procedure:?}: {length}");
        }
        let data = [&client.root[..], &[0; 12], &length.to_be_bytes(), b"data"].concat();
        assert_eq!(client.raw(Proc::WRITE, &data), garbage, "WRITE: {length}");
    }
}

#[test]
fn other_procedures_are_not_available() {
    let client = Client::new();
    for procedure in [18, 19, u32::MAX] {
        let unavailable = Err(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable));
        assert_eq!(client.raw(Proc(procedure), &[0; 64]), unavailable, "{procedure}");
    }
}

#[test]
fn version_2_is_served_only_on_request() {
    let client = Client::new();
    let settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    let exports = ExportTable::new(vec![client.export.clone()]).unwrap();
    client.server.replace(Arc::new(Server::new(settings, exports)));
    let mismatch = |low, high| {
        Err(RpcError::NotExecuted(AcceptStatus::ProgramMismatch(rpc::message::VersionRange { low, high })))
    };
    assert_eq!(client.raw(Proc::NULL, &[]), mismatch(3, 4));
    for version in [1, 2] {
        let mount = (protocol::mount::PROGRAM, version, 0);
        assert_eq!(client.ask(1, mount, &[]), mismatch(3, 3));
    }
    let versions = Versions::V2 | Versions::V4_1;
    let settings = Settings { versions, ..Settings::new(KEY, 1, [3; 16], b"test".to_vec()) };
    let exports = ExportTable::new(vec![client.export.clone()]).unwrap();
    client.server.replace(Arc::new(Server::new(settings, exports)));
    assert_eq!(client.raw(Proc::NULL, &[]), Ok(Bytes::new()));
    for version in [0, 1, 3, 5, 31, 32, u32::MAX] {
        assert_eq!(client.ask(2, (PROGRAM, version, 0), &[]), mismatch(2, 4), "version {version}");
    }
}
