//! Delegations with an open, or instead of it.

use std::sync::Arc;

use protocol::nfs4::ops::open::{
    DelegationType, DelegationWant, NoDelegation, OpenArgs, OpenClaim, OpenDelegation, ShareAccess,
    WhyNoDelegation,
};
use protocol::nfs4::types::Stateid;
use vfs::Attributes;

use crate::files::object::File;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::delegation::{DelegationRequest, delegate};
use crate::state::{Client, OpenGrant, OwnerRequest};

/// Returns whether a 4.0 open may get a delegation. RFC 7530 §9.1.11: "The server must not bestow a delegation for any open that
/// would require confirmation." If several clients share the connection, none gets a write delegation: the server could not tell
/// whether a later GETATTR is the holder's.
pub(super) fn may_delegate(
    compound: &Compound<'_>,
    turn: Option<&OwnerRequest>,
    arguments: &OpenArgs,
) -> bool {
    let is_reader = !arguments.share_access.contains(ShareAccess::WRITE);
    let is_known = || compound.request.connection.v40_owner.get().is_some();
    turn.is_none_or(|turn| !turn.needs_confirmation() && (is_reader || is_known()))
}

/// Returns the reply if no delegation is possible for any file; `None` if one may be granted.
pub(super) fn nothing(client: &Client, want: DelegationWant) -> Option<OpenDelegation> {
    match want {
        DelegationWant::NO_DELEG => Some(not_delegated(WhyNoDelegation::NOT_WANTED)),
        // A client without a back channel gets none. RFC 8881 §18.16.3: the reason is sent if the client stated a want.
        DelegationWant::NO_PREFERENCE if !client.is_reachable() => Some(OpenDelegation::None),
        _ => None,
    }
}

/// Adds the reason for not delegating, if the client stated a want. RFC 8881 §18.16.3: "if … the server does not
/// return a delegation, it MUST return a delegation type of OPEN_DELEGATE_NONE_EXT". Version 4.0 has no wants.
pub(super) fn explained(delegation: OpenDelegation, want: DelegationWant) -> OpenDelegation {
    match (delegation, want) {
        (OpenDelegation::None, DelegationWant::NO_DELEG) => not_delegated(WhyNoDelegation::NOT_WANTED),
        (OpenDelegation::None, DelegationWant::CANCEL) => not_delegated(WhyNoDelegation::CANCELLED),
        (OpenDelegation::None, want) if want != DelegationWant::NO_PREFERENCE => {
            OpenDelegation::NoneExt(NoDelegation::Resource(false))
        }
        (delegation, _) => delegation,
    }
}

fn not_delegated(why: WhyNoDelegation) -> OpenDelegation {
    OpenDelegation::NoneExt(NoDelegation::Other(why.0))
}

/// Grants a delegation with an open.
pub(super) async fn beside_open(
    compound: &Compound<'_>,
    client: &Arc<Client>,
    arguments: &OpenArgs,
    file: &File<'_>,
    attributes: &Attributes,
) -> OpenDelegation {
    let (access, want) = (arguments.share_access, arguments.share_access.want());
    let times = access.contains(ShareAccess::WANT_DELEG_TIMESTAMPS);
    let asked = match arguments.claim {
        // RFC 8881 §9.11: a delegation from before the restart is reclaimed with the open.
        OpenClaim::Previous(DelegationType::NONE | DelegationType::NONE_EXT) => {
            return OpenDelegation::None;
        }
        OpenClaim::Previous(held) => {
            let want = match held {
                DelegationType::READ | DelegationType::READ_ATTRS_DELEG => DelegationWant::READ_DELEG,
                _ => DelegationWant::WRITE_DELEG,
            };
            // At most the access of this OPEN: the client's claim is not verified.
            DelegationRequest { access, want, times, reclaim: true }
        }
        // The client returns a delegation and turns its local opens into real ones.
        OpenClaim::DelegateCur(_) | OpenClaim::DelegateCurFh(_) => return OpenDelegation::None,
        _ => match nothing(client, want) {
            Some(nothing) => return nothing,
            None => DelegationRequest { access, want, times, reclaim: false },
        },
    };
    delegate(compound, client, file, asked, attributes).await
}

/// Returns the stateid of the delegation if it replaces the open stateid (RFC 9754 §4).
///
/// "If the client already has an open stateid, then the server SHOULD ignore the … flag and return both"; so it does if
/// the open denies access, which a delegation cannot.
pub(super) fn instead_of_open(
    arguments: &OpenArgs,
    grant: &OpenGrant,
    delegation: &OpenDelegation,
) -> Option<Stateid> {
    let is_wanted = arguments.share_access.contains(ShareAccess::WANT_OPEN_XOR_DELEGATION)
        && arguments.share_deny.is_empty()
        && grant.is_new();
    match delegation {
        // A read delegation does not replace an open for writing: RFC 8881 §18.16.3 permits a request for both.
        OpenDelegation::Read(read) if is_wanted && !arguments.share_access.contains(ShareAccess::WRITE) => {
            Some(read.stateid)
        }
        OpenDelegation::Write(write) | OpenDelegation::WriteAttributes(write) if is_wanted => {
            Some(write.stateid)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::opened;
    use super::*;
    use crate::testing::{Lab, lab, open};

    #[test]
    fn gives_the_reason_for_no_delegation() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let wanting = |lab: &mut Lab, want| {
            let access = ShareAccess::READ.with_want(want);
            opened(lab, open("file", b"owner", access)).delegation
        };
        assert_eq!(wanting(&mut lab, DelegationWant::NO_PREFERENCE), OpenDelegation::None);
        let not_wanted = NoDelegation::Other(WhyNoDelegation::NOT_WANTED.0);
        assert_eq!(wanting(&mut lab, DelegationWant::NO_DELEG), OpenDelegation::NoneExt(not_wanted));
        let resource = NoDelegation::Resource(false);
        assert_eq!(wanting(&mut lab, DelegationWant::READ_DELEG), OpenDelegation::NoneExt(resource));
    }
}
