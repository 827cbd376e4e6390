//! Changes by local processes to delegated objects.

use std::sync::Arc;

use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DirDelegation};
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::ops::verify::VerifyArgs;
use protocol::nfs4::types::{Bitmap, Stateid, Status};
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use vfs::{Authority, Backend, Context, Credentials, Handle, Interest, MemFs, SetAttributes, SetTime};

use super::directories::{asked, granted, with_directory};
use super::{
    BOTH, LEASE_SECONDS, READ, Scene, counts, delegated, hold, opened, recalled, return_delegation, scene_in,
    set, status,
};
use crate::Work;
use crate::testing::{Lab, at, attributes_in, faulty, getattr, lab_of, mode, open, open_result, putfh};

/// Returns a scene, and the file system that local processes change.
fn scene() -> (Scene, Arc<Faulty<MemFs>>) {
    let (export, backend) = faulty();
    (scene_in(lab_of(vec![export])), backend)
}

fn context() -> Context {
    // Later than any request of a test.
    let now = vfs::Timestamp { seconds: 2_000_000, nanoseconds: 0 };
    Context::new(Arc::new(Credentials::root()), now)
}

fn object(backend: &Faulty<MemFs>, name: &str) -> Handle {
    backend.lookup(&context(), &backend.root(), name.as_bytes()).now().expect("it is there").handle
}

/// Changes an object as a local process does; the server is not notified yet.
fn change(backend: &Faulty<MemFs>, name: &str) {
    let set = SetAttributes { modified: Some(SetTime::Now), ..SetAttributes::default() };
    let object = object(backend, name);
    backend.setattr(&context(), &object, &set, None, Authority::Opened).now().expect("it is changed");
}

/// Passes pending change notifications to the server, as the driver does, and returns their number.
fn recall(lab: &Lab) -> usize {
    let mut count = 0;
    while let Some(Work::ExternalChange(change)) = lab.work() {
        lab.server.handle_external_change(&change, lab.now());
        count += 1;
    }
    count
}

fn delegreturn(stateid: Stateid) -> Op {
    Op::DelegReturn(DelegReturnArgs { stateid })
}

