use protocol::nfs3::{NfsStat, Outcome, PostOpAttr};
use protocol::nfsacl::{Mask, SetAclArgs};
use vfs::{AclKind, Attributes};
use xdr::Writer;

use super::from_wire;
use crate::files::recall::announce_change;
use crate::files::rights::Right;
use crate::nfs3_reply::{answer, fattr, recall_conflicts, resolve_writable, status};
use crate::request::{Request, Target};
use crate::state::Conflict;

/// SETACL: sets the given lists, the access list first, because it protects the file.
pub(super) async fn serve(request: &Request<'_>, args: SetAclArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve_writable(request, &args.fh) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<PostOpAttr, PostOpAttr>::Fail(status, None)),
    };
    match set(request, &target, &args).await {
        Ok(file) => {
            let attributes = match file {
                Some(file) => Some(fattr(target.export, &file)),
                None => target.post_op().await,
            };
            answer(reply, &Outcome::<_, PostOpAttr>::Ok(attributes))
        }
        Err(error) => answer(reply, &Outcome::<PostOpAttr, _>::Fail(error, target.post_op().await)),
    }
}

/// Sets both lists, or none if one of them is invalid.
async fn set(
    request: &Request<'_>,
    target: &Target<'_>,
    args: &SetAclArgs,
) -> Result<Option<Attributes>, NfsStat> {
    if !Mask::all().contains(args.acl.mask) {
        return Err(NfsStat::INVAL);
    }
    let access = from_wire(&args.acl.acl.entries).map_err(status)?;
    let default = from_wire(&args.acl.dfacl.entries).map_err(status)?;
    let _changing = announce_change(request, &target.handle);
    recall_conflicts(request, target, Conflict::Any, Right::Own).await?;
    let (backend, context, handle) = (&target.export.backend, &target.context, &target.handle);
    let mut after = None;
    // An empty access list is ignored: permissions would be undefined.
    if let (true, Some(acl)) = (args.acl.mask.contains(Mask::ACL), &access) {
        let change = backend.set_acl(context, handle, AclKind::Access, Some(acl)).await.map_err(status)?;
        after = Some(change.after);
    }
    if args.acl.mask.contains(Mask::DFACL) {
        let change = backend.set_acl(context, handle, AclKind::Default, default.as_ref()).await;
        after = Some(change.map_err(status)?.after);
    }
    Ok(after)
}
