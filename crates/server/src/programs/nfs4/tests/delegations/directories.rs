//! Directory delegations: grants, recalls and notifications.

use protocol::nfs3;
use protocol::nfs4::attributes::{FileAttributes, number as n};
use protocol::nfs4::callback::notify::{
    Notification, NotifyAdd, NotifyEntry, NotifyRemove, NotifyRename, notify_type,
};
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::delegation::{DirDelegation, GetDirDelegationArgs, GetDirDelegationOk};
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenHow};
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::types::{Bitmap, Handle, Outcome, Status, Time};
use vfs::fault::{Fault, Gate, Method, Rule};
use xdr::{List, Opaque};

use super::{
    BOTH, LEASE_SECONDS, READ, Scene, Stateid, first_word, hold, recalled, return_delegation, scene,
    scene_in, set, status, write,
};
use crate::testing::{
    Call, Lab, PendingCall, at, create, export, faulty, lab_of, lab_with, lookup, mode, name, open_args,
    putfh,
};

pub(super) const NONE: Bitmap = Bitmap::EMPTY;
const ENTRIES: Bitmap =
    Bitmap::of(&[notify_type::ADD_ENTRY, notify_type::REMOVE_ENTRY, notify_type::RENAME_ENTRY]);

pub(super) fn ask(notification_types: Bitmap, signal_available: bool) -> Op {
    let now = Time { seconds: 0, nanoseconds: 0 };
    Op::GetDirDelegation(GetDirDelegationArgs {
        signal_available,
        notification_types,
        child_attribute_delay: now,
        directory_attribute_delay: now,
        child_attributes: Bitmap::of(&[n::SIZE]),
        directory_attributes: Bitmap::of(&[n::CHANGE]),
    })
}

