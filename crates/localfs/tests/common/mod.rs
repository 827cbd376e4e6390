//! Helpers of this crate's tests: an exported directory, and short calls of operations.
#![allow(dead_code, reason = "each test file uses a part")]

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use localfs::{Config, Durability, LocalFs};
use vfs::{
    Attributes, Authority, Backend, Context, Create, CreateMode, Credentials, Error, Handle, Op, Payload,
    ReadDir, ReadRequest, Result, SetAttributes, Stability, Timestamp,
};

/// A directory, a volume over it, and a runtime.
pub(crate) struct Fixture {
    /// The volume; `None` between two.
    pub(crate) volume: Option<LocalFs>,
    pub(crate) config: Config,
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        localfs::become_server();
        self.volume = None;
    }
}

/// Set in a child that runs tests as an ordinary user.
pub(crate) const UNPRIVILEGED: &str = "ENFYS_TEST_UNPRIVILEGED";
/// The id of that user.
pub(crate) const ORDINARY_USER: u32 = 12_345;

/// Runs the tests of this binary that `filters` name in a process of an ordinary user without any capability.
pub(crate) fn again_without_privileges(filters: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root, so all tests ran without privileges already");
        return;
    }
    // The test binary may be where an ordinary user cannot reach it.
    let fixture = tempfile::tempdir().expect("temporary directory");
    let everybody = || std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(fixture.path(), everybody()).expect("chmod");
    let copy = fixture.path().join("tests");
    std::fs::copy(std::env::current_exe().expect("own path"), &copy).expect("copy");
    std::fs::set_permissions(&copy, everybody()).expect("chmod");
    let output = Command::new(&copy)
        .args(filters)
        .args(["--test-threads=2", "--skip", "without_privileges"])
        .env(UNPRIVILEGED, "1")
        .current_dir("/")
        .uid(ORDINARY_USER)
        .gid(ORDINARY_USER)
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(" passed") && !text.contains("running 0 tests"), "{text}");
}

fn type_of(path: &Path) -> u64 {
    rustix::fs::statfs(path).expect("statfs").f_type as u64 & 0xffff_ffff
}

/// Returns whether `path` is on tmpfs or ramfs.
pub(crate) fn is_in_memory(path: &Path) -> bool {
    [0x0102_1994, 0x8584_58f6].contains(&type_of(path))
}

/// Returns whether `path` is on ext4, XFS, btrfs or tmpfs.
pub(crate) fn is_ordinary(path: &Path) -> bool {
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994].contains(&type_of(path))
}

/// Mounts a file system with these arguments of mount(8), and runs tests of this binary with their temporary files
/// there. The arguments may name directories `{lower}`, `{upper}` and `{work}`, which are created.
pub(crate) fn again_mounted(mount: &[&str], filters: &[&str]) {
    if !has_powers() {
        return;
    }
    let fixture = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| fixture.path().join(name).to_string_lossy().into_owned();
    for name in ["top", "lower", "upper", "work"] {
        std::fs::create_dir(path(name)).expect("directory");
    }
    let named = |argument: &&str| {
        let argument = argument.replace("{lower}", &path("lower")).replace("{upper}", &path("upper"));
        argument.replace("{work}", &path("work"))
    };
    let mounted = Command::new("mount").args(mount.iter().map(named)).arg(path("top")).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: cannot mount here");
        return;
    }
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(filters)
        .args(["--test-threads=2"])
        .env("TMPDIR", path("top"))
        .output();
    let unmounted = Command::new("umount").arg(path("top")).status();
    assert!(unmounted.is_ok_and(|status| status.success()), "everything on it is closed");
    let output = output.expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(" passed") && !text.contains("running 0 tests"), "{text}");
}

/// Returns whether this process may act as any user; prints a message if not.
pub(crate) fn has_powers() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can act as its callers");
    }
    is_root
}

