use std::collections::{HashMap, HashSet};
use std::task::Context;

use futures_util::task::noop_waker_ref;
use protocol::nfs4::ops::open::SpaceLimit;

use super::*;
use crate::opens::{NewOpen, OpenFiles};

const START: Duration = Duration::from_secs(1);

fn handle(number: usize) -> Handle {
    Handle::new(&number.to_be_bytes()).unwrap()
}

fn stateid(number: usize) -> Stateid {
    let mut other = [0; 12];
    other[4..].copy_from_slice(&number.to_be_bytes());
    Stateid { seqid: 1, other }
}

fn user(number: u32) -> Caller {
    crate::config::Caller::sys(&rpc::auth::AuthSys {
        stamp: 0,
        machine_name: xdr::Opaque::default(),
        uid: number,
        gid: number,
        gids: rpc::auth::GroupList::default(),
    })
}

fn grant(table: &Delegations, number: usize, kind: Kind, now: Duration) -> Option<u64> {
    let mode = if kind == Kind::Write { OpenMode::BOTH } else { OpenMode::READ };
    let (handle, stateid) = (handle(number), stateid(number));
    let (caller, limit) = (user(1), (kind == Kind::Write).then_some(SpaceLimit::Size(1 << 20)));
    let change = Some(7);
    let grant = Grant {
        location: None,
        handle,
        kind,
        stateid,
        caller,
        mode,
        preserves_unlinked: true,
        limit,
        change,
        modified: None,
        restarts: None,
    };
    table.granted(grant, now)
}

/// A table with one delegation of each kind: of file 1 for reading, of file 2 for writing.
fn both() -> Delegations {
    let table = Delegations::default();
    grant(&table, 1, Kind::Read, START).unwrap();
    grant(&table, 2, Kind::Write, START).unwrap();
    table
}

#[test]
fn a_later_reply_may_change_the_kind_of_a_delegation() {
    let table = both();
    let changed = |seqid, kind| {
        let stateid = Stateid { seqid, ..stateid(1) };
        let limit = (kind == Kind::Write).then_some(SpaceLimit::Size(9));
        let (handle, caller, mode, change) = (handle(1), user(1), OpenMode::BOTH, Some(8));
        Grant {
            handle,
            location: None,
            kind,
            stateid,
            caller,
            mode,
            preserves_unlinked: true,
            limit,
            change,
            modified: None,
            restarts: None,
        }
    };
    let before = table.held(&handle(1), START).unwrap();
    let id = table.granted(changed(2, Kind::Write), START);
    let held = table.held(&handle(1), START).unwrap();
    assert_eq!((id, held.id, held.kind), (Some(before.id), before.id, Kind::Write));
    assert_eq!(held.limit, Some(SpaceLimit::Size(9)));
    assert_eq!(table.stateid(&handle(1)).unwrap().seqid, 2);
    assert_eq!(table.granted_change(&handle(1)), Some(Some(8)));
    // An earlier reply that arrives later.
    assert_eq!(table.granted(changed(1, Kind::Read), START), Some(before.id));
    assert_eq!(table.held(&handle(1), START).unwrap(), held);
    assert_eq!(table.stateid(&handle(1)).unwrap().seqid, 2);
}

fn new_file(opens: &OpenFiles, number: usize, mode: OpenMode, is_local: bool) -> Arc<OpenFile> {
    let new = NewOpen { handle: handle(number), location: None, mode, stateid: stateid(number), is_local };
    opens.add(opens.take_owner(), &user(1), new)
}

fn open(
    table: &Delegations,
    number: usize,
    caller: &Caller,
    mode: OpenMode,
    now: Duration,
) -> Option<Arc<OpenFile>> {
    let opens = OpenFiles::default();
    let new = |given| {
        assert_eq!(given, stateid(number));
        new_file(&opens, number, mode, true)
    };
    table.open(&handle(number), caller, mode, now, new).map(|opened| opened.file)
}

