//! A directory whose marked files are offline.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use localfs::Config;
use rustix::fs::XattrFlags;
use tokio::runtime::Runtime;
use vfs::around::Wrapped;
use vfs::{
    Authority, CopyRange, Create, CreateMode, Credentials, ReadRequest, Seek, SetAttributes, SetXattr,
    Stability, Timestamp,
};

use super::*;

const MARK: &CStr = c"user.offline";

struct Scene {
    files: Wrapped<LocalFs, Offline>,
    context: Context,
    runtime: Runtime,
    top: tempfile::TempDir,
}

fn mark(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, MARK, b"", XattrFlags::empty())
}

/// Returns a directory with a rule; `None` where files have no such attributes.
fn scene(recall: Option<RecallRule>) -> Option<Scene> {
    let top = tempfile::tempdir().unwrap();
    let probe = top.path().join("probe");
    std::fs::write(&probe, b"").unwrap();
    if mark(&probe).is_err() {
        println!("skipped: no extended attributes in {}", top.path().display());
        return None;
    }
    let directory = LocalFs::open(&Config::new(top.path())).unwrap();
    let recaller = recall.map(|rule| Arc::new(Recaller::new(directory.clone(), rule)));
    let offline = Offline::new(directory.clone(), MARK, recaller);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let own = Credentials { uid, gid, groups: Arc::from([]) };
    let context = Context::new(Arc::new(own), Timestamp::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Some(Scene { files: Wrapped::of(directory, offline), context, runtime, top })
}

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn file(&self, name: &str, content: &str, is_marked: bool) -> Handle {
        std::fs::write(self.path(name), content).unwrap();
        if is_marked {
            mark(&self.path(name)).unwrap();
        }
        self.runtime
            .block_on(self.files.lookup(&self.context, &self.files.root(), name.as_bytes()))
            .unwrap()
            .handle
    }

    fn read_by(&self, context: &Context, file: &Handle) -> Result<u32> {
        let request = ReadRequest { offset: 0, count: 100, may_splice: false, authority: Authority::Caller };
        let mut into = BytesMut::new();
        self.runtime
            .block_on(async { self.files.read(context, file, request, &mut into).await })
            .map(|read| read.count)
    }

    fn read(&self, file: &Handle) -> Result<u32> {
        self.read_by(&self.context, file)
    }

    fn write(&self, context: &Context, file: &Handle) -> Result<()> {
        let data = Bytes::from_static(b"new");
        let write = self.files.write(context, file, 0, &data, Stability::Unstable, Authority::Caller);
        self.runtime.block_on(write).map(drop)
    }

    fn wait<'a, T>(&'a self, operation: Op<'a, T>) -> Result<T> {
        self.runtime.block_on(operation)
    }
}

#[test]
fn operations_on_the_content_of_a_marked_file_are_answered_later() {
    let Some(scene) = scene(None) else { return };
    let (away, here) = (scene.file("away", "stub", true), scene.file("here", "text", false));
    let (files, context) = (&scene.files, &scene.context);
    assert_eq!(scene.read(&away), Err(Error::Later));
    assert_eq!(scene.read(&here), Ok(4));
    assert_eq!(scene.write(context, &away), Err(Error::Later));
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    let truncate =
        |file| scene.wait(files.setattr(context, file, &size(0), None, Authority::Caller)).map(drop);
    assert_eq!(truncate(&away), Err(Error::Later));
    let seek = scene.wait(files.seek(context, &away, 0, Seek::Data, Authority::Caller));
    assert_eq!(seek, Err(Error::Later));
    // A CREATE that truncates it, and a copy from it.
    let create = |name: &[u8], size| {
        let set = SetAttributes { size, ..SetAttributes::default() };
        let what = Create::File(CreateMode::Unchecked);
        scene.wait(files.create(context, &files.root(), name, &what, &set)).map(drop)
    };
    assert_eq!(create(b"away", Some(0)), Err(Error::Later));
    let range = CopyRange {
        source: away,
        source_offset: 0,
        source_authority: Authority::Caller,
        destination: here,
        destination_offset: 0,
        destination_authority: Authority::Caller,
        count: 4,
    };
    assert_eq!(scene.wait(files.copy_range(context, &range)).map(drop), Err(Error::Later));
    assert_eq!(std::fs::read(scene.path("away")).unwrap(), b"stub", "nothing was changed");
    assert_eq!(std::fs::read(scene.path("here")).unwrap(), b"text");
    // What does not need the content.
    assert_eq!(scene.wait(files.getattr(context, &away)).unwrap().size, 4);
    assert_eq!(create(b"away", None), Ok(()));
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    assert!(scene.wait(files.setattr(context, &away, &mode, None, Authority::Caller)).is_ok());
    // It is back.
    rustix::fs::removexattr(scene.path("away"), MARK).unwrap();
    assert_eq!(scene.read(&away), Ok(4));
    assert_eq!(scene.write(context, &away), Ok(()));
    assert_eq!(truncate(&away), Ok(()));
}

