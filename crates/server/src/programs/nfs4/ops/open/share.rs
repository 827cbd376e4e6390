//! Share access and deny (RFC 8881 §9.7): checks and reserves them with the file open at the backend, then truncates.

use std::future::ready;
use std::sync::Arc;

use protocol::nfs4::ops::open::{OpenArgs, ShareAccess, ShareDeny};
use protocol::nfs4::types::Status;
use vfs::{Authority, Context, Later, Op, OpenAccess, Opened, Pin, SetAttributes};

use super::Opener;
use super::existing::{AtOnce, Target};
use crate::files::durable::wait_durable;
use crate::files::rights::Right;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{Conflict, OpenGrant, OpenRequest};

/// The number of times that an OPEN waits for conflicting delegations: new ones may be granted meanwhile, but not right after a recall.
const LOOKS_MAX: u32 = 4;

/// Checks the share bits. RFC 8881 §18.16.3: share_access without wants "MUST be one of" READ, WRITE or BOTH, share_deny one of its four values;
/// "If not, the server MUST return NFS4ERR_INVAL". Version 4.0 has no wants.
pub(super) fn check(
    access: ShareAccess,
    deny: ShareDeny,
    minor: u32,
) -> std::result::Result<OpenAccess, Status> {
    let wishes = ShareAccess::WANT_DELEG_MASK
        | ShareAccess::WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL.bits()
        | ShareAccess::WANT_PUSH_DELEG_WHEN_UNCONTENDED.bits();
    let wishes = match minor {
        0 => 0,
        1 => wishes,
        // RFC 9754 §3: "Two new flags are provided".
        _ => {
            let of_9754 = ShareAccess::WANT_OPEN_XOR_DELEGATION | ShareAccess::WANT_DELEG_TIMESTAMPS;
            wishes | of_9754.bits()
        }
    };
    let share = access.access();
    if share.is_empty() || access.bits() & !wishes != share.bits() || !ShareDeny::BOTH.contains(deny) {
        return Err(Status::INVAL);
    }
    Ok(OpenAccess { read: share.contains(ShareAccess::READ), write: share.contains(ShareAccess::WRITE) })
}

/// Opens the file with the backend, takes the share reservation, then truncates. `asked` is a backend call that has started. Updates
/// the attributes of the target.
pub(super) async fn open(
    compound: &mut Compound<'_>,
    opener: &Opener,
    arguments: &OpenArgs,
    access: OpenAccess,
    target: &mut Target<'_>,
    asked: Option<Later<'_, Opened>>,
) -> Result<OpenGrant> {
    let file = &target.file;
    let context = compound.context(file.export);
    let backend = &file.export.backend;
    // No delegation is granted until the truncation is done.
    let _changing = target.size.map(|_| compound.announce_change(file));
    // Truncation is a write, with any share access.
    let wanted = OpenAccess { write: access.write || target.size.is_some(), ..access };
    let right = if target.authority == Authority::Opened { Right::Given } else { Right::Open(wanted) };
    let against = against(arguments, target);
    // Attributes are current as long as nothing waits. Checked once: delegations granted from now on conflict when the share is
    // reserved.
    let seen = match compound.state().has_delegations(against) {
        true => {
            compound.recall_conflicts(file, against, right).await?;
            None
        }
        false => target.seen.as_ref(),
    };
    let opening = match (seen, asked) {
        (Some(_), Some(opening)) => Op::Pending(opening),
        (Some(seen), None) => backend.open_seen(&context, &file.handle, seen, wanted, target.authority),
        (None, _) => backend.open(&context, &file.handle, wanted, target.authority),
    };
    let opened = match opening.await {
        // The backend may lack descriptors: opens of expired clients are dropped.
        Err(vfs::Error::Later) => {
            compound.state().remove_expired(compound.now());
            backend.open(&context, &file.handle, wanted, target.authority).await?
        }
        opened => opened?,
    };
    let grant = reserve(compound, opener, arguments, target, &opened).await?;
    if target.size.is_none() {
        target.seen = Some(opened.attributes);
        return Ok(grant);
    }
    // The reservation may have been revoked from another client just now; that must be durable first.
    wait_durable(compound.request).await;
    let set = SetAttributes { size: target.size, ..SetAttributes::default() };
    let context = compound.opening_context(file.export);
    match backend.setattr(&context, &file.handle, &set, None, Authority::Opened).await {
        Ok(change) => {
            target.seen = Some(change.after);
            Ok(grant)
        }
        Err(error) => {
            compound.state().withdraw_open(&opener.client, grant);
            Err(error.into())
        }
    }
}

