//! Delegations after a restart of the server.

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::open::{
    DelegationType, NoDelegation, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess,
};
use protocol::nfs4::types::{Handle, Status};

use super::{BOTH, READ, delegated, opened, write};
use crate::state::State;
use crate::testing::{Lab, lab_of, lab_with, open, open_args, open_result, putfh};
use crate::{ExportTable, Server, Settings};

/// Returns a file of mode 0644, and a client that returns after a restart of the server.
pub(super) fn after_restart(change: impl FnOnce(&mut Settings)) -> (Lab, Handle) {
    let exports = vec![crate::testing::export(1, "/export")];
    let file = lab_of(exports.clone()).file(&["export", "file"], b"hello");
    let mut settings = Settings::new(crate::testing::KEY, 1, [3; 16], b"test".to_vec());
    change(&mut settings);
    let known = State::records_of(&[("holder", 1)]);
    let state = State::new(&settings, known, std::time::Duration::ZERO);
    let mut server = Server::new(settings, ExportTable::new(exports).unwrap());
    server.shared.state = state;
    let mut lab = Lab::without_session(std::sync::Arc::new(server), 11);
    let id = lab.exchange(b"holder");
    let session = lab.create_session(&id, crate::testing::channel());
    (lab.session, lab.sequence, lab.client_id) = (session.session_id, 0, id.client_id);
    (lab, file)
}

fn reclaimed(client: &mut Lab, file: Handle, access: ShareAccess, held: DelegationType) -> OpenDelegation {
    let claim = OpenClaim::Previous(held);
    let args = OpenArgs { claim, ..open_args("", b"o", access, OpenHow::NoCreate) };
    let results = client.ok(vec![putfh(file), Op::Open(args)]);
    open_result(results.last().unwrap()).delegation.clone()
}

#[test]
fn reclaimed_delegation_covers_checked_access_only() {
    let (mut lab, file) = after_restart(|_| {});
    // A user without write permission claims a write delegation.
    lab.uid = 1000;
    let given = reclaimed(&mut lab, file, READ, DelegationType::WRITE);
    let (kind, stateid) = delegated(&given).unwrap_or_else(|| panic!("{given:?}"));
    assert_eq!(kind, DelegationType::READ);
    assert_eq!(lab.status(vec![putfh(file), write(stateid)]), Status::OPENMODE);
    let (mut lab, file) = after_restart(|_| {});
    let given = reclaimed(&mut lab, file, BOTH, DelegationType::WRITE);
    assert_eq!(delegated(&given).unwrap().0, DelegationType::WRITE);
}

#[test]
fn disabled_delegations_are_not_reclaimed() {
    let (mut lab, file) = after_restart(|settings| settings.max_delegations = 0);
    let given = reclaimed(&mut lab, file, READ, DelegationType::READ);
    assert_eq!(given, OpenDelegation::NoneExt(NoDelegation::Resource(false)));
    let exports = vec![crate::testing::export(1, "/export")];
    let mut lab = lab_with(exports, |settings| settings.max_delegations = 0);
    lab.file(&["export", "file"], b"");
    let mut client = lab.reachable(b"holder", 11);
    let (_, none) = opened(&mut client, open("file", b"o", READ));
    assert_eq!(none, OpenDelegation::None);
    assert!(client.calls().is_empty(), "it has nothing that it could return");
}