/// Returns all files whose delegations are to be returned now.
fn due(table: &Delegations, now: Duration) -> Vec<Handle> {
    std::iter::from_fn(|| table.next_return(now).0).collect()
}

#[test]
fn an_open_is_local_if_the_delegation_covers_it_and_the_server_has_checked_the_caller() {
    let (table, me, other) = (both(), user(1), user(2));
    let is_local = |number, caller, mode| open(&table, number, caller, mode, START).is_some();
    assert!(is_local(1, &me, OpenMode::READ) && !is_local(1, &me, OpenMode::BOTH));
    assert!(is_local(2, &me, OpenMode::READ) && is_local(2, &me, OpenMode::BOTH));
    assert!(!is_local(1, &other, OpenMode::READ) && !is_local(3, &me, OpenMode::READ));
    // Checked for both kinds of access, one after the other.
    table.permit(&handle(2), &other, OpenMode::READ);
    assert!(is_local(2, &other, OpenMode::READ) && !is_local(2, &other, OpenMode::BOTH));
    table.permit(&handle(2), &other, OpenMode::WRITE);
    assert!(is_local(2, &other, OpenMode::BOTH));
    table.forget_permissions(&handle(2));
    assert!(!is_local(2, &me, OpenMode::READ), "the mode may have changed");
    assert_eq!(table.counts().local_opens, 5);
}

#[test]
fn the_open_that_the_server_knows_is_used_again() {
    let (table, opens) = (both(), OpenFiles::default());
    let known = new_file(&opens, 1, OpenMode::READ, false);
    assert_eq!(table.close(&known, START), Closing::Parked);
    let second = new_file(&opens, 1, OpenMode::READ, false);
    assert_eq!(table.close(&second, START), Closing::AtServer, "one is enough");
    let again = open(&table, 1, &user(1), OpenMode::READ, START).unwrap();
    assert!(Arc::ptr_eq(&again, &known));
    let local = open(&table, 1, &user(1), OpenMode::READ, START).unwrap();
    assert!(local.is_local());
    assert_eq!(table.close(&local, START), Closing::Local);
    assert_eq!(table.next_local(&handle(1)).map(|_| ()), None, "it is closed");
    known.lose(protocol::nfs4::types::Status::EXPIRED);
    assert_eq!(table.close(&known, START), Closing::AtServer, "a lost open is of no use");
}

#[test]
fn after_a_recall_nothing_new_is_local_and_what_is_must_become_known() {
    let (table, me) = (both(), user(1));
    let (first, second) =
        (open(&table, 1, &me, OpenMode::READ, START), open(&table, 1, &me, OpenMode::READ, START));
    assert!(!table.recall(&handle(1), &stateid(2)), "the stateid of another file");
    assert!(table.recall(&handle(1), &stateid(1)) && table.recall(&handle(1), &stateid(1)));
    assert_eq!((table.held(&handle(1), START), table.counts().recalled), (None, 1));
    assert!(open(&table, 1, &me, OpenMode::READ, START).is_none());
    assert_eq!(due(&table, START), [handle(1)], "once");
    let context = Context::from_waker(noop_waker_ref());
    assert!(table.poll_ended(Some(&handle(1)), &context).is_pending());
    for expected in [second, first] {
        let local = table.next_local(&handle(1)).unwrap();
        assert!(Arc::ptr_eq(&local, &expected.unwrap()));
    }
    assert!(table.next_local(&handle(1)).is_none());
    assert_eq!(table.ending(&handle(1)).unwrap().stateid, Some(stateid(1)));
    table.ended(&handle(1));
    assert!(table.poll_ended(Some(&handle(1)), &context).is_ready());
    assert_eq!((table.counts().held, table.counts().returned), (1, 1));
    assert!(table.held(&handle(2), START).is_some(), "the other file's remains");
}

