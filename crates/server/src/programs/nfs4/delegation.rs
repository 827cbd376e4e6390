//! Grants delegations for OPEN and WANT_DELEGATION.

use std::sync::Arc;

use protocol::nfs4::attributes::acl::{Ace, AceFlags, AceMask, AceType};
use protocol::nfs4::ops::open::{
    DelegationWant, NoDelegation, OpenDelegation, ReadDelegation, ShareAccess, SpaceLimit, WhyNoDelegation,
    WriteDelegation,
};
use protocol::nfs4::types::{Handle, Stateid, Utf8};
use vfs::Attributes;

use super::compound::Compound;
use crate::files::external_changes::{look_again, watch};
use crate::files::object::{File, Object};
use crate::state::{ChangeEpoch, Client, DelegationKind, FileTimes, GrantRequest, NotDelegated};

/// Fraction of the free space that one client may leave unflushed at CLOSE, so that 64 clients can do so at once.
const SPACE_PART: u64 = 64;

/// A client's request for a delegation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DelegationRequest {
    /// The access that the client opened for and that was checked.
    pub(crate) access: ShareAccess,
    pub(crate) want: DelegationWant,
    /// Set if the client requests delegated times (RFC 9754 §5).
    pub(crate) times: bool,
    /// CLAIM_PREVIOUS of a delegation.
    pub(crate) reclaim: bool,
}

/// Grants a delegation if the client requests one, or leaves that to the server, and nothing prevents it.
pub(crate) async fn delegate(
    compound: &Compound<'_>,
    client: &Arc<Client>,
    file: &File<'_>,
    asked: DelegationRequest,
    attributes: &Attributes,
) -> OpenDelegation {
    let other = |why: WhyNoDelegation| OpenDelegation::NoneExt(NoDelegation::Other(why.0));
    match asked.want {
        // RFC 8881 §18.16.3: the reason is reported only to clients that stated a want.
        DelegationWant::NO_DELEG => return other(WhyNoDelegation::NOT_WANTED),
        DelegationWant::CANCEL => return other(WhyNoDelegation::CANCELLED),
        _ => {}
    }
    let opens_to_write = asked.access.contains(ShareAccess::WRITE);
    let is_write = opens_to_write && asked.want != DelegationWant::READ_DELEG;
    let kind = if is_write { DelegationKind::Write } else { DelegationKind::Read };
    match grant(compound, client, file, kind, asked, attributes).await {
        Ok(granted) => granted,
        // Version 4.0 has no reasons.
        Err(_) if asked.want == DelegationWant::NO_PREFERENCE || compound.minor == 0 => OpenDelegation::None,
        Err(why) => OpenDelegation::NoneExt(match why {
            NotDelegated::Contention => NoDelegation::Contention(false),
            NotDelegated::Resource => NoDelegation::Resource(false),
            NotDelegated::OtherKind if is_write => NoDelegation::Other(WhyNoDelegation::NOT_SUPP_UPGRADE.0),
            NotDelegated::OtherKind => NoDelegation::Other(WhyNoDelegation::NOT_SUPP_DOWNGRADE.0),
        }),
    }
}

