use protocol::nfs3::{NfsStat, Outcome, PostOpAttr};
use protocol::nfsacl::{Acl as WireAcl, AclTag as WireTag, GetAclArgs, GetAclOk, Mask, SecAttr};
use vfs::{Acl, AclKind, Attributes, Error};
use xdr::{List, Writer};

use super::to_wire;
use crate::nfs3_reply::{answer, fattr, resolve, status};
use crate::request::{Request, Target};

/// GETACL: the requested lists, or their lengths alone.
pub(super) async fn serve(request: &Request<'_>, args: GetAclArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.fh) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<GetAclOk, PostOpAttr>::Fail(status, None)),
    };
    if !Mask::all().contains(args.mask) {
        let attributes = target.post_op().await;
        return answer(reply, &Outcome::<GetAclOk, _>::Fail(NfsStat::INVAL, attributes));
    }
    match get(&target, args.mask).await {
        Ok((file, acl)) => {
            let attributes = Some(fattr(target.export, &file));
            answer(reply, &Outcome::<_, PostOpAttr>::Ok(GetAclOk { attributes, acl }))
        }
        Err(error) => answer(reply, &Outcome::<GetAclOk, _>::Fail(status(error), target.post_op().await)),
    }
}

async fn get(target: &Target<'_>, mask: Mask) -> Result<(Attributes, SecAttr), Error> {
    let (backend, context, handle) = (&target.export.backend, &target.context, &target.handle);
    let file = backend.getattr(context, handle).await?;
    let mut lists = SecAttr { mask, ..SecAttr::default() };
    if mask.intersects(Mask::ACL | Mask::ACLCNT) {
        let acl = backend.get_acl(context, handle, AclKind::Access).await?;
        // Like Linux's server: "Solaris returns the inode's minimum ACL."
        let acl = acl.unwrap_or_else(|| Acl::of_mode(file.mode));
        lists.acl = list(&acl, &file, 0, mask.contains(Mask::ACL));
    }
    if mask.intersects(Mask::DFACL | Mask::DFACLCNT)
        && let Some(acl) = backend.get_acl(context, handle, AclKind::Default).await?
    {
        lists.dfacl = list(&acl, &file, WireTag::DEFAULT, mask.contains(Mask::DFACL));
    }
    Ok((file, lists))
}

fn list(acl: &Acl, file: &Attributes, marker: u32, with_entries: bool) -> WireAcl {
    let entries = to_wire(acl, file, marker);
    let count = entries.len() as u32;
    // An ACL never has more entries than the wire allows; one of that length includes a mask.
    let entries = if with_entries { List::new(entries).unwrap_or_default() } else { List::default() };
    WireAcl { count, entries }
}
