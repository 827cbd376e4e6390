//! Delegations of directories: what needs no request under them, and how they end.

use std::rc::Rc;
use std::time::Duration;

use client::attributes::SetAttributes;
use client::cache::attributes::{DELEGATION_PAUSE, DELEGATION_WORTH, Timeouts};
use client::config::Version;
use client::delegations::{DelegationCounts, IDLE_MAX};
use client::errno::Errno;
use client::fs::inode::Inode;
use client::fs::{FileSystem, OpenOptions, WholeFile};
use client::results::NewObject;
use futures_util::future::join3;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, Peer, World, root};

const VERSIONS: [Version; 2] = [Version::V41, Version::V42];
/// Longer than the timeout of directories in these tests.
const LATER: Duration = Duration::from_secs(40);
const DAY: Duration = Duration::from_hours(24);

/// A client with the directory `d`, whose delegation it holds.
struct Holder {
    world: Rc<World>,
    fs: FileSystem,
    peer: Rc<Peer>,
    directory: Inode,
}

/// Creates a file with another client.
fn make(world: &World, fs: &FileSystem, path: &[u8]) {
    let file = world.run(fs.open(path, &OpenOptions::CREATE)).unwrap();
    world.run(file.close()).unwrap();
}

impl Holder {
    /// Creates `d` with `one` and `two`, and mounts. Directories are valid for 30 s, files for a day. The server tries the back
    /// channel, before which it grants nothing.
    fn mounted(world: &Rc<World>, other: &FileSystem, version: Version) -> Self {
        world.run(other.mkdir(b"d", 0o755)).unwrap();
        make(world, other, b"d/one");
        make(world, other, b"d/two");
        let (fs, peer) = world.mounted_with(version, |config| {
            let (dirs, files) = (Duration::from_secs(30), DAY);
            config.caches.metadata.timeouts =
                Timeouts { acregmin: files, acregmax: files, acdirmin: dirs, acdirmax: dirs };
        });
        world.pass(Duration::from_secs(2));
        let directory = world.run(fs.mounted().root().lookup(&root(), b"d")).unwrap().0;
        Self { world: Rc::clone(world), fs, peer, directory }
    }

    /// As [`Self::mounted`], and uses the directory until it is delegated.
    fn new(world: &Rc<World>, other: &FileSystem, version: Version) -> Self {
        let holder = Self::mounted(world, other, version);
        for _ in 0..3 {
            holder.look();
            world.pass(LATER);
        }
        assert_eq!(holder.counts(), DelegationCounts { held: 1, granted: 1, ..DelegationCounts::default() });
        holder
    }

    fn names(&self) -> Vec<String> {
        let open = self.directory.open_directory().unwrap();
        let listing = self.world.run(open.read(&root(), 0, false)).unwrap();
        assert!(listing.is_end);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut names: Vec<_> = listing.entries.iter().map(|entry| text(&entry.name)).collect();
        names.sort();
        names
    }

    fn has(&self, name: &[u8]) -> bool {
        match self.world.run(self.directory.lookup(&root(), name)) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOENT);
                false
            }
        }
    }

    fn mode(&self) -> u32 {
        self.world.run(self.directory.attributes(&root())).unwrap().mode
    }

    /// Looks up two names, reads the attributes, and lists the directory.
    fn look(&self) {
        assert_eq!((self.has(b"one"), self.has(b"absent"), self.mode()), (true, false, 0o755));
        assert_eq!(self.names(), ["one", "two"]);
    }

    fn counts(&self) -> DelegationCounts {
        self.fs.client().directory_delegation_counts()
    }

    /// Returns the number of compounds that are not renewals of the lease.
    fn requests(&self) -> usize {
        self.peer.compounds.borrow().iter().filter(|ops| ops.len() > 1).count()
    }
}

