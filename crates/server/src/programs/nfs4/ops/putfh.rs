//! PUTFH (RFC 8881 §18.19): makes the given file handle current.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::types::{MAX_HANDLE, OpNum, Status};
use xdr::{Reader, padding};

use crate::ExportId;
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let wire = arguments.opaque_ref(MAX_HANDLE)?;
    let (length, resolved) = (wire.len(), resolve(compound, wire));
    match resolved {
        Err(_) if is_to_be_saved(compound, arguments) => {
            // Borrowed from the request, which outlives the compound.
            let all = &compound.request.arguments;
            let end = all.len() - arguments.remaining() - padding(length);
            compound.set_foreign(&all[end - length..end]);
        }
        object => compound.set_current(object?, None),
    }
    Ok(())
}

/// Returns whether the handle may be another server's. RFC 7862 §15.2.3: "If a server supports the inter-server copy feature, a PUTFH
/// followed by a SAVEFH MUST NOT return NFS4ERR_STALE for either operation." This holds even without `copy-from`:
/// Linux's client copies by itself if COPY fails, but fails if PUTFH does.
fn is_to_be_saved(compound: &Compound<'_>, arguments: &Reader) -> bool {
    let next = arguments.peek().first_chunk().map(|number| u32::from_be_bytes(*number));
    compound.minor >= 2 && compound.index + 1 < compound.count && next == Some(OpNum::SAVEFH.0)
}

/// Resolves a handle. Later operations check whether the file still exists: a check here would cost each compound a system
/// call.
fn resolve<'r>(compound: &Compound<'r>, wire: &[u8]) -> Result<Object<'r>> {
    let key = &compound.server().settings().handle_key;
    // RFC 8881 §15.1.2.1: BADHANDLE, "illegal NFS filehandle for the current server".
    let (id, handle) = key.open(wire).ok_or(Status::BADHANDLE)?;
    if id == ExportId::PSEUDO {
        let pseudo = compound.exports().pseudo();
        let peer = compound.request.connection.peer.ip();
        return pseudo
            .by_handle(&handle, compound.exports(), peer)
            .filter(|node| node.is_visible(compound.exports(), peer))
            .map(Object::Pseudo)
            .ok_or(Status::STALE.into());
    }
    // RFC 8881 §15.1.2.7: STALE also if "access to it has been revoked": the export was removed, or this client may not use it.
    // PUTFH's errors do not include ACCESS.
    let export = compound.export(id).ok_or(Status::STALE)?;
    export.counts.requests.fetch_add(1, Relaxed);
    compound.uses(export);
    Ok(Object::File(File::opened(export, handle, wire)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::{Handle, Status};

    use crate::testing::{Lab, export, export_for, getattr, lab, lab_of, lookup, putfh};
    use crate::{ExportId, ExportTable, HandleKey};

    #[test]
    fn a_handle_names_its_object() {
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
    fn refuses_handles_of_no_server() {
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
    fn a_foreign_handle_can_only_be_saved() {
        use protocol::nfs4::ops::access::AccessArgs;
        use protocol::nfs4::ops::access::AccessMask;
        let mut lab = crate::testing::lab_42();
        let (own, foreign) = (lab.handle(&["export"]), Handle::new(b"of another server").unwrap());
        assert_eq!(lab.status(vec![putfh(foreign), Op::SaveFh, putfh(own), getattr(&[1])]), Status::OK);
        for wrong in [
            vec![putfh(foreign)],
            vec![putfh(foreign), Op::GetFh],
            vec![putfh(foreign), Op::Access(AccessArgs { access: AccessMask::READ }), Op::SaveFh],
        ] {
            assert_eq!(lab.run(wrong.clone()).status, Status::BADHANDLE, "{wrong:?}");
        }
        for used in [Op::GetFh, getattr(&[1]), lookup("file"), Op::LookupParent, Op::ReadLink] {
            let restored = vec![putfh(foreign), Op::SaveFh, putfh(own), Op::RestoreFh, used.clone()];
            assert_eq!(lab.run(restored).status, Status::STALE, "{used:?}");
            assert_eq!(lab.run(vec![putfh(foreign), Op::SaveFh, used]).status, Status::STALE);
        }
        lab.minor = 1;
        assert_eq!(lab.status(vec![putfh(foreign), Op::SaveFh]), Status::BADHANDLE);
    }

    #[test]
    fn a_removed_or_forbidden_export_is_stale() {
        let mut lab = lab_of(vec![export(1, "/export"), export(2, "/other")]);
        let (one, two) = (lab.handle(&["export"]), lab.handle(&["other"]));
        let elsewhere = export_for(2, "/other", "192.0.2.0/24");
        lab.server.replace_exports(ExportTable::new(vec![elsewhere]).unwrap());
        assert_eq!(lab.status(vec![putfh(one)]), Status::STALE);
        let refused = |lab: &Lab| lab.server.metrics().refused.load(Relaxed);
        assert_eq!(refused(&lab), 0, "a removed object causes no refusal");
        assert_eq!(lab.status(vec![putfh(two)]), Status::STALE);
        assert_eq!(refused(&lab), 1);
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