pub(super) fn asked(client: &mut Lab, path: &[&'static str], types: Bitmap) -> DirDelegation {
    let OpResult::GetDirDelegation(result) = client.last(at(path, vec![ask(types, false)])) else { panic!() };
    result.into_result().unwrap()
}

#[track_caller]
pub(super) fn granted(client: &mut Lab, path: &[&'static str], types: Bitmap) -> GetDirDelegationOk {
    match asked(client, path, types) {
        DirDelegation::Granted(granted) => granted,
        DirDelegation::Unavailable(_) => panic!("nothing is delegated"),
    }
}

pub(super) fn make(text: &'static str) -> Op {
    let object_type = CreateType::DIRECTORY;
    Op::Create(CreateArgs { object_type, name: name(text), attributes: mode(0o755) })
}

pub(super) fn remove(text: &'static str) -> Op {
    Op::Remove(RemoveArgs { target: name(text) })
}

pub(super) fn rename(from: &'static str, to: &'static str) -> Op {
    Op::Rename(RenameArgs { old_name: name(from), new_name: name(to) })
}

/// Returns a scene with a directory `d` that holds `a`, `b` and `inner`, a directory.
pub(super) fn with_directory(mut scene: Scene) -> (Scene, Handle) {
    scene.lab.ok(at(&["export"], vec![make("d"), make("inner")]));
    scene.lab.file(&["export", "d", "a"], b"a");
    scene.lab.file(&["export", "d", "b"], b"b");
    let directory = scene.lab.handle(&["export", "d"]);
    (scene, directory)
}

/// Operations on `d` by another client, and whether they change the delegated content.
pub(super) fn changes(scene: &mut Scene, directory: Handle) -> Vec<(&'static str, bool, PendingCall)> {
    let Scene { lab, other, file, .. } = scene;
    let root = lab.handle(&["export"]);
    let a = lab.handle(&["export", "d", "a"]);
    let here = |op: Op| vec![putfh(directory), op];
    let both = |from: Handle, to: Handle, op: Op| vec![putfh(from), Op::SaveFh, putfh(to), op];
    let opening = |text: &'static str, how| here(Op::Open(open_args(text, b"o", READ, OpenHow::Create(how))));
    let v4: Vec<(&'static str, bool, Vec<Op>)> = vec![
        ("CREATE", true, here(make("new"))),
        ("OPEN, unchecked", true, opening("new", CreateHow::Unchecked(mode(0o644)))),
        ("OPEN, guarded", true, opening("new", CreateHow::Guarded(mode(0o644)))),
        ("OPEN, exclusive", true, opening("new", CreateHow::Exclusive([1; 8]))),
        ("LINK", true, both(*file, directory, Op::Link(LinkArgs { new_name: name("link") }))),
        ("REMOVE", true, here(remove("a"))),
        ("RENAME within", true, both(directory, directory, rename("a", "c"))),
        ("RENAME over", true, both(directory, directory, rename("a", "b"))),
        ("RENAME from", true, both(directory, root, rename("a", "c"))),
        ("RENAME to", true, both(root, directory, rename("file", "c"))),
        ("SETATTR", true, here(set(mode(0o700)))),
        ("RENAME of it", true, both(root, root, rename("d", "e"))),
        // RFC 8881 §10.9.4: attributes of entries do not count, and neither do operations without effect.
        ("OPEN of an existing file", false, opening("a", CreateHow::Unchecked(mode(0o644)))),
        ("SETATTR of an entry", false, vec![putfh(a), set(mode(0o600))]),
        ("WRITE to an entry", false, vec![putfh(a), write(Stateid::ANONYMOUS)]),
        ("CREATE below", false, vec![putfh(directory), lookup("inner"), make("new")]),
        ("READDIR", false, here(read_dir())),
    ];
    let mut flights = Vec::new();
    for (slot, (what, conflicts, ops)) in v4.into_iter().enumerate() {
        flights.push((what, conflicts, other.start(slot as u32 + 1, ops)));
    }
    flights.extend(changes_by_version_3(other, directory, *file));
    flights
}

fn read_dir() -> Op {
    let (cookie, cookie_verifier, attributes) = (0, [0; 8], Bitmap::EMPTY);
    Op::ReadDir(ReadDirArgs { cookie, cookie_verifier, dircount: 100, maxcount: 1000, attributes })
}

fn changes_by_version_3(
    other: &mut Lab,
    directory: Handle,
    file: Handle,
) -> Vec<(&'static str, bool, PendingCall)> {
    let dir = nfs3::FileHandle::new(&directory).unwrap();
    let place = |text: &'static str| nfs3::DirOpArgs { dir, name: Opaque::from_static(text.as_bytes()) };
    let attributes = nfs3::Sattr::default();
    let create = nfs3::CreateArgs { where_: place("new"), how: nfs3::CreateHow::Unchecked(attributes) };
    let found = nfs3::CreateArgs { where_: place("a"), how: nfs3::CreateHow::Unchecked(attributes) };
    let mkdir = nfs3::MkdirArgs { where_: place("new"), attributes };
    let rename = nfs3::RenameArgs { from: place("a"), to: place("c") };
    let link = nfs3::LinkArgs { file: nfs3::FileHandle::new(&file).unwrap(), link: place("link") };
    let at = |text| nfs3::RemoveArgs { object: place(text) };
    vec![
        ("NFSv3 CREATE", true, other.start_nfs3(nfs3::Proc::CREATE.0, &create)),
        ("NFSv3 CREATE of an existing file", false, other.start_nfs3(nfs3::Proc::CREATE.0, &found)),
        ("NFSv3 MKDIR", true, other.start_nfs3(nfs3::Proc::MKDIR.0, &mkdir)),
        ("NFSv3 REMOVE", true, other.start_nfs3(nfs3::Proc::REMOVE.0, &at("a"))),
        ("NFSv3 RMDIR", true, other.start_nfs3(nfs3::Proc::RMDIR.0, &at("inner"))),
        ("NFSv3 RENAME", true, other.start_nfs3(nfs3::Proc::RENAME.0, &rename)),
        ("NFSv3 LINK", true, other.start_nfs3(nfs3::Proc::LINK.0, &link)),
    ]
}

#[test]
fn changes_by_others_recall_directory_first() {
    let (mut first, directory) = with_directory(scene());
    let count = changes(&mut first, directory).len();
    for index in 0..count {
        let (mut scene, directory) = with_directory(scene());
        let stateid = granted(&mut scene.holder, &["export", "d"], NONE).stateid;
        let (what, conflicts, mut flight) = changes(&mut scene, directory).swap_remove(index);
        let answer = flight.poll_bytes();
        assert_eq!(answer.is_none(), conflicts, "{what}");
        let recalls = recalled(&scene.holder);
        assert_eq!(recalls.len(), usize::from(conflicts), "{what}");
        assert!(recalls.iter().all(|recall| (recall.stateid, recall.handle) == (stateid, directory)));
        let answer = answer.or_else(|| {
            assert_eq!(return_delegation(&mut scene.holder, directory, stateid), Status::OK);
            flight.poll_bytes()
        });
        assert_eq!(answer.map(|bytes| first_word(&bytes)), Some(0), "{what}");
        assert!(scene.lab.server.shared.state.is_quiet());
    }
}

#[test]
fn removing_directory_recalls_it_first() {
    let Scene { mut holder, mut other, mut lab, .. } = scene();
    lab.ok(at(&["export"], vec![make("d")]));
    let directory = lab.handle(&["export", "d"]);
    let stateid = granted(&mut holder, &["export", "d"], ENTRIES).stateid;
    let mut flight = other.start(1, at(&["export"], vec![remove("d")]));
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder).len(), 1);
    assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK));
}

