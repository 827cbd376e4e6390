use protocol::nfs3::{GetattrArgs, NfsStat, Outcome};
use xdr::Writer;

use crate::files::stateless::attributes;
use crate::nfs3_reply::{answer, fattr, resolve_at_mount, status};
use crate::request::Request;

/// GETATTR (RFC 1813 §3.3.1).
pub(super) async fn serve(request: &Request<'_>, args: GetattrArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve_at_mount(request, &args.object) {
        Ok(target) => target,
        Err(status) => return answer::<(), ()>(reply, &Outcome::Fail(status, ())),
    };
    match attributes(request, &target).await {
        Ok(attributes) => answer::<_, ()>(reply, &Outcome::Ok(fattr(target.export, &attributes))),
        Err(error) => answer::<(), ()>(reply, &Outcome::Fail(status(error), ())),
    }
}
