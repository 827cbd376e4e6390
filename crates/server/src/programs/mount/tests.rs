//! The replies of MOUNT, and which callers get them.

use core::net::SocketAddr;
use std::sync::Arc;

use protocol::mount::{
    FhStatus, MountList, MountOk, MountResult, PROGRAM, PathConf, PathConfBit, VERSION_1, VERSION_2,
    VERSION_3,
};
use protocol::nfs3::{
    self, DirOpArgs, FileHandle, Filename, LookupArgs, LookupResult, MkdirArgs, NfsPath, Sattr, SymlinkArgs,
};
use rpc::auth::AuthFlavor;
use rpc::gss::Service;
use rpc::message::{AcceptStatus, RpcError, VersionRange};

use super::*;
use crate::testing::{KEY, Lab, export, export_for, lab_of, lab_with};
use crate::{
    Connection, ConnectionId, Export, ExportId, ExportOptions, Flavor, Flavors, Locations, Transport,
    Versions,
};

impl Lab {
    /// Sets the address from which calls come from now on.
    fn come_from(&mut self, peer: &str) {
        let (peer, local): (SocketAddr, _) = (peer.parse().unwrap(), self.connection.local);
        let connection = Connection::new(ConnectionId(77), peer, local, Transport::Tcp, false);
        self.connection = Arc::new(connection);
    }

    fn mount(&mut self, procedure: Proc, arguments: &[u8]) -> Result<bytes::Bytes, RpcError> {
        self.ask((PROGRAM, VERSION_3, procedure.0), arguments)
    }

    fn mnt(&mut self, path: &[u8]) -> Result<MountOk, MountStat> {
        let path = DirPath::new(path.to_vec()).unwrap();
        let results = self.mount(Proc::MNT, &xdr::to_bytes(&path)).expect("results");
        match xdr::from_bytes(results).unwrap() {
            MountResult::Ok(ok) => Ok(ok),
            MountResult::Fail(status) => Err(status),
        }
    }

    /// Returns the reply of DUMP, as `showmount -a` prints it.
    fn dump(&mut self) -> Vec<String> {
        let list: MountList = xdr::from_bytes(self.mount(Proc::DUMP, &[]).unwrap()).unwrap();
        let line = |mount: &protocol::mount::MountBody| {
            format!("{}:{}", mount.hostname.escape_ascii(), mount.directory.escape_ascii())
        };
        list.iter().map(line).collect()
    }
}

/// `/export` with the directories `dir` and `private` (mode 0700), the file `file`, and the links `out` and `in` to directories;
/// `/closed` for others; and `/shut`, the same directory for Kerberos alone.
fn site() -> (Lab, FileHandle) {
    let mut open = export(1, "/export");
    // Users of the clients may call too.
    open.options.insecure = true;
    let flavors = Flavors::new(&[Flavor::Kerberos(Service::Privacy)]).unwrap();
    let options = ExportOptions { flavors, insecure: false, ..open.options.clone() };
    let shut = Export { id: ExportId(3), path: "/shut".into(), options, fsid: (7, 7), ..open.clone() };
    let mut lab = lab_of(vec![open, export_for(2, "/closed", "10.0.0.0/8"), shut]);
    lab.file(&["export", "file"], b"");
    let root = lab.mnt(b"/export").unwrap().fhandle;
    let at = |name: &'static str| DirOpArgs { dir: root, name: Filename::from_static(name.as_bytes()) };
    for (name, mode) in [("dir", 0o755), ("private", 0o700)] {
        let attributes = Sattr { mode: Some(mode), ..Sattr::default() };
        let made = lab.nfs3(nfs3::Proc::MKDIR.0, &MkdirArgs { where_: at(name), attributes });
        assert_eq!(made, nfs3::NfsStat::OK);
    }
    for (name, text) in [("out", &b"/"[..]), ("in", b"dir")] {
        let symlink_data = NfsPath::new(text).unwrap();
        let args = SymlinkArgs { where_: at(name), symlink_attributes: Sattr::default(), symlink_data };
        assert_eq!(lab.nfs3(nfs3::Proc::SYMLINK.0, &args), nfs3::NfsStat::OK);
    }
    (lab, root)
}

