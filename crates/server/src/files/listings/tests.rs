use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs3::{Proc, ReaddirArgs, ReaddirplusArgs};
use protocol::nfs4::attributes::number as n;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::readdir::{ReadDirArgs, ReadDirOk};
use protocol::nfs4::types::{Bitmap, Status};
use vfs::around::Method;
use vfs::fault::{Fault, Faulty, Gate, Rule};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Handle, MemFs, Removal, SetAttributes,
    Stability, Timestamp,
};

use super::*;
use crate::listing_cache::{IDLE, MAX_DIRECTORIES, MOST_WANTED};
use crate::testing::{KEY, Lab, at, export, faulty, lab_with};
use crate::{ExportId, ExportTable};

const PLUS: ReadDirArgs = ReadDirArgs {
    cookie: 0,
    cookie_verifier: [0; 8],
    dircount: 0,
    maxcount: 65_536,
    attributes: Bitmap::of(&[
        n::TYPE,
        n::CHANGE,
        n::SIZE,
        n::FILEHANDLE,
        n::FILEID,
        n::MODE,
        n::NUMLINKS,
        n::OWNER,
    ]),
};

/// The same export, served with and without a listing cache.
struct Pair {
    files: Arc<Faulty<MemFs>>,
    cached: Lab,
    uncached: Lab,
    directory: Handle,
}

impl Pair {
    /// Returns a pair with a directory of this many files.
    fn new(entries: usize) -> Self {
        let (export, files) = faulty();
        let uncached = lab_with(vec![export.clone()], |settings| settings.cached_listings_bytes = 0);
        let pair = Self { directory: files.root(), files, cached: lab_with(vec![export], |_| {}), uncached };
        let directory = pair.create(&pair.directory, "d", &Create::Directory);
        (0..entries).for_each(|entry| _ = pair.create(&directory, &format!("entry-{entry}"), &FILE));
        Self { directory, ..pair }
    }

    fn create(&self, directory: &Handle, name: &str, what: &Create) -> Handle {
        let set = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        self.files.create(&root(), directory, name.as_bytes(), what, &set).now().expect("created").handle
    }

    fn entry(&self, name: &str) -> Handle {
        self.files.lookup(&root(), &self.directory, name.as_bytes()).now().expect("there").handle
    }

    /// Returns the number of requests for entries to the backend.
    fn backend_listings(&self) -> u64 {
        self.files.calls(Method::Readdir)
    }

    /// Compares the listings of all versions on both servers; returns the number of requests of the one with the cache to the backend.
    #[track_caller]
    fn list(&mut self) -> u64 {
        let mut listings = 0;
        for ask in ASKS {
            let before = self.backend_listings();
            let reported = ask(&mut self.cached, &self.directory);
            listings += self.backend_listings() - before;
            assert_eq!(reported, ask(&mut self.uncached, &self.directory));
        }
        listings
    }

    /// Lists until all replies are from the cache.
    #[track_caller]
    fn list_until_cached(&mut self) {
        for _ in 0..2 * MOST_WANTED {
            if self.list() == 0 {
                return;
            }
        }
        panic!("the cache is never used");
    }
}

/// Makes a change that listings show.
type Change = Box<dyn Fn(&Pair)>;

const FILE: Create = Create::File(CreateMode::Guarded);

fn root() -> Context {
    let now = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
    Context::new(Arc::new(Credentials::root()), now)
}

/// Lists by READDIR of versions 4.1 and 4.2, and by READDIR and READDIRPLUS of version 3. Returns the entries.
const ASKS: [fn(&mut Lab, &Handle) -> Bytes; 4] = [
    |lab, _| reported(lab, 1),
    |lab, _| reported(lab, 2),
    |lab, directory| {
        let dir = protocol::nfs3::FileHandle::new(&KEY.seal(ExportId(1), directory)).expect("a handle");
        let args = ReaddirArgs { dir, cookie: 0, cookieverf: [0; 8], count: 8192 };
        lab.ask((100_003, 3, Proc::READDIR.0), &xdr::to_bytes(&args)).expect("results")
    },
    |lab, directory| {
        let dir = protocol::nfs3::FileHandle::new(&KEY.seal(ExportId(1), directory)).expect("a handle");
        let args = ReaddirplusArgs { dir, cookie: 0, cookieverf: [0; 8], dircount: 8192, maxcount: 32_768 };
        lab.ask((100_003, 3, Proc::READDIRPLUS.0), &xdr::to_bytes(&args)).expect("results")
    },
];

fn reported(lab: &mut Lab, minor: u32) -> Bytes {
    lab.minor = minor;
    xdr::to_bytes(&lab.last(at(&["export", "d"], vec![Op::ReadDir(PLUS)])))
}

