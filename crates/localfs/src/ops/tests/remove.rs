use std::path::PathBuf;
use std::sync::Arc;

use vfs::{Change, Context, Create, CreateMode, Credentials, Handle, Op, Removal, SetAttributes, Timestamp};

use crate::config::{Config, Durability};
use crate::name::Name;
use crate::volume::Volume;

struct Case {
    volume: Arc<Volume>,
    context: Context,
    top: PathBuf,
    _directory: tempfile::TempDir,
}

fn answer<T>(operation: Op<'_, T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(operation).expect("done")
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        let state_directory = Some(directory.path().join("state"));
        let config = Config { state_directory, durability: Durability::Async, ..Config::new(top.clone()) };
        let volume = crate::probe::open(&config).expect("volume");
        let uid = rustix::process::geteuid().as_raw();
        let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
        let context = Context::new(credentials, Timestamp::default());
        Self { volume, context, top, _directory: directory }
    }

    fn create(&self, name: &[u8]) -> Handle {
        let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
        answer(self.volume.create(&self.context, &self.volume.root.handle, name, &what, &set)).handle
    }

    fn remove(&self, name: &[u8]) -> Change {
        answer(self.volume.remove(&self.context, &self.volume.root.handle, name, Removal::File))
    }

    fn find(&self, name: &[u8]) -> Handle {
        let name = Name::new(name).expect("a name");
        self.volume.find(&self.volume.root, &name).expect("object").handle
    }

    fn is_cached(&self, handle: &Handle) -> bool {
        self.volume.objects.peek(handle).is_some()
    }
}

#[test]
fn a_removed_file_is_closed_at_once() {
    let case = Case::new();
    for _ in 0..100 {
        let handle = case.create(b"f");
        assert!(case.is_cached(&handle));
        case.remove(b"f");
        assert!(!case.is_cached(&handle));
    }
}

#[test]
fn a_file_with_another_name_stays_cached_and_counts_as_changed() {
    let case = Case::new();
    let handle = case.create(b"f");
    let object = case.volume.object(&handle).expect("object");
    answer(case.volume.link(&case.context, &handle, &case.volume.root.handle, b"g"));
    let version = object.sync_state.version();
    case.remove(b"f");
    assert!(case.is_cached(&handle));
    assert_ne!(object.sync_state.version(), version);
    drop(object);
    case.remove(b"g");
    assert!(!case.is_cached(&handle));
}

#[test]
fn a_file_that_a_local_process_put_under_the_name_is_closed() {
    let case = Case::new();
    let path = |name: &str| case.top.join(name);
    let replacements: [&dyn Fn(); 3] = [
        &|| {
            std::fs::write(path("h"), b"another").expect("file");
            std::fs::rename(path("h"), path("f")).expect("replaced");
        },
        &|| {
            std::fs::rename(path("f"), path("g")).expect("renamed");
            std::fs::write(path("f"), b"another").expect("file");
        },
        &|| {
            std::fs::remove_file(path("f")).expect("removed");
            std::fs::write(path("f"), b"another").expect("file");
        },
    ];
    for (number, replace) in replacements.into_iter().enumerate() {
        case.create(b"f");
        replace();
        let second = case.find(b"f");
        case.remove(b"f");
        assert!(!case.is_cached(&second), "{number}");
    }
}

#[test]
fn a_file_that_a_rename_replaced_is_closed() {
    let case = Case::new();
    let root = case.volume.root.handle;
    let (replaced, moved) = (case.create(b"f"), case.create(b"g"));
    answer(case.volume.rename(&case.context, (&root, b"g"), (&root, b"f")));
    assert!(!case.is_cached(&replaced));
    case.remove(b"f");
    assert!(!case.is_cached(&moved));
}