#[test]
fn a_directory_below_an_export_is_mounted_by_the_handle_that_lookup_gives() {
    let (mut lab, dir) = site();
    let what = DirOpArgs { dir, name: Filename::from_static(b"dir") };
    let found = lab.ask((nfs3::PROGRAM, 3, nfs3::Proc::LOOKUP.0), &xdr::to_bytes(&LookupArgs { what }));
    let found: LookupResult = xdr::from_bytes(found.unwrap()).unwrap();
    let found = found.into_result().unwrap().object;
    for path in [&b"/export/dir"[..], b"/export/dir/", b"/export//./dir"] {
        let mounted = lab.mnt(path).unwrap();
        assert_eq!(mounted.fhandle, found);
        // RFC 1813 §5.2.1: "auth_flavors, is a vector of RPC authentication flavors that are supported".
        assert_eq!(*mounted.auth_flavors, [AuthFlavor::SYS.0]);
    }
}

#[test]
fn failed_mounts_return_the_reason() {
    let (mut lab, _) = site();
    let long = [b"/export/", &[b'x'; 292][..]].concat();
    for (path, expected) in [
        (&b""[..], MountStat::NOENT),
        (b"/", MountStat::NOENT),
        (b"export", MountStat::NOENT),
        (b"/exported", MountStat::NOENT),
        (b"/export/none", MountStat::NOENT),
        (b"/export/d\0ir", MountStat::NOENT),
        (b"/export/file", MountStat::NOTDIR),
        (b"/export/file/below", MountStat::NOTDIR),
        // The client follows links; a path through a link that leads out does not exist here.
        (b"/export/out", MountStat::NOTDIR),
        (b"/export/out/etc", MountStat::NOTDIR),
        (b"/export/in", MountStat::NOTDIR),
        (b"/export/..", MountStat::NOENT),
        (b"/export/dir/..", MountStat::NOENT),
        (b"/export/../closed", MountStat::NOENT),
        (&long, MountStat::NAMETOOLONG),
        (&[b'/'; 1024], MountStat::NOENT),
        (b"/closed", MountStat::ACCES),
        (b"/closed/none", MountStat::ACCES),
    ] {
        let text = path.escape_ascii().to_string();
        assert_eq!(lab.mnt(path).map(|ok| ok.fhandle), Err(expected), "{text}");
    }
    assert_eq!(lab.dump(), ["127.0.0.1:/export"], "refused mounts are not listed");
    // RFC 1813 §5.1.3: "const MNTPATHLEN = 1024".
    let mut too_long = 1025u32.to_be_bytes().to_vec();
    too_long.extend([b'/'; 1028]);
    for procedure in [Proc::MNT, Proc::UMNT] {
        let garbage = RpcError::NotExecuted(AcceptStatus::GarbageArguments);
        assert_eq!(lab.mount(procedure, &too_long), Err(garbage), "{procedure:?}");
    }
    lab.come_from("10.1.1.1:700");
    assert!(lab.mnt(b"/closed").is_ok());
    assert_eq!(lab.mnt(b"/closed/none").map(|ok| ok.fhandle), Err(MountStat::NOENT));
}

#[test]
fn a_client_as_a_whole_is_not_stopped_by_permissions_and_its_users_are() {
    let (mut lab, _) = site();
    lab.uid = 1000;
    assert!(lab.mnt(b"/export/private").is_ok(), "a privileged port speaks for all of the client's users");
    assert!(lab.mnt(b"/export/private/").is_ok());
    lab.come_from("127.0.0.1:5000");
    assert!(lab.mnt(b"/export/private").is_ok(), "its existence shows without searching it");
    assert_eq!(lab.mnt(b"/export/private/x").map(|ok| ok.fhandle), Err(MountStat::ACCES));
    lab.come_from("127.0.0.1:1023");
    assert_eq!(lab.mnt(b"/export/private/x").map(|ok| ok.fhandle), Err(MountStat::NOENT));
}

#[test]
fn unproven_callers_learn_no_names_in_exports_for_kerberos() {
    let (mut lab, _) = site();
    let look = |lab: &mut Lab, path: &[u8]| lab.mnt(path).map(|_| ());
    lab.come_from("127.0.0.1:5000");
    assert_eq!(look(&mut lab, b"/export/private/x"), Err(MountStat::NOENT), "the owner may search it");
    assert_eq!(
        look(&mut lab, b"/shut/private/x"),
        Err(MountStat::ACCES),
        "a caller who claims to be the owner may not"
    );
    // A directory that any user may look up, and one that a client mounts for users who will identify themselves.
    assert_eq!(look(&mut lab, b"/shut/dir"), Ok(()));
    lab.come_from("127.0.0.1:1023");
    assert_eq!(look(&mut lab, b"/shut/private"), Ok(()));
}