#[test]
fn clients_do_not_change_the_mark() {
    let Some(scene) = scene(None) else { return };
    let away = scene.file("away", "stub", true);
    let (files, context) = (&scene.files, &scene.context);
    let removed = scene.wait(files.remove_xattr(context, &away, b"offline")).map(drop);
    assert_eq!(removed, Err(Error::NotPermitted));
    let value = Bytes::new();
    let set = |name| scene.wait(files.set_xattr(context, &away, name, &value, SetXattr::Either)).map(drop);
    assert_eq!(set(b"offline"), Err(Error::NotPermitted));
    assert_eq!(set(b"other"), Ok(()));
    assert_eq!(scene.read(&away), Err(Error::Later));
}

/// A command of a shell script; `$1` is the file's path.
fn rule(script: &str) -> RecallRule {
    let command = ["sh", "-c", script, "sh"].map(String::from).to_vec();
    RecallRule { command, at_once: 2, limit: Duration::from_secs(60) }
}

/// Reads until the answer is another than `Later`.
fn read_in_the_end(scene: &Scene, file: &Handle) -> Result<u32> {
    let begun = Instant::now();
    loop {
        match scene.read(file) {
            Err(Error::Later) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            answer => return answer,
        }
    }
}

#[test]
fn a_file_is_recalled_once_by_its_path() {
    // The file is standard input too; no shell interprets the name.
    let script = "echo \"$1\" >>log; sleep 0.3; printf recalled >\"$1\"; \
                  test \"$(stat -Lc %i /proc/self/fd/0)\" = \"$(stat -c %i \"$1\")\" && setfattr -x user.offline \"$1\"";
    if std::process::Command::new("setfattr").arg("--version").output().is_err() {
        println!("skipped: no setfattr");
        return;
    }
    let log = tempfile::tempdir().unwrap();
    let script = script.replace("log;", &format!("'{}';", log.path().join("log").display()));
    let Some(scene) = scene(Some(rule(&script))) else { return };
    let name = "a b; $(exit 1) 'file";
    let away = scene.file(name, "", true);
    assert_eq!(scene.read(&away), Err(Error::Later));
    assert_eq!(scene.write(&scene.context, &away), Err(Error::Later));
    assert_eq!(read_in_the_end(&scene, &away), Ok(8));
    assert_eq!(std::fs::read_to_string(log.path().join("log")).unwrap().lines().count(), 1);
}

#[test]
fn a_failed_recall_is_an_error_of_the_file() {
    let Some(scene) = scene(Some(rule("exit 3"))) else { return };
    let away = scene.file("away", "", true);
    assert_eq!(read_in_the_end(&scene, &away), Err(Error::Io));
    let Some(scene) = self::scene(Some(RecallRule {
        command: vec!["/no/such/command".into()],
        at_once: 1,
        limit: Duration::from_secs(60),
    })) else {
        return;
    };
    let away = scene.file("away", "", true);
    assert_eq!(read_in_the_end(&scene, &away), Err(Error::Io));
}

#[test]
fn a_command_that_does_not_end_is_killed() {
    let endless = RecallRule { limit: Duration::from_millis(200), ..rule("sleep 1000") };
    let Some(scene) = scene(Some(endless)) else { return };
    let away = scene.file("away", "", true);
    assert_eq!(read_in_the_end(&scene, &away), Err(Error::Io));
}

#[test]
fn callers_without_permission_recall_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to act as others");
        return;
    }
    let asked = tempfile::tempdir().unwrap();
    let log = asked.path().join("log");
    let Some(scene) = scene(Some(rule(&format!("echo >>'{}'", log.display())))) else { return };
    let away = scene.file("away", "", true);
    std::fs::set_permissions(scene.path("away"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let other = Credentials { uid: 1000, gid: 1000, groups: Arc::from([]) };
    let other = Context::new(Arc::new(other), Timestamp::default());
    assert_eq!(scene.read_by(&other, &away), Err(Error::Access));
    assert_eq!(scene.write(&other, &away), Err(Error::Access));
    assert!(!log.exists());
    assert_eq!(scene.read(&away), Err(Error::Later));
}
