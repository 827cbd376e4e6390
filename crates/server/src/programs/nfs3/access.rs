use protocol::nfs3::{Access, AccessArgs, AccessOk, NfsStat, Outcome, PostOpAttr};
use xdr::Writer;

use crate::nfs3_reply::{answer, fattr, resolve, status};
use crate::request::Request;

/// ACCESS (RFC 1813 §3.3.4). "The results … are advisory": a later call is checked again.
pub(super) async fn serve(request: &Request<'_>, args: AccessArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.object) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<AccessOk, PostOpAttr>::Fail(status, None)),
    };
    let want = vfs::Access::from_bits_truncate((args.access & Access::all()).bits());
    match target.export.backend.access(&target.context, &target.handle, want).await {
        Ok((granted, attributes)) => {
            let mut access = Access::from_bits_truncate(granted.bits());
            if target.export.options.read_only {
                access -= Access::MODIFY | Access::EXTEND | Access::DELETE;
            }
            let obj_attributes = Some(fattr(target.export, &attributes));
            answer(reply, &Outcome::<_, PostOpAttr>::Ok(AccessOk { obj_attributes, access }))
        }
        Err(error) => answer(reply, &Outcome::<AccessOk, _>::Fail(status(error), target.post_op().await)),
    }
}
