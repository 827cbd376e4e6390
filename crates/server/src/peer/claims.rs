//! The callers that an owner may claim to be.

use vfs::Credentials;

use super::*;

fn system(uid: u32, gid: u32, groups: &[u32]) -> Identity {
    Identity::System(Arc::new(Credentials { uid, gid, groups: Arc::from(groups) }))
}

#[test]
fn a_local_user_may_claim_itself_and_its_own_groups() {
    let alice = PeerOwner::User(Arc::new(LocalUser { uid: 1000, groups: vec![1000, 27] }));
    assert_eq!(alice.check(&system(1000, 1000, &[27])), Ok(()));
    assert_eq!(alice.check(&system(1000, 27, &[])), Ok(()));
    assert_eq!(alice.check(&Identity::Anonymous), Ok(()));
    let other = |claimed| Err(ClaimError::OtherUser { owner: 1000, claimed });
    assert_eq!(alice.check(&system(0, 0, &[])), other(0));
    assert_eq!(alice.check(&system(1001, 1000, &[])), other(1001));
    let group = |group| Err(ClaimError::OtherGroup { owner: 1000, group });
    assert_eq!(alice.check(&system(1000, 0, &[])), group(0));
    assert_eq!(alice.check(&system(1000, 1000, &[27, 4])), group(4));
}

#[test]
fn a_user_without_an_account_has_no_groups_to_claim() {
    let stranger = PeerOwner::User(Arc::new(LocalUser { uid: 1234, groups: Vec::new() }));
    assert_eq!(stranger.check(&system(1234, 1234, &[])), Err(ClaimError::NoAccount { owner: 1234 }));
    assert_eq!(stranger.check(&Identity::Anonymous), Ok(()));
}

#[test]
fn an_unknown_owner_may_claim_no_user() {
    for owner in [PeerOwner::Unknown, PeerOwner::NotServed(1000), PeerOwner::Callback] {
        for identity in [system(0, 0, &[]), system(1000, 1000, &[]), Identity::Anonymous] {
            assert!(owner.check(&identity).is_err(), "{owner:?} as {identity:?}");
        }
    }
}

#[test]
fn root_here_and_other_machines_may_claim_any_user() {
    for owner in [PeerOwner::Superuser, PeerOwner::Remote] {
        assert_eq!(owner.check(&system(0, 0, &[])), Ok(()));
        assert_eq!(owner.check(&system(1001, 4, &[27])), Ok(()));
    }
}
