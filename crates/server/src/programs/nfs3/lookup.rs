use protocol::nfs3::{LookupArgs, LookupOk, NfsStat, Outcome, PostOpAttr};
use xdr::Writer;

use crate::files::lookup::find;
use crate::nfs3_reply::{answer, fattr, resolve, seal, status};
use crate::request::Request;

/// LOOKUP (RFC 1813 §3.3.3).
pub(super) async fn serve(request: &Request<'_>, args: LookupArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.what.dir) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<LookupOk, PostOpAttr>::Fail(status, None)),
    };
    match find(request, &target, &args.what.name).await {
        Ok((export, found)) => answer(
            reply,
            &Outcome::<_, PostOpAttr>::Ok(LookupOk {
                object: seal(request, export, &found.handle),
                obj_attributes: Some(fattr(export, &found.attributes)),
                dir_attributes: Some(fattr(target.export, &found.directory)),
            }),
        ),
        Err(error) => {
            answer(reply, &Outcome::<LookupOk, PostOpAttr>::Fail(status(error), target.post_op().await))
        }
    }
}