fn listing(lab: &mut Lab) -> ReadDirOk {
    match lab.last(at(&["export", "d"], vec![Op::ReadDir(PLUS)])) {
        OpResult::ReadDir(result) => result.into_result().expect("listed"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn repeated_listings_read_the_directory_once() {
    let mut pair = Pair::new(20);
    pair.list_until_cached();
    let before = pair.backend_listings();
    for _ in 0..100 {
        assert_eq!(pair.list(), 0);
    }
    // The request goes to the other server.
    assert_eq!(pair.backend_listings() - before, 100 * ASKS.len() as u64);
    assert!(pair.cached.server.metrics().cached_listings_used.load(Relaxed) >= 400);
    assert_eq!(pair.uncached.server.metrics().cached_listings_used.load(Relaxed), 0);
    assert_eq!(pair.uncached.server.cached_listings(), (0, 0));
}

#[test]
fn sends_long_listings_from_the_cache_too() {
    let mut pair = Pair::new(400);
    pair.list_until_cached();
    let lengths = ASKS.map(|ask| ask(&mut pair.cached, &pair.directory).len());
    assert!(lengths.into_iter().filter(|length| *length > 16 << 10).count() >= 3, "{lengths:?}");
    let directory = pair.entry("entry-399");
    let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    pair.files.setattr(&root(), &directory, &set, None, Authority::Caller).now().expect("changed");
    assert_eq!(pair.list(), ASKS.len() as u64);
}

#[test]
fn every_change_shows_in_the_next_listing() {
    let mut pair = Pair::new(5);
    let set = |set: SetAttributes| {
        move |pair: &Pair| {
            pair.files
                .setattr(&root(), &pair.entry("entry-1"), &set, None, Authority::Caller)
                .now()
                .expect("set");
        }
    };
    let changes: [(&str, Change); 7] = [
        ("create", Box::new(|pair| _ = pair.create(&pair.directory, "new", &FILE))),
        (
            "remove",
            Box::new(|pair| {
                pair.files.remove(&root(), &pair.directory, b"new", Removal::File).now().expect("removed");
            }),
        ),
        ("mode", Box::new(set(SetAttributes { mode: Some(0o600), ..SetAttributes::default() }))),
        ("size", Box::new(set(SetAttributes { size: Some(77), ..SetAttributes::default() }))),
        (
            "write",
            Box::new(|pair| {
                let data = Bytes::from_static(b"data");
                let file = pair.entry("entry-2");
                let written =
                    pair.files.write(&root(), &file, 100, &data, Stability::Unstable, Authority::Caller);
                written.now().expect("written");
            }),
        ),
        (
            "link from elsewhere",
            Box::new(|pair| {
                let (file, beside) = (pair.entry("entry-3"), pair.files.root());
                pair.files.link(&root(), &file, &beside, b"other name").now().expect("linked");
            }),
        ),
        (
            "rename over",
            Box::new(|pair| {
                let from = (&pair.files.root(), &b"other name"[..]);
                pair.files.rename(&root(), from, (&pair.directory, b"entry-4")).now().expect("renamed");
            }),
        ),
    ];
    for (what, change) in changes {
        pair.list_until_cached();
        change(&pair);
        assert!(pair.list() > 0, "{what}");
    }
}

#[test]
fn a_change_during_the_first_listing_is_not_lost() {
    for method in [Method::WatchEntries, Method::Readdir, Method::Access] {
        let mut pair = Pair::new(5);
        if method == Method::Access {
            pair.list_until_cached();
        } else {
            listing(&mut pair.cached);
        }
        let gate = Gate::new();
        pair.files.add(Rule::on(method, Fault::Hold(gate.clone())).times(1));
        let mut flight = pair.cached.start(7, at(&["export", "d"], vec![Op::ReadDir(PLUS)]));
        assert!(flight.poll().is_none(), "{method:?}");
        pair.create(&pair.directory, "meanwhile", &FILE);
        gate.open();
        let result = flight.poll().expect("it is over");
        assert_eq!(result.status, Status::OK);
        for _ in 0..10 {
            pair.list();
        }
        assert_eq!(listing(&mut pair.cached).entries.len(), 6, "{method:?}");
    }
}

#[test]
fn cached_listings_show_no_more_than_uncached_ones() {
    let mut pair = Pair::new(5);
    for mode in [0o700, 0o704, 0o701, 0o705] {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        pair.files.setattr(&root(), &pair.directory, &set, None, Authority::Caller).now().expect("set");
        pair.list_until_cached();
        let mut seen = Vec::new();
        for lab in [&mut pair.cached, &mut pair.uncached] {
            lab.uid = 1234;
            let directory = crate::testing::putfh(
                protocol::nfs4::types::Handle::new(&KEY.seal(ExportId(1), &pair.directory))
                    .expect("a handle"),
            );
            let result = lab.run(vec![directory, Op::ReadDir(PLUS)]);
            lab.uid = 0;
            seen.push((result.status, xdr::to_bytes(&result.results[2])));
        }
        assert_eq!(seen[0], seen[1], "{mode:o}");
        let expected = if mode & 4 == 0 { Status::ACCESS } else { Status::OK };
        assert_eq!(seen[0].0, expected, "{mode:o}");
        // Its answer does not appear in other callers' listings.
        assert_eq!(listing(&mut pair.cached).entries.len(), 5);
        pair.list();
    }
}

#[test]
fn cached_listings_are_used_for_a_second() {
    let mut pair = Pair::new(5);
    pair.list_until_cached();
    for lab in [&mut pair.cached, &mut pair.uncached] {
        lab.seconds += 1;
    }
    assert_eq!(pair.list(), ASKS.len() as u64);
    assert_eq!(pair.list(), 0);
}

#[test]
fn pages_of_a_long_listing_are_cached_separately() {
    let mut pair = Pair::new(200);
    let mut all = || {
        let mut args = ReadDirArgs { maxcount: 2000, ..PLUS };
        let mut names = Vec::new();
        loop {
            let before = pair.backend_listings();
            let result = pair.cached.last(at(&["export", "d"], vec![Op::ReadDir(args)]));
            let OpResult::ReadDir(result) = result else { panic!("{result:?}") };
            let page = result.into_result().expect("listed");
            names.extend(page.entries.iter().map(|entry| entry.name.clone()));
            if page.eof {
                return (names, pair.backend_listings() - before);
            }
            args.cookie = page.entries.last().expect("one at least").cookie;
            args.cookie_verifier = page.cookie_verifier;
        }
    };
    let (first, _) = all();
    assert_eq!(first.len(), 200);
    all();
    assert_eq!(all(), (first, 0));
}

#[test]
fn memory_is_bounded_and_unused_listings_are_dropped() {
    let (export, files) = faulty();
    let max_bytes = 256 << 10;
    let mut lab = lab_with(vec![export], |settings| settings.cached_listings_bytes = max_bytes);
    let pair = Pair {
        directory: files.root(),
        files,
        cached: lab_with(Vec::new(), |_| {}),
        uncached: lab_with(Vec::new(), |_| {}),
    };
    for number in 0..100 {
        let directory = pair.create(&pair.files.root(), &format!("d-{number}"), &Create::Directory);
        (0..4).for_each(|entry| _ = pair.create(&directory, &format!("entry-{entry}"), &FILE));
    }
    for number in 0..100 {
        let name: &'static str = Box::leak(format!("d-{number}").into_boxed_str());
        for _ in 0..3 {
            lab.ok(at(&["export", name], vec![Op::ReadDir(PLUS)]));
            let (bytes, directories) = lab.server.cached_listings();
            assert!(bytes <= max_bytes && directories <= MAX_DIRECTORIES, "{bytes}, {directories}");
        }
    }
    assert_eq!(lab.server.cached_listings().1, MAX_DIRECTORIES, "there was space for all");
    lab.pass(IDLE.as_secs() + 1);
    assert_eq!(lab.server.cached_listings(), (0, 0));
}

#[test]
fn drops_changed_listings_without_a_request() {
    let mut pair = Pair::new(5);
    pair.list_until_cached();
    pair.cached.pass(1);
    assert_eq!(pair.cached.server.cached_listings().1, 1);
    pair.create(&pair.directory, "new", &FILE);
    pair.cached.pass(1);
    assert_eq!(pair.cached.server.cached_listings(), (0, 0));
}

#[test]
fn watches_of_busy_directories_become_rare() {
    let mut pair = Pair::new(5);
    for number in 0..1000 {
        listing(&mut pair.cached);
        pair.create(&pair.directory, &format!("new-{number}"), &FILE);
        pair.files
            .remove(&root(), &pair.directory, format!("new-{number}").as_bytes(), Removal::File)
            .now()
            .expect("removed");
    }
    let watches = pair.files.calls(Method::WatchEntries);
    // 2, 4, 8, 16, 32 listings apart, then 64, and one more each to notice the change.
    assert!((10..=25).contains(&watches), "{watches}");
    pair.list_until_cached();
}

#[test]
fn exports_of_a_reload_share_no_cached_listings() {
    let mut pair = Pair::new(5);
    pair.list_until_cached();
    let fsid = |lab: &mut Lab| {
        let args = ReadDirArgs { attributes: Bitmap::of(&[n::FSID]), ..PLUS };
        xdr::to_bytes(&lab.last(at(&["export", "d"], vec![Op::ReadDir(args)])))
    };
    (0..4).for_each(|_| _ = fsid(&mut pair.cached));
    let other = || crate::Export { fsid: (77, 7), backend: pair.files.clone(), ..export(1, "/export") };
    for lab in [&mut pair.cached, &mut pair.uncached] {
        lab.server.replace_exports(ExportTable::new(vec![other()]).expect("one export"));
    }
    assert_eq!(fsid(&mut pair.cached), fsid(&mut pair.uncached));
}
