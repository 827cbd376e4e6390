use protocol::nfs3::{GetattrArgs, NfsStat, Outcome};
use xdr::Writer;

use crate::files::held_attributes::ask_holder;
use crate::nfs3_reply::{answer, fattr, resolve_at_mount, status};
use crate::request::Request;

/// GETATTR (RFC 1813 §3.3.1).
pub(super) async fn serve(request: &Request<'_>, args: GetattrArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve_at_mount(request, &args.object) {
        Ok(target) => target,
        Err(status) => return answer::<(), ()>(reply, &Outcome::Fail(status, ())),
    };
    let held = match ask_holder(request, None, (target.export, &target.handle)).await {
        Ok(held) => held,
        Err(_) => return answer::<(), ()>(reply, &Outcome::Fail(NfsStat::JUKEBOX, ())),
    };
    let backend = &target.export.backend;
    let mut seen = backend.getattr(&target.context, &target.handle).await;
    if let Ok(attributes) = &mut seen
        && !request.server.state.apply_held_attributes(held, attributes)
    {
        seen = backend.getattr(&target.context, &target.handle).await;
    }
    match seen {
        Ok(attributes) => answer::<_, ()>(reply, &Outcome::Ok(fattr(target.export, &attributes))),
        Err(error) => answer::<(), ()>(reply, &Outcome::Fail(status(error), ())),
    }
}