#[test]
fn holder_does_not_conflict_with_itself() {
    let (Scene { mut holder, .. }, directory) = with_directory(scene());
    let stateid = granted(&mut holder, &["export", "d"], NONE).stateid;
    for op in [make("new"), remove("new"), set(mode(0o750)), make("more"), create("file", b"o")] {
        assert_eq!(holder.status(vec![putfh(directory), op]), Status::OK);
    }
    assert!(holder.calls().is_empty());
    assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
}

fn entry(text: &'static str) -> NotifyEntry {
    NotifyEntry { file: name(text), attributes: FileAttributes::default() }
}

fn gone(text: &'static str) -> NotifyRemove {
    NotifyRemove { old_entry: entry(text), old_entry_cookie: 0 }
}

fn came(text: &'static str, replaced: bool) -> NotifyAdd {
    NotifyAdd {
        old_entry: List::new(if replaced { vec![gone(text)] } else { vec![] }).unwrap(),
        new_entry: entry(text),
        new_entry_cookie: List::default(),
        previous_entry: List::default(),
        last_entry: false,
    }
}

fn notification(bit: u32, value: &impl xdr::Encode) -> Notification {
    Notification { mask: Bitmap::of(&[bit]), values: Opaque::new(xdr::to_bytes(value)).unwrap() }
}

fn added(text: &'static str) -> Notification {
    notification(notify_type::ADD_ENTRY, &came(text, false))
}

fn removed(text: &'static str) -> Notification {
    notification(notify_type::REMOVE_ENTRY, &gone(text))
}

fn renamed(from: &'static str, to: &'static str, replaced: bool) -> Notification {
    let renamed = NotifyRename { old_entry: gone(from), new_entry: came(to, replaced) };
    notification(notify_type::RENAME_ENTRY, &renamed)
}

/// Returns the notifications of the only pending CB_NOTIFY, and answers it with this status.
#[track_caller]
fn notified(client: &Lab, answer: Status) -> (Stateid, Vec<Notification>) {
    let calls = client.calls();
    let [call] = &calls[..] else { panic!("{} calls", calls.len()) };
    let CbOp::Notify(args) = call.operation() else { panic!("{:?}", call.operation()) };
    let result = if answer == Status::OK { Outcome::Ok(()) } else { Outcome::Error(answer) };
    client.answer(call.results(CbOpResult::Notify(result)));
    (args.stateid, args.changes.to_vec())
}