#[test]
fn names_listings_and_attributes_need_no_requests() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let holder = Holder::new(&world, &other, version);
        // The grant came with the attributes that were requested anyway.
        let asked = [OpNum::SEQUENCE, OpNum::PUTFH, OpNum::GET_DIR_DELEGATION, OpNum::GETATTR];
        assert_eq!(holder.peer.compounds.borrow().iter().filter(|ops| **ops == asked).count(), 1);
        let before = holder.requests();
        for _ in 0..30 {
            world.pass(Duration::from_secs(100));
            holder.look();
        }
        assert_eq!(holder.requests(), before, "{version}: in 50 minutes");
        assert_eq!(holder.counts().held, 1);

        world.run(holder.fs.client().close()).unwrap();
        assert_eq!(world.server().counts().delegations, 0);
    }
}

#[test]
fn the_first_look_after_another_clients_change_shows_it() {
    type Change = fn(&World, &FileSystem);
    let changes: [(Change, &[&str], u32); 6] = [
        (|world, other| make(world, other, b"d/new"), &["new", "one", "two"], 0o755),
        (
            |world, other| _ = world.run(other.mkdir(b"d/absent", 0o755)).unwrap(),
            &["absent", "one", "two"],
            0o755,
        ),
        (|world, other| world.run(other.unlink(b"d/one")).unwrap(), &["two"], 0o755),
        (|world, other| world.run(other.rename(b"d/one", b"d/absent")).unwrap(), &["absent", "two"], 0o755),
        (|world, other| world.run(other.rename(b"d/one", b"one")).unwrap(), &["two"], 0o755),
        (
            |world, other| {
                world.run(other.set_attributes(b"d", &SetAttributes::with_mode(0o700), true)).unwrap();
            },
            &["one", "two"],
            0o700,
        ),
    ];
    for version in VERSIONS {
        for (change, names, mode) in changes {
            let world = World::new();
            let (other, _) = world.mounted(Version::V42);
            let holder = Holder::new(&world, &other, version);
            let before = world.now();
            change(&world, &other);
            assert!(world.now() < before + Duration::from_secs(1), "the recall does not time out");
            assert_eq!((holder.counts().recalled, holder.counts().returned), (1, 1));
            assert_eq!(holder.has(b"one"), names.contains(&"one"));
            assert_eq!(holder.has(b"absent"), names.contains(&"absent"));
            assert_eq!(
                (holder.names(), holder.mode()),
                (names.iter().map(ToString::to_string).collect(), mode)
            );
        }
    }
}

#[test]
fn own_changes_keep_the_delegation_and_the_names() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let holder = Holder::new(&world, &other, version);
        let fs = &holder.fs;
        make(&world, fs, b"d/new");
        world.run(fs.mkdir(b"d/inner", 0o755)).unwrap();
        world.run(fs.rename(b"d/one", b"d/absent")).unwrap();
        world.run(fs.link(b"d/two", b"d/link")).unwrap();
        world.run(fs.unlink(b"d/two")).unwrap();
        let look = || {
            assert_eq!(holder.names(), ["absent", "inner", "link", "new"]);
            assert!(holder.has(b"absent") && holder.has(b"link") && holder.has(b"new"));
            assert!(!holder.has(b"one") && !holder.has(b"two"));
        };
        look();
        let before = holder.requests();
        world.pass(Duration::from_secs(200));
        look();
        assert_eq!((holder.requests(), holder.counts().recalled), (before, 0), "{version}");
    }
}

#[test]
fn own_changes_that_bypass_the_cache_are_seen() {
    let world = World::new();
    let (other, _) = world.mounted(Version::V42);
    let holder = Holder::new(&world, &other, Version::V42);
    let (client, handle) = (holder.fs.client(), holder.directory.handle());
    world.run(client.remove_file(&root(), handle, b"one")).unwrap();
    assert!(!holder.has(b"one"));
    for removed in world.run(client.remove_many(&root(), &[(handle, b"two")], false)) {
        removed.unwrap();
    }
    assert!(holder.names().is_empty());
    assert_eq!(holder.counts().recalled, 0);
}

