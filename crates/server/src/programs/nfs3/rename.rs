use protocol::nfs3::{NfsStat, Outcome, RenameArgs, RenameWcc};
use xdr::Writer;

use crate::files::stateless::changer;
use crate::nfs3_reply::{answer, removal_status, resolve_writable, wcc_data};
use crate::request::{Request, Target};

/// RENAME (RFC 1813 §3.3.14).
pub(super) async fn serve(request: &Request<'_>, args: RenameArgs, reply: &mut Writer) -> NfsStat {
    let targets = resolve_writable(request, &args.from.dir)
        .and_then(|from| resolve_writable(request, &args.to.dir).map(|to| (from, to)));
    let (from, to) = match targets {
        Ok(targets) => targets,
        Err(status) => return answer(reply, &Outcome::<RenameWcc, _>::Fail(status, RenameWcc::default())),
    };
    match rename(request, (&from, &args.from.name), (&to, &args.to.name)).await {
        Ok(wcc) => answer(reply, &Outcome::<_, RenameWcc>::Ok(wcc)),
        Err(status) => {
            let wcc = RenameWcc { fromdir_wcc: from.wcc().await, todir_wcc: to.wcc().await };
            answer(reply, &Outcome::<RenameWcc, _>::Fail(status, wcc))
        }
    }
}

async fn rename(
    request: &Request<'_>,
    (from, from_name): (&Target<'_>, &[u8]),
    (to, to_name): (&Target<'_>, &[u8]),
) -> Result<RenameWcc, NfsStat> {
    // "The directories … must reside on the same file system …: NFS3ERR_XDEV."
    if from.export.id != to.export.id {
        return Err(NfsStat::XDEV);
    }
    // "It is not legal for either name to be `.` or `..`": INVAL.
    if [from_name, to_name].iter().any(|name| matches!(*name, b"." | b"..")) {
        return Err(NfsStat::INVAL);
    }
    let names = ((&from.handle, from_name), (&to.handle, to_name));
    let renamed = changer(request)
        .rename(from.export, &from.context, names.0, names.1)
        .await
        .map_err(removal_status)?;
    Ok(RenameWcc {
        fromdir_wcc: wcc_data(from.export, &renamed.from),
        todir_wcc: wcc_data(to.export, &renamed.to),
    })
}