fn change_of(client: &mut Lab, path: &[&'static str]) -> u64 {
    client.attributes(path, &[n::CHANGE]).change.expect("it was requested")
}

#[test]
fn local_changes_recall_conflicting_delegations() {
    for (access, does, recalls) in [
        (READ, Interest::Changes, true),
        (READ, Interest::Uses, false),
        (BOTH, Interest::Changes, true),
        (BOTH, Interest::Uses, true),
    ] {
        let (Scene { lab, mut holder, mut other, file }, backend) = scene();
        let stateid = hold(&mut holder, "file", access);
        assert_eq!(backend.outsiders().watched(), 1);
        backend.outsiders().act(&object(&backend, "file"), does);
        assert_eq!(recall(&lab), usize::from(recalls), "{access:?} {does:?}");
        assert_eq!(recalled(&holder).len(), usize::from(recalls), "{access:?} {does:?}");
        backend.outsiders().act(&object(&backend, "file"), does);
        assert_eq!((recall(&lab), holder.calls().len()), (0, 0), "it is recalled once");
        assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
        assert_eq!(backend.outsiders().watched(), 0, "the watch ends with the delegation");
        let (_, given) = opened(&mut other, open("file", b"o", READ));
        assert_eq!(delegated(&given).is_none(), recalls, "a contended file is not delegated for a while");
    }
}

#[test]
fn recalls_directory_after_local_change() {
    let (first, backend) = scene();
    let (Scene { lab, mut holder, .. }, directory) = with_directory(first);
    let given = granted(&mut holder, &["export", "d"], Bitmap::EMPTY);
    backend.outsiders().act(&object(&backend, "d"), Interest::Changes);
    assert_eq!((recall(&lab), recalled(&holder).len()), (1, 1));
    assert_eq!(return_delegation(&mut holder, directory, given.stateid), Status::OK);
    assert_eq!(backend.outsiders().watched(), 0);
}

#[test]
fn revokes_unreturned_delegation_after_local_change() {
    let (Scene { mut lab, mut holder, .. }, backend) = scene();
    hold(&mut holder, "file", READ);
    backend.outsiders().act(&object(&backend, "file"), Interest::Changes);
    assert_eq!((recall(&lab), recalled(&holder).len()), (1, 1));
    for _ in 0..3 {
        lab.pass(LEASE_SECONDS / 3 + 1);
        holder.seconds = lab.seconds;
        holder.status(vec![]);
    }
    assert_eq!(counts(&lab), (0, 0, 1));
    assert_eq!(backend.outsiders().watched(), 0);
}

#[test]
fn change_before_watch_prevents_grant() {
    let (Scene { lab, mut holder, .. }, backend) = scene();
    let gate = Gate::new();
    backend.add(Rule::on(Method::Watch, Fault::Hold(gate.clone())).times(1));
    let mut flight = holder.start(1, at(&["export"], vec![open("file", b"o", READ)]));
    assert_eq!(status(flight.poll()), None);
    change(&backend, "file");
    gate.open();
    let result = flight.poll().expect("it is answered");
    let given = &open_result(result.results.last().unwrap()).delegation;
    assert!(delegated(given).is_none(), "{given:?}");
    assert_eq!((recall(&lab), backend.outsiders().watched()), (0, 0));
}

#[test]
fn change_before_grant_prevents_grant() {
    let (Scene { lab, mut holder, .. }, backend) = scene();
    let gate = Gate::new();
    // The check after the watch began.
    backend.add(Rule::on(Method::Getattr, Fault::Hold(gate.clone())).times(1));
    let mut flight = holder.start(1, at(&["export"], vec![open("file", b"o", READ)]));
    assert_eq!(status(flight.poll()), None);
    backend.outsiders().act(&object(&backend, "file"), Interest::Changes);
    gate.open();
    let result = flight.poll().expect("it is answered");
    let given = &open_result(result.results.last().unwrap()).delegation;
    assert!(delegated(given).is_none(), "{given:?}");
    assert_eq!(recall(&lab), 1, "one change was reported");
    assert!(holder.calls().is_empty());
    assert_eq!(backend.outsiders().watched(), 0);
}

#[test]
fn grant_reply_shows_changes_made_before_the_grant() {
    let (Scene { mut holder, mut other, .. }, backend) = scene();
    let gate = Gate::new();
    // The check after the watch began sees the old attributes, and its answer arrives later.
    backend.add(Rule::on(Method::Getattr, Fault::HoldAfter(gate.clone())).times(1));
    let mut flight = holder.start(1, at(&["export"], vec![open("file", b"o", READ)]));
    assert_eq!(status(flight.poll()), None);
    other.ok(at(&["export", "file"], vec![super::write(Stateid::ANONYMOUS)]));
    gate.open();
    assert_eq!(status(flight.poll()), Some(Status::OK));
    // Otherwise the holder would trust its stale cache, and no recall would correct that.
    let is = change_of(&mut other, &["export", "file"]);
    assert_eq!(change_of(&mut holder, &["export", "file"]), is);
}

#[test]
fn reads_directory_attributes_after_watch_starts() {
    let (first, backend) = scene();
    let (Scene { mut holder, .. }, _) = with_directory(first);
    let gate = Gate::new();
    backend.add(Rule::on(Method::Watch, Fault::Hold(gate.clone())).times(1));
    let mut flight =
        holder.start(1, at(&["export", "d"], vec![super::directories::ask(Bitmap::EMPTY, false)]));
    assert_eq!(status(flight.poll()), None);
    change(&backend, "d");
    gate.open();
    let result = flight.poll().expect("it is answered");
    let Some(OpResult::GetDirDelegation(given)) = result.results.last() else { panic!("{result:?}") };
    assert_eq!(given.as_result(), Ok(&DirDelegation::Unavailable(false)));
    assert!(matches!(asked(&mut holder, &["export", "d"], Bitmap::EMPTY), DirDelegation::Granted(_)));
}

/// Returns the change attribute of `file` in READDIR.
fn listed_change(client: &mut Lab) -> u64 {
    let list = Op::ReadDir(ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: 0,
        maxcount: 65_536,
        attributes: Bitmap::of(&[n::CHANGE]),
    });
    let OpResult::ReadDir(result) = client.last(at(&["export"], vec![list])) else { panic!() };
    let listing = result.into_result().unwrap();
    let entry = listing.entries.iter().find(|entry| &entry.name[..] == b"file").expect("it is listed");
    Attributes::from_file_attributes(&entry.attributes).unwrap().change.expect("it was requested")
}

