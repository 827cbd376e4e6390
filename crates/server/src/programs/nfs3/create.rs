use protocol::nfs3::{CreateArgs, CreateHow, CreateOk, DirOpArgs, NfsStat, Outcome, Sattr, WccData};
use vfs::{Create, CreateMode, Error};
use xdr::Writer;

use crate::files::stateless::{admit_truncation, changer};
use crate::nfs3_reply::{answer, fattr, refusal_status, resolve_writable, set_attributes, status, wcc_data};
use crate::request::{Request, Target};

/// CREATE (RFC 1813 §3.3.8).
pub(super) async fn serve(request: &Request<'_>, args: CreateArgs, reply: &mut Writer) -> NfsStat {
    let (mode, attributes) = match args.how {
        CreateHow::Unchecked(attributes) => (CreateMode::Unchecked, attributes),
        CreateHow::Guarded(attributes) => (CreateMode::Guarded, attributes),
        // "… the client … must … set the attributes" afterwards, by SETATTR.
        CreateHow::Exclusive(verifier) => (CreateMode::Exclusive(verifier), Sattr::default()),
    };
    create(request, &args.where_, &Create::File(mode), &attributes, reply).await
}

/// Creates any object: CREATE, MKDIR, SYMLINK and MKNOD have the same results.
pub(super) async fn create(
    request: &Request<'_>,
    place: &DirOpArgs,
    what: &Create,
    attributes: &Sattr,
    reply: &mut Writer,
) -> NfsStat {
    let target = match resolve_writable(request, &place.dir) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<CreateOk, _>::Fail(status, WccData::default())),
    };
    match create_in(request, &target, &place.name, what, attributes).await {
        Ok(ok) => answer(reply, &Outcome::<_, WccData>::Ok(ok)),
        Err(status) => answer(reply, &Outcome::<CreateOk, _>::Fail(status, Box::pin(target.wcc()).await)),
    }
}

async fn create_in(
    request: &Request<'_>,
    target: &Target<'_>,
    name: &[u8],
    what: &Create,
    attributes: &Sattr,
) -> Result<CreateOk, NfsStat> {
    // RFC 1813 §3.3.8–3.3.11: `.` and `..` exist already.
    if matches!(name, b"." | b"..") {
        return Err(NfsStat::EXIST);
    }
    let set = set_attributes(attributes)?;
    // An unchecked CREATE truncates an existing file.
    let cuts = matches!(what, Create::File(CreateMode::Unchecked)) && set.size.is_some();
    let _changing = if cuts {
        Box::pin(admit_truncation(request, target, name)).await.map_err(refusal_status)?
    } else {
        None
    };
    let created = changer(request).create(target.place(), name, what, &set).await;
    // RFC 1813 §3.3.8 has one status for an existing name, for every type of object: NFS3ERR_EXIST.
    let created = created.map_err(|error| match error {
        Error::IsDirectory | Error::IsSymlink | Error::WrongKind => NfsStat::EXIST,
        error => status(error),
    })?;
    Ok(CreateOk {
        obj: Some(target.seal(request, &created.handle)),
        obj_attributes: Some(fattr(target.export, &created.attributes)),
        dir_wcc: wcc_data(target.export, &created.directory),
    })
}
