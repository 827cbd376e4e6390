//! Absent file systems (RFC 8881 §11.3 and §11.4, RFC 7530 §8.2 and §8.3): exports whose files are on other servers. Clients can read a
//! few attributes, which tell where; everything else is answered MOVED.

use protocol::nfs4::attributes::number as n;
use protocol::nfs4::ops::{Needs, Operation};
use protocol::nfs4::types::{Bitmap, Status};
use xdr::Writer;

use super::attributes::{NO_ATTRIBUTES, Subject, supported};
use super::compound::{Compound, FileHandle};
use crate::files::object::{File, Object};

/// Attributes for which a client may ask about an absent file system. RFC 8881 §11.4.1: "if the attribute mask contains at least one
/// attribute bit that indicates the client is interested in a result regarding an absent file system: fs_locations,
/// fs_locations_info, or fs_status". Only the first is supported.
const TELLING: Bitmap = Bitmap::of(&[n::FS_LOCATIONS, n::FS_LOCATIONS_INFO, n::FS_STATUS]);

/// Attributes of an absent file system's root. §11.4.1: "Other attributes SHOULD NOT be made available for absent file systems".
const OF_ROOT: Bitmap = Bitmap::of(&[n::FS_LOCATIONS, n::FSID, n::MOUNTED_ON_FILEID]);

impl<'r> Compound<'r> {
    /// Checks that the current object is on this server, if an operation uses it.
    ///
    /// # Errors
    /// MOVED. RFC 8881 §11.3: "when the current filehandle at the start of an operation is within an absent file system, that operation is
    /// not performed".
    pub(super) fn check_present(&self, row: &Operation) -> Result<(), Status> {
        let is_used = matches!(row.needs, Needs::Current | Needs::CurrentAndSaved) && !row.on_absent;
        if is_used && self.current_absent().is_some() { Err(Status::MOVED) } else { Ok(()) }
    }

    /// Returns the current object if its file system is absent.
    pub(super) fn current_absent(&self) -> Option<File<'r>> {
        match self.current {
            Some(FileHandle::Own(object)) => of_object(&object),
            _ => None,
        }
    }

    /// Writes the attributes of an object of an absent file system.
    pub(super) fn write_absent(&self, file: File<'_>, mask: Bitmap, error: Status, reply: &mut Writer) {
        let subject = Subject { error, ..self.subject(Object::File(file), &NO_ATTRIBUTES) };
        subject.write(mask.intersection(supported(self.minor)), reply);
    }
}

/// Returns the file of an object whose file system is absent.
pub(super) fn of_object<'r>(object: &Object<'r>) -> Option<File<'r>> {
    match object {
        Object::File(file) if file.export.is_absent() => Some(*file),
        _ => None,
    }
}

/// Returns the attributes that GETATTR returns of `asked`.
///
/// # Errors
/// MOVED if the client does not ask where the file system is.
pub(super) fn of_getattr(file: &File<'_>, asked: Bitmap) -> Result<Bitmap, Status> {
    if asked.intersection(TELLING).is_empty() {
        return Err(Status::MOVED);
    }
    Ok(asked.intersection(available(file)))
}

/// Returns the attributes that VERIFY and NVERIFY compare: those `asked` for.
///
/// # Errors
/// As [`of_getattr`]; MOVED too if any of them is not available (RFC 8881 §11.4.1).
pub(super) fn of_verify(file: &File<'_>, asked: Bitmap) -> Result<Bitmap, Status> {
    let mask = of_getattr(file, asked)?;
    if mask == asked { Ok(mask) } else { Err(Status::MOVED) }
}

/// Returns the attributes of a directory entry, and its `rdattr_error` (RFC 8881 §11.4.2).
///
/// # Errors
/// MOVED for the whole listing, if the client asks neither where the file system is, nor for `rdattr_error`.
pub(super) fn of_entry(file: &File<'_>, asked: Bitmap) -> Result<(Bitmap, Status), Status> {
    let mask = asked.intersection(available(file).union(Bitmap::of(&[n::RDATTR_ERROR])));
    match of_getattr(file, asked) {
        Ok(_) => Ok((mask, Status::OK)),
        Err(moved) if asked.has(n::RDATTR_ERROR) => Ok((mask, moved)),
        Err(moved) => Err(moved),
    }
}

