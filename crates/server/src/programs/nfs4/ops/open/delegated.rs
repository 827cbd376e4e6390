//! What is delegated beside an open, or instead of it.

use std::sync::Arc;

use protocol::nfs4::ops::open::{
    DelegationType, DelegationWant, NoDelegation, OpenArgs, OpenClaim, OpenDelegation, ShareAccess,
    WhyNoDelegation,
};
use protocol::nfs4::types::Stateid;
use vfs::Attributes;

use crate::files::object::File;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::delegation::{DelegationWish, delegate};
use crate::state::{Client, OpenGrant, Turn};

/// Whether anything may be delegated beside an open of version 4.0. RFC 7530 §9.1.11: "The server must not bestow a delegation
/// for any open that would require confirmation." Nothing is delegated for writing where several clients share the connection:
/// which of them asks for attributes, and might hold that delegation itself, is not known.
pub(super) fn may_delegate(compound: &Compound<'_>, turn: Option<&Turn>, arguments: &OpenArgs) -> bool {
    let is_reader = !arguments.share_access.contains(ShareAccess::WRITE);
    let is_known = || compound.request.connection.tenant.get().is_some();
    turn.is_none_or(|turn| !turn.needs_confirmation() && (is_reader || is_known()))
}

/// The answer where nothing is delegated beside an open, whatever file it is of; none where something may be.
pub(super) fn nothing(client: &Client, want: DelegationWant) -> Option<OpenDelegation> {
    match want {
        DelegationWant::NO_DELEG => Some(not_delegated(WhyNoDelegation::NOT_WANTED)),
        // Whoever cannot be called back gets none. RFC 8881 §18.16.3: "why" is told to those who have said what they want.
        DelegationWant::NO_PREFERENCE if !client.is_reachable() => Some(OpenDelegation::None),
        _ => None,
    }
}

/// With the reason that is due to who has said what it wants, where nothing is delegated. RFC 8881 §18.16.3: "if … the server does not
/// return a delegation, it MUST return a delegation type of OPEN_DELEGATE_NONE_EXT". Version 4.0 knows no wishes.
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

/// What is delegated beside the open.
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
        // RFC 8881 §9.11: what was delegated before the restart is reclaimed with the open.
        OpenClaim::Previous(DelegationType::NONE | DelegationType::NONE_EXT) => {
            return OpenDelegation::None;
        }
        OpenClaim::Previous(held) => {
            let want = match held {
                DelegationType::READ | DelegationType::READ_ATTRS_DELEG => DelegationWant::READ_DELEG,
                _ => DelegationWant::WRITE_DELEG,
            };
            // No more than this OPEN was judged for, whatever was held: a claim is the client's word.
            DelegationWish { access, want, times, reclaim: true }
        }
        // The client has one, and brings opens that it made under it: it is on its way back.
        OpenClaim::DelegateCur(_) | OpenClaim::DelegateCurFh(_) => return OpenDelegation::None,
        _ => match nothing(client, want) {
            Some(nothing) => return nothing,
            None => DelegationWish { access, want, times, reclaim: false },
        },
    };
    delegate(compound, client, file, asked, attributes).await
}

/// The delegation that stands for the open as well, where the client would have only one of them (RFC 9754 §4).
///
/// "If the client already has an open stateid, then the server SHOULD ignore the … flag and return both"; so it does where
/// the open denies something, which a delegation does not.
pub(super) fn instead_of_open(
    arguments: &OpenArgs,
    grant: &OpenGrant,
    delegation: &OpenDelegation,
) -> Option<Stateid> {
    let is_wanted = arguments.share_access.contains(ShareAccess::WANT_OPEN_XOR_DELEGATION)
        && arguments.share_deny.is_empty()
        && grant.is_new();
    match delegation {
        // One for reading does not stand for an open that writes: RFC 8881 §18.16.3 lets a client want it beside such a one.
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
    fn says_why_there_is_no_delegation_when_asked() {
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