#[test]
fn a_delegation_is_asked_for_only_where_it_is_worth_it() {
    let world = World::new();
    let (other, _) = world.mounted(Version::V42);
    let holder = Holder::mounted(&world, &other, Version::V42);
    let asked = || holder.peer.count(OpNum::GET_DIR_DELEGATION);
    for _ in 0..10 {
        holder.look();
        world.pass(DELEGATION_WORTH + LATER);
    }
    assert_eq!((asked(), holder.counts().granted), (0, 0), "it is used rarely");
    for _ in 0..3 {
        holder.look();
        world.pass(LATER);
    }
    assert_eq!((asked(), holder.counts().held), (1, 1));
    // While others change it, it is not asked for again.
    make(&world, &other, b"d/new");
    assert_eq!(holder.counts().held, 0);
    while world.now() < Duration::from_secs(10_000) && holder.counts().held == 0 {
        world.pass(Duration::from_secs(1));
        assert!(holder.has(b"new"));
    }
    assert_eq!((asked(), holder.counts().held), (2, 1));
}

#[test]
fn a_directory_that_is_not_delegated_has_timeouts() {
    let world = World::new();
    let (client, peer) = world.client(Version::V42);
    // The server delegates no directory above its exports.
    let (fs, _) = world.run(FileSystem::mount(client, root(), b"/")).unwrap();
    world.pass(Duration::from_secs(2));
    let top = fs.mounted().root();
    let look = || {
        world.run(top.lookup(&root(), b"export")).unwrap();
        assert_eq!(world.run(top.lookup(&root(), b"absent")).unwrap_err().errno(), Errno::ENOENT);
    };
    look();
    let before = peer.count(OpNum::GETATTR);
    let looks = 20;
    for _ in 0..looks {
        world.pass(Duration::from_secs(61));
        look();
    }
    let asked = peer.count(OpNum::GET_DIR_DELEGATION);
    // Once for the directory in it, too.
    assert!((2..=looks / 2 + 1).contains(&asked), "{asked}");
    assert!(peer.count(OpNum::GETATTR) - before <= 2 * looks, "of this directory and the one in it");
    assert_eq!(fs.client().directory_delegation_counts().granted, 1, "of the directory in it");
}

#[test]
fn an_idle_delegation_is_returned() {
    let world = World::new();
    let (other, _) = world.mounted(Version::V42);
    let holder = Holder::new(&world, &other, Version::V42);
    world.pass(IDLE_MAX + Duration::from_secs(61));
    assert_eq!((holder.counts().held, holder.counts().returned, holder.counts().recalled), (0, 1, 0));
    assert_eq!(world.server().counts().delegations, 0);
    holder.look();
}

#[test]
fn a_removed_directory_is_returned_before() {
    let world = World::new();
    let (other, _) = world.mounted(Version::V42);
    let holder = Holder::new(&world, &other, Version::V42);
    for path in [b"d/one", b"d/two"] {
        world.run(holder.fs.unlink(path)).unwrap();
    }
    world.run(holder.fs.rmdir(b"d")).unwrap();
    assert_eq!((holder.counts().held, world.server().counts().delegations), (0, 0));
}

#[test]
fn a_restart_of_the_server_ends_it() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let holder = Holder::new(&world, &other, version);
        world.restart();
        // The client has not noticed, except that its connection is lost. Directories are valid for 30 s.
        world.pass(LATER);
        world.run(other.unlink(b"d/one")).unwrap();
        assert!(!holder.has(b"one"), "{version}");
        assert_eq!((holder.counts().held, holder.counts().lost), (0, 1));
        world.pass(LEASE);
        assert_eq!(holder.names(), ["two"]);
    }
}

#[test]
fn a_silent_client_does_not_rely_on_it_after_its_lease() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let holder = Holder::new(&world, &other, version);
        holder.peer.cut(&world, true);
        world.run(other.unlink(b"d/one")).unwrap();
        world.pass(2 * LEASE);
        holder.peer.cut(&world, false);
        assert!(!holder.has(b"one"), "{version}");
        assert_eq!(holder.names(), ["two"]);
        assert_eq!(holder.counts().held, 0);
        world.pass(DELEGATION_PAUSE + 2 * LEASE);
        assert_eq!(holder.names(), ["two"]);
    }
}