#[test]
fn a_recall_may_overtake_the_reply_to_its_open() {
    let table = Delegations::default();
    assert!(!table.recall(&handle(1), &stateid(1)), "no OPEN is in flight");
    let opening = table.opening();
    assert!(table.recall(&handle(1), &stateid(1)));
    grant(&table, 1, Kind::Read, START).unwrap();
    drop(opening);
    assert_eq!(due(&table, START), [handle(1)]);
    // A recall of something else is forgotten with the last OPEN.
    let opening = table.opening();
    table.recall(&handle(2), &stateid(2));
    drop(opening);
    grant(&table, 2, Kind::Read, START).unwrap();
    assert!(table.held(&handle(2), START).is_some());
}

#[test]
fn a_second_delegation_of_a_file_is_not_kept() {
    let table = both();
    let first = table.held(&handle(1), START).unwrap().id;
    assert_eq!(grant(&table, 1, Kind::Read, START), Some(first), "the same one again");
    let other = Grant {
        location: None,
        modified: None,
        restarts: None,
        handle: handle(1),
        kind: Kind::Write,
        stateid: stateid(7),
        caller: user(1),
        mode: OpenMode::BOTH,
        preserves_unlinked: false,
        limit: None,
        change: None,
    };
    assert_eq!(table.granted(other, START), None);
    assert_eq!(table.held(&handle(1), START).unwrap().kind, Kind::Read);
}

#[test]
fn delegations_are_returned_by_age_unless_they_are_used() {
    let (table, opens) = (both(), OpenFiles::default());
    grant(&table, 3, Kind::Read, START).unwrap();
    let local = open(&table, 3, &user(1), OpenMode::READ, START).unwrap();
    let minute = Duration::from_secs(60);
    assert!(due(&table, START + minute).is_empty());
    table.held(&handle(2), START + 2 * minute).unwrap();
    assert_eq!(due(&table, START + IDLE_MAX), [handle(1)], "the second was used, the third is open");
    assert_eq!(due(&table, START + 2 * IDLE_MAX), [handle(2)]);
    assert_eq!(table.close(&local, START + 2 * IDLE_MAX), Closing::Local);
    assert_eq!(due(&table, START + 3 * IDLE_MAX), [handle(3)]);
    drop(opens);
}

#[test]
fn the_least_recently_used_ones_are_returned_beyond_the_bound() {
    let table = Delegations::default();
    for number in 0..DELEGATIONS_MAX {
        grant(&table, number, Kind::Read, START + Duration::from_millis(number as u64)).unwrap();
    }
    let later = START + Duration::from_secs(10);
    table.held(&handle(0), later);
    assert!(due(&table, later).is_empty());
    grant(&table, DELEGATIONS_MAX, Kind::Read, later);
    let surplus = DELEGATIONS_MAX / SURPLUS_PART;
    assert_eq!(due(&table, later), (1..=surplus).map(handle).collect::<Vec<_>>());
}

#[test]
fn a_recall_of_any_keeps_the_ones_used_last() {
    let table = both();
    for number in 3..10 {
        grant(&table, number, Kind::Read, START + Duration::from_secs(number as u64));
    }
    table.recall_any(5, |kind| kind == Kind::Read);
    assert_eq!(due(&table, START), [1, 3, 4].map(handle), "not the one for writing");
    table.recall_any(5, |kind| kind == Kind::Read);
    assert!(due(&table, START).is_empty(), "as many are left");
    assert_eq!(table.counts().recalled, 3);
}