#[test]
fn each_client_takes_back_its_own_mounts() {
    let (mut lab, _) = site();
    lab.mnt(b"/export/dir").unwrap();
    lab.come_from("10.1.1.1:700");
    lab.mnt(b"/export/dir").unwrap();
    lab.mnt(b"/closed").unwrap();
    // Again, as a restarted client does: RFC 1813 §5.2.2 lists "each pair" of name and directory.
    lab.mnt(b"/closed").unwrap();
    let all = ["10.1.1.1:/closed", "10.1.1.1:/export/dir", "127.0.0.1:/export", "127.0.0.1:/export/dir"];
    assert_eq!(lab.dump(), all);
    let unmount = |lab: &mut Lab, path: &'static [u8]| {
        let path = xdr::to_bytes(&DirPath::from_static(path));
        assert_eq!(lab.mount(Proc::UMNT, &path).unwrap().len(), 0, "nothing is returned for any argument");
    };
    unmount(&mut lab, b"/export");
    assert_eq!(lab.dump(), all, "that is the other's");
    unmount(&mut lab, b"/export/dir");
    assert_eq!(lab.dump(), [all[0], all[2], all[3]]);
    // §5.2.4: UMNTALL "Removes all of the mount entries for this client".
    assert_eq!(lab.mount(Proc::UMNTALL, &[]).unwrap().len(), 0);
    assert_eq!(lab.dump(), all[2..]);
}

#[test]
fn an_export_at_the_root_is_mounted_by_a_slash() {
    let mut lab = lab_of(vec![export(1, "/")]);
    let root = lab.mnt(b"/").unwrap().fhandle;
    let at = |name: &'static str| DirOpArgs { dir: root, name: Filename::from_static(name.as_bytes()) };
    let attributes = Sattr { mode: Some(0o755), ..Sattr::default() };
    let made = lab.nfs3(nfs3::Proc::MKDIR.0, &MkdirArgs { where_: at("dir"), attributes });
    assert_eq!(made, nfs3::NfsStat::OK);
    let below = lab.mnt(b"/dir").unwrap().fhandle;
    assert_ne!(below, root);
    assert_eq!(lab.mnt(b"//dir/").unwrap().fhandle, below);
    assert_eq!(lab.mnt(b"/missing"), Err(MountStat::NOENT));
    assert_eq!(lab.mnt(b"dir"), Err(MountStat::NOENT));
    assert!(lab.server.exports().by_path(b"/").is_some());
    assert!(lab.server.exports().by_path(b"/dir").is_none());
}

/// As [`site`], on a server of version 2 too.
fn site2() -> Lab {
    let mut open = export(1, "/export");
    open.options.insecure = true;
    let exports = vec![open, export_for(2, "/closed", "10.0.0.0/8")];
    let mut lab = lab_with(exports, |settings| settings.versions |= Versions::V2);
    lab.file(&["export", "file"], b"");
    lab
}

#[test]
fn versions_1_and_2_return_handles_of_32_bytes_or_an_errno() {
    let mut lab = site2();
    let long = lab.mnt(b"/export").unwrap().fhandle;
    for version in [VERSION_1, VERSION_2] {
        let mut mnt = |path: &'static [u8]| -> FhStatus {
            let path = xdr::to_bytes(&DirPath::from_static(path));
            xdr::from_bytes(lab.ask((PROGRAM, version, Proc::MNT.0), &path).unwrap()).unwrap()
        };
        let FhStatus::Ok(short) = mnt(b"/export") else { panic!("a handle") };
        assert_eq!(KEY.open(&short), KEY.open(&long), "the same directory");
        for (path, errno) in
            [(&b"/none"[..], 2), (b"/export/none", 2), (b"/closed", 13), (b"/export/file", 20)]
        {
            assert_eq!(mnt(path), FhStatus::Fail(errno), "{}", path.escape_ascii());
        }
    }
    assert_eq!(lab.dump(), ["127.0.0.1:/export"]);
}

#[test]
fn each_version_has_its_procedures() {
    let mut lab = site2();
    let path = xdr::to_bytes(&DirPath::from_static(b"/export"));
    let is_served = |lab: &mut Lab, version, procedure: u32| {
        let unavailable = Err(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable));
        lab.ask((PROGRAM, version, procedure), &path) != unavailable
    };
    for (version, last) in [(VERSION_1, 6), (VERSION_2, 7), (VERSION_3, 5)] {
        for procedure in 0..10 {
            let expected = procedure <= last;
            assert_eq!(is_served(&mut lab, version, procedure), expected, "{procedure} of {version}");
        }
    }
    let export = lab.ask((PROGRAM, VERSION_1, Proc::EXPORT.0), &[]);
    assert_eq!(lab.ask((PROGRAM, VERSION_1, Proc::EXPORTALL.0), &[]), export);
}