pub(crate) fn user(uid: u32, groups: &[u32]) -> Context {
    let groups = Arc::from(groups);
    Context::new(Arc::new(Credentials { uid, gid: uid, groups }), Timestamp::default())
}

/// Returns the context of root, or if the server is not root, of the server's own user.
pub(crate) fn me() -> Context {
    user(rustix::process::geteuid().as_raw(), &[])
}

pub(crate) fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// Waits for the answer on this thread.
pub(crate) fn answer<T>(op: Op<'_, T>) -> Result<T> {
    match op {
        Op::Ready(answer) => answer.expect("an answer is taken once"),
        op => tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(op),
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|config| config)
    }

    pub(crate) fn with(change: impl FnOnce(Config) -> Config) -> Self {
        localfs::become_server();
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        let config = Config {
            state_directory: Some(directory.path().join("state")),
            durability: Durability::Async,
            ..Config::new(top)
        };
        let config = change(config);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let volume = Some(LocalFs::open(&config).expect("volume"));
        Self { volume, config, runtime, directory }
    }

    /// Returns the path that local processes use.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.config.directory.join(name)
    }

    /// Returns a directory next to the export.
    pub(crate) fn outside(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn fs(&self) -> &LocalFs {
        self.volume.as_ref().expect("open")
    }

    pub(crate) fn restart(&mut self) {
        localfs::become_server();
        self.volume = None;
        self.volume = Some(LocalFs::open(&self.config).expect("volume"));
    }

    pub(crate) fn wait<T>(&self, op: Op<'_, T>) -> Result<T> {
        self.runtime.block_on(op)
    }

    pub(crate) fn lookup(&self, context: &Context, directory: &Handle, name: &str) -> Result<Handle> {
        self.wait(self.fs().lookup(context, directory, name.as_bytes())).map(|found| found.handle)
    }

    pub(crate) fn getattr(&self, file: &Handle) -> Result<Attributes> {
        self.wait(self.fs().getattr(&me(), file))
    }

    pub(crate) fn make(
        &self,
        context: &Context,
        directory: &Handle,
        name: &str,
        what: &Create,
        bits: u32,
    ) -> Result<Handle> {
        let made = self.wait(self.fs().create(context, directory, name.as_bytes(), what, &mode(bits)));
        made.map(|created| created.handle)
    }

    pub(crate) fn file(&self, context: &Context, name: &str, bits: u32) -> Handle {
        let what = Create::File(CreateMode::Guarded);
        self.make(context, &self.fs().root(), name, &what, bits).expect("create")
    }

    pub(crate) fn read(&self, context: &Context, file: &Handle) -> Result<Vec<u8>> {
        let mut into = BytesMut::new();
        let request =
            ReadRequest { offset: 0, count: 1 << 20, may_splice: false, authority: Authority::Caller };
        let read = self.wait(self.fs().read(context, file, request, &mut into))?;
        match read.payload {
            Payload::Appended => Ok(into.to_vec()),
            Payload::Bytes(bytes) => Ok(bytes.to_vec()),
            Payload::Range(_) => Err(Error::ServerFault),
        }
    }

    pub(crate) fn write(
        &self,
        context: &Context,
        file: &Handle,
        data: &[u8],
        stability: Stability,
    ) -> Result<u32> {
        let data = Bytes::copy_from_slice(data);
        let written = self.wait(self.fs().write(context, file, 0, &data, stability, Authority::Caller))?;
        Ok(written.count)
    }

    /// Returns all names, and whether they came with an object.
    pub(crate) fn list(
        &self,
        context: &Context,
        directory: &Handle,
    ) -> Result<Vec<(String, Option<Handle>)>> {
        let mut names = Vec::new();
        let mut visit = |entry: vfs::Entry<'_>| {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            names.push((name, entry.object.map(|(handle, _)| handle)));
            ControlFlow::Continue(())
        };
        let request = ReadDir { cookie: 0, verifier: [0; 8], plus: true };
        self.wait(self.fs().readdir(context, directory, request, &mut visit))?;
        Ok(names)
    }
}