#[test]
fn holder_sees_change_attribute_of_grant_until_return() {
    let (Scene { lab, mut holder, mut other, file }, backend) = scene();
    let stateid = hold(&mut holder, "file", READ);
    let before = change_of(&mut holder, &["export", "file"]);
    change(&backend, "file");
    // The report comes a little after the change.
    for rings in [false, true] {
        if rings {
            backend.outsiders().act(&object(&backend, "file"), Interest::Changes);
            assert_eq!((recall(&lab), recalled(&holder).len()), (1, 1));
        }
        assert_eq!(change_of(&mut holder, &["export", "file"]), before);
        assert_eq!(listed_change(&mut holder), before);
        let attributes = Attributes { change: Some(before), ..Attributes::default() }.to_file_attributes();
        let verify = Op::Verify(VerifyArgs { attributes });
        assert_eq!(holder.status_at(&["export", "file"], verify), Status::OK);
        assert_ne!(change_of(&mut other, &["export", "file"]), before, "others have it as it is");
        assert_ne!(listed_change(&mut other), before);
    }
    // Returns the delegation as Linux's client does, which takes the attributes in that reply as its own change.
    let giving = vec![putfh(file), getattr(&[n::CHANGE]), delegreturn(stateid), getattr(&[n::CHANGE])];
    let results = holder.ok(giving);
    assert_eq!(attributes_in(&results[1]).change, Some(before));
    let after = change_of(&mut other, &["export", "file"]);
    assert_eq!(attributes_in(&results[3]).change, Some(after));
    assert_eq!(listed_change(&mut holder), after);
}

#[test]
fn holder_detects_foreign_change_despite_its_own() {
    for by_open in [false, true] {
        let (Scene { mut holder, mut other, file, .. }, backend) = scene();
        let stateid = hold(&mut holder, "file", READ);
        let before = change_of(&mut holder, &["export", "file"]);
        if by_open {
            let op = open("file", b"holder", BOTH);
            let write = super::write(Stateid::CURRENT);
            holder.ok(at(&["export"], vec![op, write]));
        } else {
            holder.ok(at(&["export", "file"], vec![set(mode(0o600))]));
        }
        let own = change_of(&mut other, &["export", "file"]);
        assert_ne!(own, before);
        assert_eq!(change_of(&mut holder, &["export", "file"]), before);
        change(&backend, "file");
        // No change was reported yet.
        let giving = vec![putfh(file), getattr(&[n::CHANGE]), delegreturn(stateid), getattr(&[n::CHANGE])];
        let results = holder.ok(giving);
        assert_eq!(attributes_in(&results[1]).change, Some(before));
        let after = attributes_in(&results[3]).change;
        assert!(after != Some(own) && after != Some(before), "it must read it again");
    }
}

#[test]
fn write_holder_sees_own_changes_until_local_change_report() {
    let (Scene { lab, mut holder, .. }, backend) = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    let before = change_of(&mut holder, &["export", "file"]);
    holder.ok(at(&["export", "file"], vec![super::write(stateid)]));
    assert_ne!(change_of(&mut holder, &["export", "file"]), before);
    backend.outsiders().act(&object(&backend, "file"), Interest::Uses);
    assert_eq!((recall(&lab), recalled(&holder).len()), (1, 1));
    assert_eq!(change_of(&mut holder, &["export", "file"]), before);
}

#[test]
fn grants_nothing_without_watch() {
    let (Scene { mut holder, .. }, backend) = scene();
    backend.add(Rule::on(Method::Watch, Fault::Fail(vfs::Error::Later)));
    let (_, given) = opened(&mut holder, open("file", b"o", READ));
    assert!(delegated(&given).is_none(), "{given:?}");
}

#[test]
fn watches_nothing_when_local_changes_are_ignored() {
    let (mut export, backend) = faulty();
    export.options.recall_local_changes = false;
    let Scene { mut holder, .. } = scene_in(lab_of(vec![export]));
    hold(&mut holder, "file", READ);
    assert_eq!(backend.calls(Method::Watch), 0);
    let before = change_of(&mut holder, &["export", "file"]);
    change(&backend, "file");
    assert_ne!(change_of(&mut holder, &["export", "file"]), before, "the file's own attribute");
}

#[test]
fn watches_only_before_possible_grant() {
    let (Scene { mut lab, mut holder, mut other, .. }, backend) = scene();
    // The lab's own client cannot be called.
    opened(&mut lab, open("file", b"o", READ));
    opened(&mut holder, open("file", b"o", BOTH));
    assert_eq!(backend.calls(Method::Watch), 0, "others have it open, or the client accepts no callbacks");
    opened(&mut other, open("file", b"o", READ));
    assert_eq!(backend.calls(Method::Watch), 0, "another writes");
}