#[test]
fn subscriber_keeps_directory_and_gets_ordered_notifications() {
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    let more = ENTRIES.union(Bitmap::of(&[notify_type::CHANGE_DIR_ATTRS, notify_type::CHANGE_CHILD_ATTRS]));
    let granted = granted(&mut holder, &["export", "d"], more);
    assert_eq!(granted.notification_types, ENTRIES, "unsupported notifications are not granted");
    assert_eq!((granted.child_attributes, granted.directory_attributes), (NONE, NONE));
    other.ok(vec![putfh(directory), make("new")]);
    other.ok(vec![putfh(directory), Op::SaveFh, rename("new", "newer")]);
    other.ok(vec![putfh(directory), remove("newer")]);
    other.ok(vec![putfh(directory), Op::SaveFh, rename("a", "b")]);
    // RFC 8881 §20.4.3: "a sequence of serial CB_COMPOUND requests".
    assert_eq!(notified(&holder, Status::OK), (granted.stateid, vec![added("new")]));
    let rest = vec![renamed("new", "newer", false), removed("newer"), renamed("a", "b", true)];
    assert_eq!(notified(&holder, Status::OK), (granted.stateid, rest));
    assert!(holder.calls().is_empty());
    // Operations without effect cause no notification.
    assert_eq!(other.status(vec![putfh(directory), remove("absent")]), Status::NOENT);
    assert_eq!(other.status(vec![putfh(directory), make("b")]), Status::EXIST);
    let open = Op::Open(open_args("b", b"o", READ, OpenHow::Create(CreateHow::Unchecked(mode(0o644)))));
    assert_eq!(other.status(vec![putfh(directory), open]), Status::OK);
    assert!(holder.calls().is_empty());
    assert_eq!(return_delegation(&mut holder, directory, granted.stateid), Status::OK);
}

#[test]
fn notifies_both_directories_of_move() {
    let (Scene { mut lab, mut holder, mut other, .. }, directory) = with_directory(scene());
    let root = lab.handle(&["export"]);
    let from = granted(&mut holder, &["export"], ENTRIES).stateid;
    let to = granted(&mut other, &["export", "d"], ENTRIES).stateid;
    lab.ok(vec![putfh(root), Op::SaveFh, putfh(directory), rename("file", "a")]);
    assert_eq!(notified(&holder, Status::OK), (from, vec![removed("file")]));
    let added = notification(notify_type::ADD_ENTRY, &came("a", true));
    assert_eq!(notified(&other, Status::OK), (to, vec![added]));
}

#[test]
fn notifies_holder_of_its_own_changes() {
    // RFC 8881 §10.9.2: "the server will notify the delegation-holding client … of the changes made as a result of that
    // client's directory-modifying operations".
    let (Scene { mut holder, .. }, directory) = with_directory(scene());
    granted(&mut holder, &["export", "d"], ENTRIES);
    holder.ok(vec![putfh(directory), make("new")]);
    assert_eq!(notified(&holder, Status::OK).1, [added("new")]);
}

#[test]
fn recalls_for_changes_without_notification() {
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    let only = Bitmap::of(&[notify_type::ADD_ENTRY]);
    let stateid = granted(&mut holder, &["export", "d"], only).stateid;
    other.ok(vec![putfh(directory), make("new")]);
    assert_eq!(notified(&holder, Status::OK).1, [added("new")]);
    let mut flight = other.start(1, vec![putfh(directory), remove("new")]);
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder).len(), 1);
    // The delegation is being returned: every change waits for that.
    let mut second = other.start(2, vec![putfh(directory), make("newer")]);
    assert_eq!(status(second.poll()), None);
    assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
    assert_eq!((status(flight.poll()), status(second.poll())), (Some(Status::OK), Some(Status::OK)));
    assert!(holder.calls().is_empty());
}