#[test]
fn local_opens_take_the_stateid_of_a_reclaimed_delegation() {
    let (table, me) = (both(), user(1));
    grant(&table, 3, Kind::Read, START).unwrap();
    let (first, second) = (
        open(&table, 1, &me, OpenMode::READ, START).unwrap(),
        open(&table, 2, &me, OpenMode::BOTH, START).unwrap(),
    );
    table.give_back(&handle(3));
    let claims = table.begin_reclaim();
    assert_eq!(claims, HashMap::from([(handle(1), Kind::Read), (handle(2), Kind::Write)]));
    assert_eq!(table.held(&handle(1), START), None);
    let granted = |number| Granted {
        kind: Kind::Read,
        stateid: stateid(number),
        is_recalled: false,
        limit: None,
        keeps_times: false,
    };
    assert!(!table.reclaimed(&handle(2), &granted(12), Some(1)), "it was one for writing");
    assert!(table.reclaimed(&handle(1), &granted(11), Some(1)));
    table.end_reclaim(&HashSet::new());
    let context = Context::from_waker(noop_waker_ref());
    assert!(table.poll_revoked(&handle(2), &context).is_ready(), "others may have opened it");
    assert!(table.poll_may_write(&handle(2), &context).is_pending());
    table.decide(&handle(2), Verdict::Write);
    assert_eq!(table.poll_may_write(&handle(2), &context), Poll::Ready(Ok(())));
    assert_eq!(first.stateid(), Ok(stateid(11)));
    assert!(table.held(&handle(1), START).is_some() && table.held(&handle(2), START).is_none());
    assert_eq!((table.stateid(&handle(2)), table.stateid(&handle(3))), (None, None));
    // The return of the third was begun before; the second's open must be opened.
    assert_eq!(due(&table, START), [handle(3), handle(2)]);
    assert!(Arc::ptr_eq(&table.next_local(&handle(2)).unwrap(), &second));
    assert_eq!(table.ending(&handle(2)).unwrap().stateid, None, "there is nothing to return");
    table.ended(&handle(2));
    assert_eq!((table.counts().lost, table.counts().returned), (1, 0));
}

#[test]
fn a_revoked_delegation_covers_nothing_and_its_local_opens_are_known() {
    let (table, me) = (both(), user(1));
    let local = open(&table, 1, &me, OpenMode::READ, START).unwrap();
    assert!(!table.revoked(&handle(1), &stateid(9)), "another one");
    assert!(table.revoked(&handle(1), &stateid(1)) && !table.revoked(&handle(1), &stateid(1)));
    assert_eq!((table.held(&handle(1), START), table.stateid(&handle(1))), (None, None));
    assert!(!table.stateids().iter().any(|(file, _)| *file == handle(1)), "it is not tested again");
    assert_eq!(due(&table, START), [handle(1)]);
    assert!(Arc::ptr_eq(&table.next_local(&handle(1)).unwrap(), &local));
}

#[test]
fn a_delegation_of_a_directory_covers_no_open_and_ends_with_the_server() {
    let table = both();
    let before = table.opening();
    grant(&table, 3, Kind::Directory, START).unwrap();
    let counts = DelegationCounts { held: 1, granted: 1, ..DelegationCounts::default() };
    assert_eq!((table.directory_counts(), table.counts().held), (counts, 2));
    assert!(table.is_directory(&handle(3)) && !table.is_directory(&handle(1)));
    assert!(open(&table, 3, &user(1), OpenMode::READ, START).is_none());
    assert!(!table.begin_reclaim().contains_key(&handle(3)));
    assert_eq!(table.held(&handle(3), START), None);
    assert_eq!(due(&table, START), [handle(3)]);
    assert_eq!(table.ending(&handle(3)).unwrap().stateid, None, "there is nothing to return");
    table.ended(&handle(3));
    assert_eq!(table.directory_counts(), DelegationCounts { held: 0, lost: 1, ..counts });
    // The reply of the former server comes late.
    let late = Grant {
        handle: handle(4),
        location: None,
        kind: Kind::Directory,
        stateid: stateid(4),
        caller: user(1),
        mode: OpenMode::READ,
        preserves_unlinked: false,
        limit: None,
        change: None,
        modified: None,
        restarts: Some(before.restarts),
    };
    assert_eq!(table.granted(late, START), None);
}
