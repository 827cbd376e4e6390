use protocol::nfs3::{
    FsProperties, FsinfoArgs, FsinfoOk, FsstatArgs, FsstatOk, NfsStat, NfsTime, Outcome, PathconfArgs,
    PathconfOk, PostOpAttr,
};
use xdr::Writer;

use crate::nfs3_reply::{answer, fattr, resolve, resolve_at_mount, status};
use crate::request::Request;

/// READ and WRITE sizes that are a multiple of this cover whole pages.
const PREFERRED_MULTIPLE: u32 = 4096;

/// The preferred size of a READDIR request in bytes.
const PREFERRED_READDIR: u32 = 64 << 10;

/// FSSTAT (RFC 1813 §3.3.18).
pub(super) async fn serve_fsstat(request: &Request<'_>, args: FsstatArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.fsroot) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<FsstatOk, PostOpAttr>::Fail(status, None)),
    };
    match target.export.backend.statfs(&target.context, &target.handle).await {
        Ok((space, attributes)) => answer(
            reply,
            &Outcome::<_, PostOpAttr>::Ok(FsstatOk {
                obj_attributes: Some(fattr(target.export, &attributes)),
                tbytes: space.total_bytes,
                fbytes: space.free_bytes,
                abytes: space.available_bytes,
                tfiles: space.total_files,
                ffiles: space.free_files,
                afiles: space.available_files,
                invarsec: 0,
            }),
        ),
        Err(error) => answer(reply, &Outcome::<FsstatOk, _>::Fail(status(error), target.post_op().await)),
    }
}

/// FSINFO (RFC 1813 §3.3.19).
pub(super) async fn serve_fsinfo(request: &Request<'_>, args: FsinfoArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve_at_mount(request, &args.fsroot) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<FsinfoOk, PostOpAttr>::Fail(status, None)),
    };
    let attributes = match target.export.backend.getattr(&target.context, &target.handle).await {
        Ok(attributes) => attributes,
        Err(error) => return answer(reply, &Outcome::<FsinfoOk, PostOpAttr>::Fail(status(error), None)),
    };
    let (properties, max_io) = (target.export.backend.properties(), request.max_io());
    let info = FsinfoOk {
        obj_attributes: Some(fattr(target.export, &attributes)),
        rtmax: max_io,
        rtpref: max_io,
        rtmult: PREFERRED_MULTIPLE,
        wtmax: max_io,
        wtpref: max_io,
        wtmult: PREFERRED_MULTIPLE,
        dtpref: PREFERRED_READDIR.min(max_io),
        maxfilesize: properties.max_file_size,
        time_delta: NfsTime {
            seconds: properties.time_delta_ns / 1_000_000_000,
            nseconds: properties.time_delta_ns % 1_000_000_000,
        },
        properties: FsProperties::LINK
            | FsProperties::SYMLINK
            | FsProperties::HOMOGENEOUS
            | FsProperties::CANSETTIME,
    };
    answer(reply, &Outcome::<_, PostOpAttr>::Ok(info))
}

/// PATHCONF (RFC 1813 §3.3.20).
pub(super) async fn serve_pathconf(request: &Request<'_>, args: PathconfArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.object) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<PathconfOk, PostOpAttr>::Fail(status, None)),
    };
    let attributes = match target.export.backend.getattr(&target.context, &target.handle).await {
        Ok(attributes) => attributes,
        Err(error) => return answer(reply, &Outcome::<PathconfOk, PostOpAttr>::Fail(status(error), None)),
    };
    let properties = target.export.backend.properties();
    let pathconf = PathconfOk {
        obj_attributes: Some(fattr(target.export, &attributes)),
        linkmax: properties.max_links,
        name_max: properties.max_name,
        // Longer names are refused, not truncated.
        no_trunc: true,
        chown_restricted: properties.chown_restricted,
        case_insensitive: properties.case_insensitive,
        case_preserving: properties.case_preserving,
    };
    answer(reply, &Outcome::<_, PostOpAttr>::Ok(pathconf))
}