/// As [`listed_change`]; also returns whether the backend was used.
fn listed(client: &mut Lab, backend: &Faulty<MemFs>) -> (u64, bool) {
    let looks = backend.calls(Method::Readdir);
    (listed_change(client), backend.calls(Method::Readdir) > looks)
}

/// Lists until the reply is from the cache, and returns the change attribute.
#[track_caller]
fn cached_listing(client: &mut Lab, backend: &Faulty<MemFs>) -> u64 {
    let reported = (0..200).map(|_| listed(client, backend)).find(|(_, is_looked_at)| !is_looked_at);
    reported.expect("a cached listing").0
}

#[test]
fn holder_shares_cached_listing_while_unchanged() {
    let (Scene { mut holder, mut other, .. }, backend) = scene();
    hold(&mut holder, "file", READ);
    let granted = change_of(&mut holder, &["export", "file"]);
    assert_eq!(cached_listing(&mut other, &backend), granted);
    assert_eq!(listed(&mut holder, &backend), (granted, false));
    // And in the opposite order.
    (holder.seconds, other.seconds) = (holder.seconds + 1, other.seconds + 1);
    assert_eq!(listed(&mut holder, &backend), (granted, true));
    assert_eq!(listed(&mut other, &backend), (granted, false));
    // The change is not reported yet.
    change(&backend, "file");
    let now = cached_listing(&mut other, &backend);
    assert_ne!(now, granted);
    for _ in 0..3 {
        assert_eq!(listed(&mut holder, &backend), (granted, true));
        assert_eq!(listed(&mut other, &backend), (now, false), "the holder's listing is separate");
    }
}

#[test]
fn listing_cached_before_local_change_is_not_used_after_it() {
    let (Scene { lab, mut holder, mut other, .. }, backend) = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    let granted = change_of(&mut holder, &["export", "file"]);
    holder.ok(at(&["export", "file"], vec![super::write(stateid)]));
    let own = cached_listing(&mut other, &backend);
    assert_ne!(own, granted);
    assert_eq!(listed_change(&mut holder), own);
    backend.outsiders().act(&object(&backend, "file"), Interest::Uses);
    assert_eq!((recall(&lab), recalled(&holder).len()), (1, 1));
    assert_eq!(listed(&mut holder, &backend), (granted, true));
    assert_eq!(listed(&mut other, &backend), (own, false));
}

#[test]
fn listing_cached_before_grant_is_not_used_for_holder() {
    let (Scene { mut lab, mut holder, mut other, .. }, backend) = scene();
    // A holder of another delegation, which may have to see another change attribute.
    lab.file(&["export", "beside"], b"");
    hold(&mut holder, "beside", READ);
    let before = cached_listing(&mut other, &backend);
    let gate = Gate::new();
    // The check after the watch began sees the old attributes, and its answer arrives later.
    backend.add(Rule::on(Method::Getattr, Fault::HoldAfter(gate.clone())).times(1));
    let mut flight = holder.start(1, at(&["export"], vec![open("file", b"o", READ)]));
    assert_eq!(status(flight.poll()), None);
    change(&backend, "file");
    let changed = cached_listing(&mut other, &backend);
    assert_ne!(changed, before);
    gate.open();
    let result = flight.poll().expect("it is answered");
    let given = &open_result(result.results.last().unwrap()).delegation;
    assert!(delegated(given).is_some(), "no notification has arrived: {given:?}");
    assert_eq!(change_of(&mut holder, &["export", "file"]), before);
    assert_eq!(listed(&mut holder, &backend), (before, true));
    assert_eq!(listed(&mut other, &backend), (changed, false));
}

#[test]
fn cached_listing_serves_clients_without_delegations() {
    let (Scene { lab, mut other, .. }, backend) = scene();
    let names = (b'A'..=b'Z').map(|name| (&*Vec::leak(vec![name]), u64::from(name)));
    let mut holders: Vec<Lab> = names.map(|(name, number)| lab.reachable(name, number)).collect();
    for holder in &mut holders {
        hold(holder, "file", READ);
    }
    let granted = change_of(&mut holders[0], &["export", "file"]);
    change(&backend, "file");
    let now = cached_listing(&mut other, &backend);
    assert_ne!(now, granted);
    for holder in &mut holders {
        assert_eq!(listed(holder, &backend), (granted, true));
    }
    assert_eq!(listed(&mut other, &backend), (now, false));
}
