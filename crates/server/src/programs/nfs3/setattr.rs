use protocol::nfs3::{NfsStat, Outcome, SetattrArgs, WccData};
use vfs::Authority;
use xdr::Writer;

use crate::files::recall::announce_change;
use crate::files::rights::Right;
use crate::nfs3_reply::{
    answer, check_denials, recall_conflicts, resolve_writable, set_attributes, status, timestamp, wcc_data,
};
use crate::request::{Request, Target};
use crate::state::{Conflict, IoKind};

/// SETATTR (RFC 1813 §3.3.2).
pub(super) async fn serve(request: &Request<'_>, args: SetattrArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve_writable(request, &args.object) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<WccData, _>::Fail(status, WccData::default())),
    };
    match set(request, &target, &args).await {
        Ok(wcc) => answer(reply, &Outcome::<_, WccData>::Ok(wcc)),
        Err(status) => answer(reply, &Outcome::<WccData, _>::Fail(status, target.wcc().await)),
    }
}

async fn set(request: &Request<'_>, target: &Target<'_>, args: &SetattrArgs) -> Result<WccData, NfsStat> {
    let set = set_attributes(&args.new_attributes)?;
    if set.size.is_some() {
        check_denials(request, target, IoKind::Write)?;
    }
    let _changing = announce_change(request, &target.handle);
    // A SETATTR that sets nothing needs no right, and recalls nothing.
    if !set.is_empty() {
        let right = Right::Attributes(&set, Authority::Caller);
        recall_conflicts(request, target, Conflict::Any, right).await?;
    }
    if set.size.is_some() {
        // Again after the wait, as in `admit_io`.
        check_denials(request, target, IoKind::Write)?;
    }
    // "If the guard … does not match the ctime of the object, NFS3ERR_NOT_SYNC."
    let guard = args.guard.map(timestamp).transpose()?;
    let Target { export, handle, context } = target;
    let change = match guard {
        Some(guard) => request.logged_ops().setattr(export, context, handle, &set, guard).await,
        // Like WRITE, it can be repeated over a restart.
        None => export.backend.setattr(context, handle, &set, None, Authority::Caller).await,
    };
    change.map(|change| wcc_data(target.export, &change)).map_err(status)
}