/// Grants a delegation of this kind.
///
/// # Errors
/// The reason why no delegation is granted.
async fn grant(
    compound: &Compound<'_>,
    client: &Arc<Client>,
    file: &File<'_>,
    kind: DelegationKind,
    asked: DelegationRequest,
    attributes: &Attributes,
) -> Result<OpenDelegation, NotDelegated> {
    let wire = Object::File(*file).seal(&compound.server().settings().handle_key);
    let handle = Handle::new(&wire).map_err(|_| NotDelegated::Resource)?;
    let judged = asked.access.access().bits() as u8;
    // Everything that may wait comes before the grant, because nothing may happen between the grant and the reply. Attributes
    // are read after the watch has started.
    let lookout = watch(compound.request, client, file, (kind, asked.reclaim)).await?;
    let (now, key) = (compound.now(), file.key(compound.server()));
    if !asked.reclaim && compound.state().is_locked_locally(key, kind) {
        return Err(NotDelegated::Contention);
    }
    let is_write = kind.is_write();
    let known = Known { attributes, is_watched: lookout.is_some(), reclaim: asked.reclaim };
    let mut look = look_at(compound, file, is_write, known).await?;
    if compound.state().has_changed_since(&file.handle, look.epoch) {
        // One retry: a file that still changes is contended.
        look = look_at(compound, file, is_write, known).await?;
    }
    let WatchedState { epoch, limit, seen } = look;
    // No delegated times with read delegations, of which a file may have many. RFC 9754 §5: each GETATTR of others must query the
    // holder. A read holder would set only the access time, which "MUST NOT advance the change time". Every system call advances
    // it, so each return would invalidate the caches of all other readers.
    let times = (is_write && asked.times).then(|| FileTimes::of(&seen));
    let request = GrantRequest {
        kind,
        checked_access: judged,
        opener: compound.caller(),
        change: seen.change,
        times,
        handle,
        inner: file.handle,
        epoch,
        reclaim: asked.reclaim,
    };
    let stateid =
        compound.state().grant_delegation(now, client, key, &request, compound.session(), lookout)?;
    Ok(granted(stateid, &request, limit))
}

/// Attributes of a file as seen before the watch started.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    attributes: &'a Attributes,
    is_watched: bool,
    reclaim: bool,
}

/// The state of a file as read after the watch started.
struct WatchedState {
    epoch: ChangeEpoch,
    /// File size in bytes up to which CLOSE need not flush, for a write delegation.
    limit: u64,
    seen: Attributes,
}

/// Reads a file's state after its watch has started.
///
/// # Errors
/// As [`look_again`].
async fn look_at(
    compound: &Compound<'_>,
    file: &File<'_>,
    is_write: bool,
    known: Known<'_>,
) -> Result<WatchedState, NotDelegated> {
    let epoch = compound.state().change_epoch(&file.handle);
    let attributes = known.attributes;
    let (limit, mut seen) =
        if is_write { space_limit(compound, file, attributes).await } else { (0, *attributes) };
    if known.is_watched {
        seen = look_again(compound.request, file, attributes, known.reclaim).await?;
    }
    Ok(WatchedState { epoch, limit, seen })
}

/// Returns the space limit in bytes: the "condition that the client must check to determine whether the file needs to be flushed
/// to the server on close" (RFC 8881 §18.16.1). Also returns the attributes read with it, with which later CB_GETATTR replies are
/// compared.
async fn space_limit(compound: &Compound<'_>, file: &File<'_>, attributes: &Attributes) -> (u64, Attributes) {
    let context = compound.context(file.export);
    let space = file.export.backend.statfs(&context, &file.handle).await;
    space.map_or((0, *attributes), |(space, now)| {
        (now.size.saturating_add(space.available_bytes / SPACE_PART), now)
    })
}

fn granted(stateid: Stateid, request: &GrantRequest, limit: u64) -> OpenDelegation {
    // The ACE permits no user without ACCESS: otherwise it would have to reflect the mode and all squashing.
    let permissions = Ace {
        ace_type: AceType::ALLOWED,
        flags: AceFlags::empty(),
        mask: AceMask::empty(),
        who: Utf8::from_static(b"EVERYONE@"),
    };
    if !request.kind.is_write() {
        return OpenDelegation::Read(ReadDelegation { stateid, recall: false, permissions });
    }
    let space_limit = SpaceLimit::Size(limit);
    let write = WriteDelegation { stateid, recall: false, space_limit, permissions };
    // RFC 9754 §5: the server "MUST set OPEN_DELEGATE_WRITE_ATTRS_DELEG when it grants a write attribute delegation."
    if request.times.is_some() {
        OpenDelegation::WriteAttributes(write)
    } else {
        OpenDelegation::Write(write)
    }
}