/// As [`open`], without a wait, truncation or conflicting delegation; otherwise returns the backend call that has started.
pub(super) fn open_at_once<'r>(
    compound: &Compound<'r>,
    context: &Context,
    opener: &Opener,
    (arguments, access): (&OpenArgs, OpenAccess),
    target: &mut Target<'r>,
) -> Result<AtOnce<OpenGrant, Later<'r, Opened>>> {
    let (export, Some(seen), None) = (target.file.export, &target.seen, target.size) else {
        return Ok(Err(None));
    };
    let opening = export.backend.open_seen(context, &target.file.handle, seen, access, target.authority);
    let opened = match opening.at_once() {
        Ok(Ok(opened)) => opened,
        // `open` makes room and retries.
        Ok(Err(vfs::Error::Later)) => return Ok(Err(Some(Box::pin(ready(Err(vfs::Error::Later)))))),
        Ok(Err(error)) => return Err(error.into()),
        Err(opening) => return Ok(Err(Some(opening))),
    };
    let Opened { pin, attributes } = opened;
    let request = request(compound, opener, arguments, target, pin);
    match compound.state().open(compound.now(), &opener.client, request) {
        Ok(grant) => {
            target.seen = Some(attributes);
            Ok(Ok(grant))
        }
        Err(Status::DELAY) => Ok(Err(None)),
        Err(status) => Err(status.into()),
    }
}

/// Returns the delegations of others with which an OPEN conflicts (RFC 8881 §10.4).
fn against(arguments: &OpenArgs, target: &Target<'_>) -> Conflict {
    let writes = arguments.share_access.contains(ShareAccess::WRITE) || target.size.is_some();
    let changes = writes || !arguments.share_deny.is_empty();
    if changes { Conflict::Any } else { Conflict::Write }
}

/// Takes the share reservation. Waits again for a delegation that was granted meanwhile.
async fn reserve(
    compound: &Compound<'_>,
    opener: &Opener,
    arguments: &OpenArgs,
    target: &Target<'_>,
    opened: &Opened,
) -> Result<OpenGrant> {
    let against = against(arguments, target);
    let mut looks = 1;
    loop {
        let request = request(compound, opener, arguments, target, Arc::clone(&opened.pin));
        match compound.state().open(compound.now(), &opener.client, request) {
            Err(Status::DELAY) if looks < LOOKS_MAX && compound.state().has_delegations(against) => {
                compound.recall_conflicts(&target.file, against, Right::Given).await?;
                looks += 1;
            }
            opened => return Ok(opened?),
        }
    }
}

fn request(
    compound: &Compound<'_>,
    opener: &Opener,
    arguments: &OpenArgs,
    target: &Target<'_>,
    pin: Arc<dyn Pin>,
) -> OpenRequest {
    OpenRequest {
        file: target.file.key(compound.server()),
        owner: Arc::clone(&opener.owner),
        opener: compound.caller(),
        access: arguments.share_access,
        deny: arguments.share_deny,
        truncates: target.size.is_some(),
        reclaim: arguments.claim.is_reclaim(),
        pin,
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::open::{CreateHow, OpenHow};
    use vfs::fault::{Fault, Method, Rule};

    use super::*;
    use crate::testing::{at, faulty, lab, lab_of, open_args, size};

    #[test]
    fn a_backend_without_descriptors_drops_opens_of_expired_clients() {
        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        lab.file(&["export", "file"], b"");
        let mut gone = lab.other(b"gone");
        gone.open(&["export", "file"], b"owner");
        lab.seconds += 60;
        lab.ok(at(&["export"], vec![]));
        lab.seconds += 60;
        backend.add(Rule::on(Method::Open, Fault::Fail(vfs::Error::Later)).times(1));
        lab.open(&["export", "file"], b"owner");
        assert_eq!(lab.server.counts().opens, 1);
    }

    #[test]
    fn share_reservations_hold_before_truncation() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let mut denying = open_args("file", b"denier", ShareAccess::READ, OpenHow::NoCreate);
        denying.share_deny = ShareDeny::WRITE;
        lab.ok(at(&["export"], vec![Op::Open(denying)]));
        for access in [ShareAccess::READ, ShareAccess::BOTH] {
            let how = OpenHow::Create(CreateHow::Unchecked(size(0)));
            let truncating = Op::Open(open_args("file", b"owner", access, how));
            assert_eq!(lab.status_at(&["export"], truncating), Status::SHARE_DENIED);
        }
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(5));
    }
}
