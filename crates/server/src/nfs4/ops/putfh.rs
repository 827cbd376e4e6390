//! PUTFH (RFC 8881 §18.19): takes a file handle from the client.

use protocol::nfs4::types::{MAX_HANDLE, Status};
use xdr::Reader;

use crate::ExportId;
use crate::nfs4::compound::Compound;
use crate::nfs4::object::{File, Object};
use crate::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let wire = arguments.opaque_ref(MAX_HANDLE)?;
    let object = resolve(compound, wire)?;
    compound.set_current(object, None);
    Ok(())
}

/// What a handle stands for. Whether the file is still there is for the operations that follow to find out: asking here
/// would cost each of them a system call more.
fn resolve<'r>(compound: &Compound<'r>, wire: &[u8]) -> Result<Object<'r>> {
    let key = &compound.server().settings().handle_key;
    // RFC 8881 §15.1.2.1: BADHANDLE, "illegal NFS filehandle for the current server".
    let (id, handle) = key.open(wire).ok_or(Status::BADHANDLE)?;
    if id == ExportId::PSEUDO {
        let pseudo = compound.exports().pseudo();
        let peer = compound.request.connection.peer.ip();
        return pseudo
            .by_handle(&handle)
            .filter(|node| node.is_visible(compound.exports(), peer))
            .map(Object::Pseudo)
            .ok_or(Status::STALE.into());
    }
    // RFC 8881 §15.1.2.7: STALE also where "access to it has been revoked": an export that is gone, or that this client
    // may not use. PUTFH has no ACCESS among its errors.
    let export = compound.exports().by_id(id).filter(|export| compound.admits(export));
    Ok(Object::File(File { export: export.ok_or(Status::STALE)?, handle }))
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::{Handle, Status};

    use crate::testing::{export, export_for, getattr, lab, lab_of, putfh};
    use crate::{ExportId, ExportTable, HandleKey};

    #[test]
    fn a_handle_leads_back_to_its_object() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"x");
        for path in [&[][..], &["export"], &["export", "file"]] {
            let handle = lab.handle(path);
            let again = lab.last(vec![putfh(handle), Op::GetFh]);
            assert_eq!(again, protocol::nfs4::compound::OpResult::GetFh(Ok(handle).into()));
        }
        assert_eq!(file, lab.handle(&["export", "file"]));
    }

    #[test]
    fn refuses_what_this_server_never_made() {
        let mut lab = lab();
        let real = lab.handle(&["export"]);
        let mut forged = real.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let inner = vfs::Handle::new(b"guess").unwrap();
        let foreign = HandleKey([1; 16]).seal(ExportId(1), &inner);
        for bytes in [&forged[..], b"", &[0xff; 128], &real[..real.len() - 1], &foreign] {
            let handle = Handle::new(bytes).unwrap();
            assert_eq!(lab.status(vec![putfh(handle)]), Status::BADHANDLE, "{handle:?}");
        }
    }

    #[test]
    fn an_export_that_is_gone_or_not_for_this_client_is_stale() {
        let mut lab = lab_of(vec![export(1, "/export"), export(2, "/other")]);
        let (one, two) = (lab.handle(&["export"]), lab.handle(&["other"]));
        let elsewhere = export_for(2, "/other", "192.0.2.0/24");
        lab.server.replace_exports(ExportTable::new(vec![elsewhere]).unwrap());
        assert_eq!(lab.status(vec![putfh(one)]), Status::STALE);
        assert_eq!(lab.status(vec![putfh(two)]), Status::STALE);
    }

    #[test]
    fn a_removed_file_is_stale_to_the_next_operation() {
        use protocol::nfs4::ops::remove::RemoveArgs;
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"x");
        let target = crate::testing::name("file");
        lab.ok(crate::testing::at(&["export"], vec![Op::Remove(RemoveArgs { target })]));
        assert_eq!(lab.status(vec![putfh(file), getattr(&[1])]), Status::STALE);
    }
}
