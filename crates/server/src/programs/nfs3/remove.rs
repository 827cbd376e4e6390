use protocol::nfs3::{NfsStat, Outcome, RemoveArgs, WccData};
use vfs::Removal;
use xdr::Writer;

use crate::files::stateless::changer;
use crate::nfs3_reply::{answer, removal_status, resolve_writable, wcc_data};
use crate::request::{Request, Target};

/// REMOVE (RFC 1813 §3.3.12).
pub(super) async fn serve_remove(request: &Request<'_>, args: RemoveArgs, reply: &mut Writer) -> NfsStat {
    remove(request, &args, Removal::File, reply).await
}

/// RMDIR (RFC 1813 §3.3.13).
pub(super) async fn serve_rmdir(request: &Request<'_>, args: RemoveArgs, reply: &mut Writer) -> NfsStat {
    remove(request, &args, Removal::Directory, reply).await
}

async fn remove(request: &Request<'_>, args: &RemoveArgs, removal: Removal, reply: &mut Writer) -> NfsStat {
    let target = match resolve_writable(request, &args.object.dir) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<WccData, _>::Fail(status, WccData::default())),
    };
    match remove_from(request, &target, &args.object.name, removal).await {
        Ok(wcc) => answer(reply, &Outcome::<_, WccData>::Ok(wcc)),
        Err(status) => answer(reply, &Outcome::<WccData, _>::Fail(status, Box::pin(target.wcc()).await)),
    }
}

async fn remove_from(
    request: &Request<'_>,
    target: &Target<'_>,
    name: &[u8],
    removal: Removal,
) -> Result<WccData, NfsStat> {
    match (name, removal) {
        // §3.3.13: "If the last component … is `.`", INVAL; "is `..`", EXIST.
        (b".", Removal::Directory) => return Err(NfsStat::INVAL),
        (b"..", Removal::Directory) => return Err(NfsStat::EXIST),
        (b"." | b"..", _) => return Err(NfsStat::ISDIR),
        _ => {}
    }
    let change = changer(request).remove(target.place(), name, removal).await.map_err(removal_status)?;
    Ok(wcc_data(target.export, &change))
}
