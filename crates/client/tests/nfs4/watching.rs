//! A watch of a tree of which the server tells changes: delegations of directories with notifications (RFC 8881 §10.9).

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use client::attributes::SetAttributes;
use client::config::Version;
use client::fs::{FileSystem, OpenOptions};
use client::watch::{Change, Notice, Report, Settings, Watch, WatchError};
use futures_util::future::{Either, select};
use protocol::nfs4::types::OpNum;

use crate::world::{LEASE, Peer, World};

const VERSIONS: [Version; 2] = [Version::V41, Version::V42];
/// Time for notifications and for what follows them.
const SOON: Duration = Duration::from_secs(1);

/// A watch of the export, whose interval never ends.
struct Watching {
    world: Rc<World>,
    run: Pin<Box<dyn Future<Output = Result<(), WatchError>>>>,
    reports: Rc<RefCell<Vec<Report>>>,
    peer: Rc<Peer>,
}

impl Watching {
    /// Starts a watch of `a`, `a/one`, `b` and `c`, of which the server tells all changes.
    fn start(world: &Rc<World>, other: &FileSystem, version: Version) -> Self {
        for directory in [b"a", b"b", b"c"] {
            world.run(other.mkdir(directory, 0o755)).unwrap();
        }
        make(world, other, b"a/one");
        let (fs, peer) = world.mounted(version);
        // The server tries the back channel first.
        world.pass(Duration::from_secs(2));
        let start = world.run(fs.resolve(b"", true)).unwrap();
        let interval = Duration::from_secs(1 << 40);
        let settings = Settings { interval, depth_max: 10, entries_max: 1000, notifications: true };
        let reports = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&reports);
        let run = Box::pin(async move {
            Watch::new(fs, &start, settings).run(&mut |report| sink.borrow_mut().push(report)).await
        });
        let mut watching = Self { world: Rc::clone(world), run, reports, peer };
        let watched = Notice::Watching { directories: 4, entries: 4, notified: 4 };
        assert_eq!(watching.reports_within(SOON)[0], Report::Notice(watched));
        watching
    }

    fn reports_within(&mut self, time: Duration) -> Vec<Report> {
        assert_eq!(self.world.run_for(time, Pin::new(&mut self.run)), None);
        std::mem::take(&mut *self.reports.borrow_mut())
    }

    /// Returns the events within a second: a letter for the change, and the path.
    fn events(&mut self) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let reports = self.reports_within(SOON);
        let events = reports.iter().filter_map(|report| match report {
            Report::Event(event) => Some(match &event.change {
                Change::Created => format!("+ {}", text(&event.path)),
                Change::Removed => format!("- {}", text(&event.path)),
                Change::Renamed(from) => format!("{} -> {}", text(from), text(&event.path)),
                Change::Content | Change::Attributes => format!("! {}", text(&event.path)),
            }),
            _ => None,
        });
        events.collect()
    }

    /// Returns the number of these operations of the watch.
    fn count(&self, op: OpNum) -> usize {
        self.peer.compounds.borrow().iter().flatten().filter(|done| **done == op).count()
    }

    /// Does what another client does, while the watch goes on: the server may wait for it.
    fn does<T: std::fmt::Debug>(&mut self, work: impl Future<Output = Result<T, impl std::fmt::Debug>>) {
        let world = Rc::clone(&self.world);
        match world.run(select(self.run.as_mut(), pin!(work))) {
            Either::Left((ended, _)) => panic!("the watch has ended: {ended:?}"),
            Either::Right((done, _)) => _ = done.expect("a server that answers"),
        }
    }
}

async fn create(fs: &FileSystem, path: &[u8]) -> Result<(), client::error::OpError> {
    let file = fs.open(path, &OpenOptions::CREATE).await.expect("a new file");
    file.close().await.expect("an open file");
    Ok(())
}

#[test]
fn changes_that_the_server_tells_need_no_listing() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let mut watching = Watching::start(&world, &other, version);
        let listings = watching.count(OpNum::READDIR);
        for number in 0..3 {
            let name = format!("b/{number}");
            watching.does(create(&other, name.as_bytes()));
            assert_eq!(watching.events(), [format!("+ {name}")]);
        }
        watching.does(other.rename(b"b/0", b"b/4"));
        assert_eq!(watching.events(), ["b/0 -> b/4"]);
        watching.does(other.rename(b"b/1", b"c/1"));
        assert_eq!(watching.events(), ["b/1 -> c/1"], "two notifications");
        watching.does(create(&other, b"a/new"));
        assert_eq!(watching.events(), ["+ a/new"]);
        watching.does(other.unlink(b"a/one"));
        assert_eq!(watching.events(), ["- a/one"]);
        let done = (watching.count(OpNum::READDIR), watching.count(OpNum::DELEGRETURN));
        assert_eq!(done, (listings, 0), "{version}");
    }
}

#[test]
fn only_a_recalled_directory_is_listed() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let mut watching = Watching::start(&world, &other, version);
        let listings = watching.count(OpNum::READDIR);
        // The server cannot tell what follows a change of the directory's own attributes.
        watching.does(other.set_attributes(b"a", &SetAttributes::with_mode(0o700), true));
        watching.does(create(&other, b"a/two"));
        assert_eq!(watching.events(), ["+ a/two"]);
        assert_eq!((watching.count(OpNum::READDIR), watching.count(OpNum::DELEGRETURN)), (listings + 1, 1));
        watching.does(create(&other, b"b/new"));
        assert_eq!(watching.events(), ["+ b/new"]);
        assert_eq!(watching.count(OpNum::READDIR), listings + 1, "the server tells of the others");
        // The watch asks for it again.
        watching.reports_within(Duration::from_secs(60));
        let listings = watching.count(OpNum::READDIR);
        watching.does(create(&other, b"a/three"));
        assert_eq!(watching.events(), ["+ a/three"]);
        assert_eq!(watching.count(OpNum::READDIR), listings, "{version}");
    }
}

#[test]
fn a_restarted_server_is_asked_again() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        // The grace period lasts for this client, which does not come back.
        let (_gone, gone_peer) = world.mounted(Version::V42);
        let mut watching = Watching::start(&world, &other, version);
        gone_peer.cut(&world, true);
        watching.does(other.unlink(b"a/one"));
        assert_eq!(watching.events(), ["- a/one"]);
        world.restart();
        let reports = watching.reports_within(2 * LEASE);
        assert!(reports.contains(&Report::Notice(Notice::Forgotten)), "{reports:?}");
        assert!(!reports.iter().any(|report| matches!(report, Report::Event(_))), "{reports:?}");
        let listings = watching.count(OpNum::READDIR);
        watching.does(create(&other, b"a/new"));
        assert_eq!(watching.events(), ["+ a/new"]);
        assert_eq!(watching.count(OpNum::READDIR), listings, "{version}");
    }
}

fn make(world: &World, fs: &FileSystem, path: &[u8]) {
    world.run(create(fs, path)).unwrap();
}