/// The file that a client had before the file system moved is mounted on nothing that is known.
fn available(file: &File<'_>) -> Bitmap {
    match file.is_root() {
        true => OF_ROOT,
        false => OF_ROOT.difference(Bitmap::of(&[n::MOUNTED_ON_FILEID])),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::nfs3::{self, NfsStat};
    use protocol::nfs4::attributes::{Attributes, FileAttributes, number as n};
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::readdir::ReadDirArgs;
    use protocol::nfs4::ops::verify::VerifyArgs;
    use protocol::nfs4::types::{Bitmap, Status};

    use crate::testing::minor0::V40Lab;
    use crate::testing::{Lab, at, attributes_in, create, export, getattr, lab_of, lookup, open_args, putfh};
    use crate::{Export, ExportTable, Locations};

    /// Returns an export whose files are elsewhere.
    fn moved(id: u32, path: &str) -> Export {
        let mut export = export(id, path);
        let there = "there.example.org:/srv/files".parse().unwrap();
        export.options.locations = Locations::Moved(Arc::from([there]));
        export
    }

    /// A server with a present and an absent export below one directory.
    fn two() -> Lab {
        lab_of(vec![export(1, "/data/here"), moved(2, "/data/there")])
    }

    fn place(attributes: &Attributes) -> (String, String, String) {
        let all = attributes.fs_locations.as_ref().expect("fs_locations");
        let path = |names: &[protocol::nfs4::types::Component]| {
            names.iter().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect::<String>()
        };
        assert_eq!(all.locations.len(), 1);
        let location = &all.locations[0];
        assert_eq!(location.servers.len(), 1);
        let server = String::from_utf8_lossy(&location.servers[0]).into_owned();
        (path(&all.fs_root), server, path(&location.root_path))
    }

    /// RFC 8881 §11.15.1, the example of LOOKUP.
    #[test]
    fn lookup_of_a_referral_succeeds_and_getfh_is_moved() {
        let mut lab = two();
        let path = ["data", "there"];
        let result = lab.run(at(&path, vec![Op::GetFh]));
        assert_eq!(result.status, Status::MOVED);
        // SEQUENCE, PUTROOTFH, two LOOKUPs, GETFH.
        assert_eq!(result.results.len(), 5);
        let asked = getattr(&[n::FSID, n::FS_LOCATIONS, n::MOUNTED_ON_FILEID, n::SIZE, n::FILEID, n::TYPE]);
        let seen = attributes_in(&lab.last(at(&path, vec![asked])));
        assert_eq!(seen.mask(), Bitmap::of(&[n::FSID, n::FS_LOCATIONS, n::MOUNTED_ON_FILEID]));
        assert_eq!(place(&seen), ("/data/there".into(), "there.example.org".into(), "/srv/files".into()));
        for other in [&["data"][..], &["data", "here"]] {
            assert_ne!(lab.attributes(other, &[n::FSID]).fsid, seen.fsid, "{other:?}");
        }
        // §11.4.1: one of the telling attributes must be asked for, even if only another is supported.
        assert_eq!(lab.status(at(&path, vec![getattr(&[n::FSID])])), Status::MOVED);
        let unsupported = attributes_in(&lab.last(at(&path, vec![getattr(&[n::FS_STATUS, n::FSID])])));
        assert_eq!(unsupported.mask(), Bitmap::of(&[n::FSID]));
    }

    #[test]
    fn verify_compares_only_what_an_absent_file_system_has() {
        let mut lab = two();
        let path = ["data", "there"];
        let seen = lab.attributes(&path, &[n::FS_LOCATIONS, n::FSID]).to_file_attributes();
        let verify = |attributes: &FileAttributes| Op::Verify(VerifyArgs { attributes: attributes.clone() });
        let nverify =
            |attributes: &FileAttributes| Op::NVerify(VerifyArgs { attributes: attributes.clone() });
        assert_eq!(lab.status(at(&path, vec![verify(&seen)])), Status::OK);
        assert_eq!(lab.status(at(&path, vec![nverify(&seen)])), Status::SAME);
        let fsid = lab.attributes(&path, &[n::FS_LOCATIONS, n::FSID]);
        let alone = Attributes { fsid: fsid.fsid, ..Attributes::default() }.to_file_attributes();
        assert_eq!(lab.status(at(&path, vec![verify(&alone)])), Status::MOVED);
        let more = Attributes { size: Some(0), ..fsid }.to_file_attributes();
        assert_eq!(lab.status(at(&path, vec![verify(&more)])), Status::MOVED);
    }

    fn list(lab: &mut Lab, numbers: &[u32]) -> Result<Vec<Attributes>, Status> {
        let args = ReadDirArgs {
            cookie: 0,
            cookie_verifier: [0; 8],
            dircount: 0,
            maxcount: 65_536,
            attributes: Bitmap::of(numbers),
        };
        let mut results = lab.run(at(&["data"], vec![Op::ReadDir(args)])).results.into_vec();
        let Some(OpResult::ReadDir(listing)) = results.pop() else { panic!("no listing") };
        let entries = listing.into_result()?.entries;
        let decode = |attributes| Attributes::from_file_attributes(attributes).unwrap();
        Ok(entries.iter().map(|entry| decode(&entry.attributes)).collect())
    }

    /// RFC 8881 §11.15.2, the example of READDIR.
    #[test]
    fn a_listing_of_a_referral_needs_rdattr_error_or_fs_locations() {
        let mut lab = two();
        let rest = [n::FSID, n::SIZE, n::TIME_MODIFY, n::MOUNTED_ON_FILEID];
        assert_eq!(list(&mut lab, &rest), Err(Status::MOVED));
        let with_error = list(&mut lab, &[&rest[..], &[n::RDATTR_ERROR]].concat()).unwrap();
        assert_eq!(with_error[0].rdattr_error, Some(Status::OK));
        assert_eq!(with_error[1].rdattr_error, Some(Status::MOVED));
        assert_eq!(with_error[1].mask(), Bitmap::of(&[n::RDATTR_ERROR, n::FSID, n::MOUNTED_ON_FILEID]));
        let all = list(&mut lab, &[&rest[..], &[n::RDATTR_ERROR, n::FS_LOCATIONS]].concat()).unwrap();
        assert_eq!(all[1].rdattr_error, Some(Status::OK));
        assert_eq!(place(&all[1]).1, "there.example.org");
        assert_eq!(all[1].size, None);
        assert!(all[0].size.is_some() && all[0].fs_locations.is_none(), "the present one has no locations");
        assert_eq!(all[1].mounted_on_fileid, with_error[1].mounted_on_fileid);
        assert_ne!(all[0].fsid, all[1].fsid);
    }

    #[test]
    fn all_that_a_client_holds_of_an_export_that_moves_is_moved() {
        let before = export(2, "/data/there");
        let mut lab = lab_of(vec![export(1, "/data/here"), before.clone()]);
        let file = lab.file(&["data", "there", "file"], b"text");
        let (here, root) = (lab.handle(&["data", "here"]), lab.handle(&["data", "there"]));
        let open = |lab: &mut Lab| {
            use protocol::nfs4::ops::open::{OpenHow, ShareAccess};
            let args = open_args("file", b"owner", ShareAccess::READ, OpenHow::NoCreate);
            lab.status(at(&["data", "there"], vec![Op::Open(args)]))
        };
        assert_eq!(open(&mut lab), Status::OK);
        let table = ExportTable::new(vec![export(1, "/data/here"), moved_from(before.clone())]).unwrap();
        lab.server.replace_exports(table);
        let used = [
            Op::GetFh,
            Op::SaveFh,
            Op::LookupParent,
            lookup("file"),
            create("file", b"owner"),
            getattr(&[n::TYPE]),
            Op::ReadLink,
        ];
        for op in used {
            let result = lab.run(vec![putfh(root), op.clone()]);
            // PUTFH itself succeeds.
            assert_eq!((result.status, result.results.len()), (Status::MOVED, 3), "{op:?}");
        }
        assert_eq!(lab.status(vec![putfh(file), putfh(here), Op::GetFh]), Status::OK);
        let seen = lab.last(vec![putfh(file), getattr(&[n::FS_LOCATIONS, n::FSID, n::MOUNTED_ON_FILEID])]);
        assert_eq!(attributes_in(&seen).mask(), Bitmap::of(&[n::FS_LOCATIONS, n::FSID]));
        assert_eq!(lab.server.counts().opens, 0, "its opens were revoked");
        // It can return.
        let table = ExportTable::new(vec![export(1, "/data/here"), before]).unwrap();
        lab.server.replace_exports(table);
        assert_eq!(lab.status(vec![putfh(file), Op::GetFh]), Status::OK);
        assert_eq!(open(&mut lab), Status::OK);
    }

    fn moved_from(export: Export) -> Export {
        let mut moved = moved(export.id.0, &export.path);
        moved.backend = export.backend;
        moved
    }

    #[test]
    fn version_4_0_has_referrals_too() {
        let lab = two();
        let mut old = V40Lab::of(&lab.server, 2, b"old");
        assert_eq!(old.status(at(&["data", "there"], vec![Op::GetFh])), Status::MOVED);
        assert_eq!(old.status(at(&["data", "there"], vec![getattr(&[n::FS_LOCATIONS])])), Status::OK);
    }

    #[test]
    fn a_replicated_export_tells_its_replicas_and_is_served() {
        let mut exported = export(1, "/export");
        let there = "there:/copy".parse().unwrap();
        exported.options.locations = Locations::Replicated(Arc::from([there]));
        let mut lab = lab_of(vec![exported]);
        lab.file(&["export", "file"], b"text");
        let seen = lab.attributes(&["export", "file"], &[n::FS_LOCATIONS, n::SIZE, n::SUPPORTED_ATTRS]);
        assert_eq!(seen.size, Some(4));
        assert!(seen.supported_attrs.unwrap().has(n::FS_LOCATIONS));
        let servers: Vec<Vec<u8>> = seen
            .fs_locations
            .unwrap()
            .locations
            .iter()
            .map(|location| location.servers[0].to_vec())
            .collect();
        assert_eq!(servers, [&b""[..], b"there"]);
    }

    #[test]
    fn version_3_answers_remote_for_a_handle_of_an_export_that_moved() {
        let before = export(1, "/export");
        let mut lab = lab_of(vec![before.clone()]);
        let file = lab.file(&["export", "file"], b"text");
        lab.server.replace_exports(ExportTable::new(vec![moved_from(before)]).unwrap());
        let object = nfs3::FileHandle::new(&file).unwrap();
        assert_eq!(lab.nfs3(nfs3::Proc::GETATTR.0, &nfs3::GetattrArgs { object }), NfsStat::REMOTE);
    }
}