#[test]
fn without_delegations_none_is_asked_for() {
    let world = World::new();
    let (other, _) = world.mounted(Version::V42);
    world.run(other.mkdir(b"d", 0o755)).unwrap();
    let (fs, peer) = world.mounted_undelegated(Version::V42);
    let directory = world.run(fs.mounted().root().lookup(&root(), b"d")).unwrap().0;
    for _ in 0..10 {
        world.pass(LATER);
        world.run(directory.attributes(&root())).unwrap();
    }
    assert_eq!(peer.count(OpNum::GET_DIR_DELEGATION), 0);
    assert_eq!(fs.client().directory_delegation_counts(), DelegationCounts::default());
}

/// A program that is interrupted while it looks: the server grants the delegation nevertheless, and gets it back.
#[test]
fn a_delegation_that_nobody_waits_for_any_longer_is_returned() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let holder = Holder::mounted(&world, &other, version);
        holder.look();
        world.pass(LATER);
        holder.look();
        world.pass(LATER);
        holder.peer.judge(|ops| match ops.contains(&OpNum::GET_DIR_DELEGATION) {
            true => Fate::Hold,
            false => Fate::Serve,
        });
        let caller = root();
        let mut look = Box::pin(holder.directory.attributes(&caller));
        assert!(world.run_for(Duration::ZERO, look.as_mut()).is_none());
        drop(look);
        holder.peer.release(&world);
        world.pass(Duration::from_secs(1));
        assert_eq!((holder.counts().granted, holder.counts().held), (1, 0), "{version}");
        let before = world.now();
        make(&world, &other, b"d/three");
        assert_eq!(world.now(), before, "nobody has to be asked");
        assert_eq!(holder.names(), ["one", "three", "two"]);
    }
}

#[test]
fn a_change_behind_the_caches_ends_a_delegation_that_is_held_or_requested() {
    for version in VERSIONS {
        for is_held in [true, false] {
            let world = World::new();
            let (other, _) = world.mounted(Version::V42);
            let holder = match is_held {
                true => Holder::new(&world, &other, version),
                false => Holder::mounted(&world, &other, version),
            };
            holder.look();
            world.pass(LATER);
            holder.look();
            world.pass(LATER);
            let file = WholeFile { path: b"d/absent", mode: 0o644, data: "now there".into() };
            let files = [file];
            let (caller, set) = (root(), SetAttributes::default());
            world.run(async {
                // Under an own change that is announced, and with a request for the delegation under way.
                let made = holder.directory.make(&caller, b"sub", &NewObject::Directory, &set);
                let asked = holder.directory.attributes(&caller);
                let (written, made, asked) = join3(holder.fs.write_many(&files), made, asked).await;
                written.into_iter().for_each(|written| written.unwrap());
                made.unwrap();
                asked.unwrap();
            });
            world.pass(Duration::from_secs(1));
            assert_eq!(holder.counts().held, 0, "{version}, held before: {is_held}");
            world.pass(LATER);
            assert!(holder.has(b"absent"), "{version}, held before: {is_held}");
            assert_eq!(holder.names(), ["absent", "one", "sub", "two"]);
        }
    }
}

/// A rename changes the times of the moved directory. The server does not recall the delegation of the client that renames.
#[test]
fn a_renamed_directory_is_not_delegated_any_longer() {
    for version in VERSIONS {
        let world = World::new();
        let (other, _) = world.mounted(Version::V42);
        let holder = Holder::new(&world, &other, version);
        world.pass(Duration::from_secs(1));
        let known = world.run(holder.directory.attributes(&root())).unwrap().ctime;
        let top = holder.fs.mounted().root();
        world.run(top.rename(&root(), b"d", &top, b"e")).unwrap();
        let renamed = world.run(holder.directory.attributes(&root())).unwrap().ctime;
        assert!(renamed > known, "{version}");
    }
}
