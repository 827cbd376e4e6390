//! PUTROOTFH (RFC 8881 §18.21): makes the root of the tree current: a pseudo directory, or the export that is mounted there.

use super::lookup::enter;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>) -> Result {
    let root = enter(compound, compound.exports().pseudo().root())?;
    compound.set_current(root, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::types::{FileType, Fsid, Status};
    use rpc::gss::Service;

    use crate::testing::{at, export, export_for, lab, lab_of, lookup, mode, name, putfh};
    use crate::{Export, ExportOptions, Flavor, Flavors};

    #[test]
    fn the_root_is_a_directory_of_its_own_file_system() {
        let mut lab = lab();
        let root = lab.attributes(&[], &[n::TYPE, n::FSID]);
        assert_eq!(root.file_type, Some(FileType::DIRECTORY));
        assert_eq!(root.fsid, Some(Fsid { major: 0, minor: 0 }));
        assert_ne!(lab.attributes(&["export"], &[n::FSID]).fsid, root.fsid);
    }

    #[test]
    fn an_export_at_the_root_is_the_root() {
        let mut lab = lab_of(vec![export(1, "/")]);
        lab.file(&["file"], b"content");
        assert_eq!(lab.status_at(&["file"], Op::GetFh), Status::OK);
        let root = lab.attributes(&[], &[n::TYPE, n::FSID, n::FILEID, n::MOUNTED_ON_FILEID]);
        assert_eq!(root.file_type, Some(FileType::DIRECTORY));
        assert_ne!(
            root.fsid,
            Some(Fsid { major: 0, minor: 0 }),
            "it is not a directory of the pseudo file system"
        );
        // RFC 8881 §5.8.2.23: the root of the tree is mounted on nothing.
        assert_eq!(root.mounted_on_fileid, root.fileid);
        // RFC 8881 §18.14.3: "If there is no parent directory, an NFS4ERR_NOENT error must be returned."
        assert_eq!(lab.status_at(&[], Op::LookupParent), Status::NOENT);
        let directory =
            CreateArgs { object_type: CreateType::DIRECTORY, name: name("made"), attributes: mode(0o755) };
        lab.ok(at(&[], vec![Op::Create(directory)]));
        let above = lab.last(at(&["made"], vec![Op::LookupParent, Op::GetFh]));
        assert_eq!(above, lab.last(at(&[], vec![Op::GetFh])));
    }

    #[test]
    fn a_client_without_access_gets_an_empty_root() {
        let mut lab = lab_of(vec![export_for(1, "/", "10.0.0.0/8")]);
        let root = lab.attributes(&[], &[n::FSID, n::TYPE]);
        assert_eq!(root.fsid, Some(Fsid { major: 0, minor: 0 }));
        assert_eq!(lab.status_at(&[], lookup("file")), Status::NOENT);
        let handle = lab.handle(&[]);
        assert_eq!(lab.status(vec![putfh(handle), Op::GetFh]), Status::OK);
    }

    #[test]
    fn an_export_at_the_root_reports_its_flavors() {
        let open = export(1, "/");
        let flavors = Flavors::new(&[Flavor::Kerberos(Service::Privacy)]).unwrap();
        let options = ExportOptions { flavors, ..open.options.clone() };
        let mut lab = lab_of(vec![Export { options, ..open }]);
        assert_eq!(lab.status_at(&[], lookup("file")), Status::WRONGSEC);
    }
}