#[test]
fn pathconf_returns_the_limits_of_a_directory() {
    let mut lab = site2();
    let mut pathconf = |path: &'static [u8]| -> PathConf {
        let path = xdr::to_bytes(&DirPath::from_static(path));
        xdr::from_bytes(lab.ask((PROGRAM, VERSION_2, Proc::PATHCONF.0), &path).unwrap()).unwrap()
    };
    let limits = pathconf(b"/export");
    assert_eq!((limits.name_max, limits.path_max), (255, 1024));
    let is_set = |bit| limits.is_set(bit);
    assert!(is_set(PathConfBit::NO_TRUNC) && is_set(PathConfBit::PIPE_BUF));
    assert!(!is_set(PathConfBit::ERROR) && !is_set(PathConfBit::NAME_MAX));
    for refused in [pathconf(b"/none"), pathconf(b"/closed")] {
        assert!(refused.is_set(PathConfBit::ERROR) && refused.is_set(PathConfBit::NAME_MAX));
        assert_eq!((refused.name_max, refused.link_max), (0, 0));
    }
}

#[test]
fn short_handles_serve_version_3_too() {
    let mut export = export(1, "/export");
    (export.options.insecure, export.options.short_handles) = (true, true);
    let mut lab = lab_of(vec![export]);
    let mounted = lab.mnt(b"/export").unwrap().fhandle;
    assert_eq!(mounted.len(), 32);
    let path = xdr::to_bytes(&DirPath::from_static(b"/export"));
    let first: FhStatus =
        xdr::from_bytes(lab.ask((PROGRAM, VERSION_1, Proc::MNT.0), &path).unwrap()).unwrap();
    assert_eq!(first, FhStatus::Ok(mounted[..].try_into().unwrap()), "boot loaders mix the versions");
    lab.file(&["export", "file"], b"");
    let what = DirOpArgs { dir: mounted, name: Filename::from_static(b"file") };
    let found = lab.ask((nfs3::PROGRAM, 3, nfs3::Proc::LOOKUP.0), &xdr::to_bytes(&LookupArgs { what }));
    let found: LookupResult = xdr::from_bytes(found.unwrap()).unwrap();
    assert_eq!(found.into_result().unwrap().object.len(), 32);
}

#[test]
fn answers_over_udp_are_no_longer_than_three_times_the_question() {
    let exports = (1..60).map(|id| export(id, &format!("/export-{id}"))).collect();
    let mut lab = lab_with(exports, |settings| settings.udp = true);
    let (peer, local) = (lab.connection.peer, lab.connection.local);
    let over = |transport| Arc::new(Connection::new(ConnectionId(78), peer, local, transport, false));
    lab.connection = over(Transport::Tcp);
    assert!(lab.mount(Proc::EXPORT, &[]).unwrap().len() > 1000);
    lab.connection = over(Transport::Udp);
    let refused = Err(RpcError::NotExecuted(AcceptStatus::SystemError));
    assert_eq!(lab.mount(Proc::EXPORT, &[]), refused);
    assert!(lab.mnt(b"/export-1").is_ok());
    assert_eq!(lab.ask((nfs3::PROGRAM, 3, 0), &[]).map(|results| results.len()), Ok(0));
    let mismatch = AcceptStatus::ProgramMismatch(VersionRange { low: 3, high: 3 });
    assert_eq!(lab.ask((nfs3::PROGRAM, 4, 0), &[]), Err(RpcError::NotExecuted(mismatch)));
}

#[test]
fn a_referral_is_neither_listed_nor_mounted() {
    let mut moved = export(2, "/moved");
    moved.options.locations = Locations::Moved(Arc::from(["there:/files".parse().unwrap()]));
    let mut lab = lab_of(vec![export(1, "/export"), moved]);
    assert_eq!(lab.mnt(b"/moved"), Err(MountStat::NOTSUPP));
    assert_eq!(lab.mnt(b"/moved/below"), Err(MountStat::NOTSUPP));
    let listed: protocol::mount::Exports = xdr::from_bytes(lab.mount(Proc::EXPORT, &[]).unwrap()).unwrap();
    let paths: Vec<_> = listed.iter().map(|node| node.dir.to_vec()).collect();
    assert_eq!(paths, [b"/export".to_vec()]);
}