#[test]
fn waits_only_for_holders_without_notifications() {
    for count in 1..6 {
        let (Scene { lab, mut holder, mut other, .. }, directory) = with_directory(scene());
        let stateid = granted(&mut holder, &["export", "d"], NONE).stateid;
        let names: [&'static [u8]; 5] = [b"1", b"2", b"3", b"4", b"5"];
        let mut notified: Vec<Lab> =
            (20..).zip(&names[..count]).map(|(id, name)| lab.reachable(name, id)).collect();
        for client in &mut notified {
            granted(client, &["export", "d"], ENTRIES);
        }
        let mut flight = other.start(1, vec![putfh(directory), make("new")]);
        assert_eq!(status(flight.poll()), None);
        assert_eq!(recalled(&holder).len(), 1);
        let returns = || assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
        assert!(flight.is_woken_by(returns), "{count} are notified");
        assert_eq!(status(flight.poll()), Some(Status::OK), "{count} are notified");
    }
}

#[test]
fn unreported_change_causes_recall() {
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    granted(&mut holder, &["export", "d"], ENTRIES);
    other.ok(vec![putfh(directory), make("new")]);
    assert_eq!(notified(&holder, Status::OK).1, [added("new")]);
    // The directory's own attributes change, as by a local process.
    holder.ok(vec![putfh(directory), set(mode(0o750))]);
    other.ok(vec![putfh(directory), make("newer")]);
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn first_notification_follows_the_grant() {
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    granted(&mut holder, &["export", "d"], ENTRIES);
    holder.ok(vec![putfh(directory), set(mode(0o750))]);
    other.ok(vec![putfh(directory), make("new")]);
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn rename_notification_names_replaced_entry() {
    // RFC 8881 §20.4.3: "If the addition of the entry causes another entry to be deleted (which can only happen in the rename
    // case) atomically with the addition, then information on this entry is reported in nad_old_entry."
    for is_taken_meanwhile in [false, true] {
        let (exported, backend) = faulty();
        let (Scene { mut lab, mut holder, mut other, .. }, directory) =
            with_directory(scene_in(lab_of(vec![exported])));
        granted(&mut holder, &["export", "d"], ENTRIES);
        let gate = Gate::new();
        backend.add(Rule::on(Method::Rename, Fault::Hold(gate.clone())).times(1));
        let ops = vec![putfh(directory), Op::SaveFh, rename("inner", "new")];
        let mut flight = other.start(1, ops);
        assert_eq!(status(flight.poll()), None);
        if is_taken_meanwhile {
            lab.ok(vec![putfh(directory), make("new")]);
            assert_eq!(notified(&holder, Status::OK).1, [added("new")]);
        }
        gate.open();
        assert_eq!(status(flight.poll()), Some(Status::OK));
        if is_taken_meanwhile {
            assert_eq!(recalled(&holder).len(), 1);
        } else {
            assert_eq!(notified(&holder, Status::OK).1, [renamed("inner", "new", false)]);
        }
    }
}

#[test]
fn recalls_directory_when_replaced_entry_is_unknown() {
    let (exported, backend) = faulty();
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene_in(lab_of(vec![exported])));
    granted(&mut holder, &["export", "d"], ENTRIES);
    // After the recalls for both names.
    backend.add(Rule::on(Method::Lookup, Fault::Fail(vfs::Error::Io)).after(2).times(1));
    other.ok(vec![putfh(directory), Op::SaveFh, rename("a", "b")]);
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn recalls_holders_of_entry_that_appears_after_lookup() {
    // RFC 8881 §10.9.2: "The operation causing the recall will have to wait before the recall is complete."
    for (method, op) in [(Method::Remove, remove("late")), (Method::Rename, rename("late", "new"))] {
        let (exported, backend) = faulty();
        let (Scene { mut lab, mut holder, mut other, .. }, directory) =
            with_directory(scene_in(lab_of(vec![exported])));
        let stateid = granted(&mut holder, &["export", "d"], NONE).stateid;
        let gate = Gate::new();
        backend.add(Rule::on(method, Fault::Hold(gate.clone())).times(1));
        let mut flight = other.start(1, vec![putfh(directory), Op::SaveFh, op]);
        assert_eq!(status(flight.poll()), None);
        assert!(holder.calls().is_empty(), "nothing to remove");
        holder.ok(vec![putfh(directory), make("late")]);
        gate.open();
        assert_eq!(status(flight.poll()), None, "{method:?}");
        assert_eq!(recalled(&holder).len(), 1);
        // The call cannot be answered with DELAY any more: it waits for longer than others.
        lab.pass(LEASE_SECONDS - 1);
        assert_eq!(status(flight.poll()), None, "{method:?}");
        (holder.seconds, other.seconds) = (lab.seconds, lab.seconds);
        assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
        assert_eq!(status(flight.poll()), Some(Status::OK));
    }
}

#[test]
fn notifies_subscriber_before_other_holder_returns() {
    let (exported, backend) = faulty();
    let (Scene { lab, mut holder, mut other, .. }, directory) =
        with_directory(scene_in(lab_of(vec![exported])));
    let mut third = lab.reachable(b"third", 13);
    let stateid = granted(&mut holder, &["export", "d"], NONE).stateid;
    granted(&mut third, &["export", "d"], ENTRIES);
    let gate = Gate::new();
    backend.add(Rule::on(Method::Remove, Fault::Hold(gate.clone())).times(1));
    let mut flight = other.start(1, vec![putfh(directory), remove("late")]);
    assert_eq!(status(flight.poll()), None);
    holder.ok(vec![putfh(directory), make("late")]);
    assert_eq!(notified(&third, Status::OK).1, [added("late")]);
    gate.open();
    assert_eq!(status(flight.poll()), None, "the other holder keeps its delegation");
    assert_eq!(notified(&third, Status::OK).1, [removed("late")]);
    // The next notification continues from there.
    holder.ok(vec![putfh(directory), make("next")]);
    assert_eq!(notified(&third, Status::OK).1, [added("next")]);
    assert_eq!(recalled(&holder).len(), 1);
    assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK));
}

#[test]
fn recalls_directory_when_notifications_fail() {
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    granted(&mut holder, &["export", "d"], ENTRIES);
    other.ok(vec![putfh(directory), make("new")]);
    notified(&holder, Status::NOTSUPP);
    assert_eq!(recalled(&holder).len(), 1);

    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    granted(&mut holder, &["export", "d"], ENTRIES);
    let is_recall = |call: &Call| matches!(call.operation(), CbOp::Recall(_));
    let mut turns = 0;
    while !holder.calls().iter().any(is_recall) {
        other.ok(vec![putfh(directory), make("new")]);
        other.ok(vec![putfh(directory), remove("new")]);
        turns += 1;
        assert!(turns < 1000, "the queue is bounded");
    }
}

#[test]
fn backs_off_notifications_after_refusal() {
    let (Scene { mut lab, mut holder, mut other, .. }, directory) = with_directory(scene());
    let root = lab.handle(&["export"]);
    // Deadlines of callbacks pass only in `maintain`.
    lab.pass(1);
    for pause in [15, 30] {
        let stateid = granted(&mut holder, &["export", "d"], ENTRIES).stateid;
        other.ok(vec![putfh(directory), make("new")]);
        notified(&holder, Status::NOTSUPP);
        assert_eq!(recalled(&holder).len(), 1);
        assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
        other.ok(vec![putfh(directory), remove("new")]);
        // A delegation granted meanwhile is recalled before a change; its holder gets no notifications.
        let mut until = |second: u64, expected: Bitmap| {
            lab.pass(second);
            for client in [&mut holder, &mut other] {
                client.seconds = lab.seconds;
            }
            let granted = granted(&mut holder, &["export"], ENTRIES);
            assert_eq!(granted.notification_types, expected);
            assert_eq!(return_delegation(&mut holder, root, granted.stateid), Status::OK);
        };
        until(pause - 1, NONE);
        until(1, ENTRIES);
    }
    // Only this client refuses notifications.
    assert_eq!(granted(&mut other, &["export"], ENTRIES).notification_types, ENTRIES);
}

#[test]
fn notifies_again_after_transient_error() {
    // RFC 8881 §15.3: a busy client; and statuses that a returned delegation causes meanwhile.
    for answer in [Status::DELAY, Status::BAD_STATEID, Status::BADHANDLE] {
        let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
        granted(&mut holder, &["export", "d"], ENTRIES);
        other.ok(vec![putfh(directory), make("new")]);
        notified(&holder, answer);
        assert_eq!(recalled(&holder).len(), 1, "{answer:?}: a holder that was not notified must look it up");
        assert_eq!(granted(&mut holder, &["export"], ENTRIES).notification_types, ENTRIES, "{answer:?}");
    }
}

#[test]
fn looks_up_changed_names_in_delegated_directories_only() {
    let (exported, backend) = faulty();
    let (Scene { mut lab, mut holder, mut other, .. }, directory) =
        with_directory(scene_in(lab_of(vec![exported])));
    let root = lab.handle(&["export"]);
    granted(&mut holder, &["export", "d"], NONE);
    let before = backend.calls(Method::Lookup);
    other.ok(vec![putfh(root), make("new")]);
    assert_eq!(backend.calls(Method::Lookup), before);
    let mut flight = other.start(1, vec![putfh(directory), make("new")]);
    assert!(flight.poll().is_none());
    assert_eq!(backend.calls(Method::Lookup), before + 1, "whether the name exists already");
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn recalls_directory_after_change_with_unknown_outcome() {
    let (exported, backend) = faulty();
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene_in(lab_of(vec![exported])));
    granted(&mut holder, &["export", "d"], ENTRIES);
    backend.add(Rule::on(Method::Create, Fault::Hold(Gate::new())).times(1));
    let mut flight = other.start(1, vec![putfh(directory), make("new")]);
    assert_eq!(status(flight.poll()), None);
    assert!(holder.calls().is_empty());
    drop(flight);
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn waiting_change_blocks_directory_delegation() {
    let (Scene { mut holder, mut other, mut lab, .. }, directory) = with_directory(scene());
    let stateid = granted(&mut holder, &["export", "d"], NONE).stateid;
    let mut flight = lab.start(1, vec![putfh(directory), make("new")]);
    assert_eq!(status(flight.poll()), None);
    assert_eq!(asked(&mut other, &["export", "d"], NONE), DirDelegation::Unavailable(false));
    assert_eq!(recalled(&holder).len(), 1);
    assert_eq!(return_delegation(&mut holder, directory, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK));
    // The directory was contended, and is not delegated for a while.
    assert_eq!(asked(&mut other, &["export", "d"], NONE), DirDelegation::Unavailable(false));
}

#[test]
fn reports_unavailable_directory_delegation() {
    let unavailable = DirDelegation::Unavailable(false);
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    lab.ok(at(&["export"], vec![make("private")]));
    assert_eq!(lab.status_at(&["export", "private"], set(mode(0o700))), Status::OK);
    assert_eq!(lab.status_at(&["export", "file"], ask(NONE, false)), Status::NOTDIR);
    assert_eq!(asked(&mut lab, &["export"], NONE), unavailable, "it cannot be called");
    assert_eq!(asked(&mut holder, &[], NONE), unavailable, "names of exports");
    // RFC 8881 §18.39.3: a client that wants a signal when a delegation is available learns that there will be no signal.
    assert_eq!(lab.status_at(&["export"], ask(NONE, true)), Status::DIRDELEG_UNAVAIL);
    let stateid = granted(&mut holder, &["export"], NONE).stateid;
    assert_eq!(asked(&mut holder, &["export"], NONE), unavailable, "it has one");
    // Any number of clients may hold one, and files do not conflict with it.
    granted(&mut other, &["export"], NONE);
    hold(&mut other, "file", BOTH);
    let root = lab.handle(&["export"]);
    assert_eq!(return_delegation(&mut holder, root, stateid), Status::OK);
    // A caller without read permission gets no delegation.
    holder.uid = 1000;
    assert_eq!(asked(&mut holder, &["export", "private"], NONE), unavailable);

    let none = lab_with(vec![export(1, "/export")], |settings| settings.max_delegations = 0);
    let Scene { mut holder, .. } = scene_in(none);
    assert_eq!(asked(&mut holder, &["export"], NONE), unavailable);
}
