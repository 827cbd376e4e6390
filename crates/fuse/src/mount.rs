//! Mounting and unmounting.
//!
//! A process that may (root, or the owner of a user namespace) mounts itself. Others use the set-user-ID program `fusermount3`, which
//! returns the descriptor over a socket.

use std::ffi::{CString, OsString};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::descriptors::receive_descriptors;
use crate::device::Device;

/// The program that mounts for unprivileged users, and its package.
const FUSERMOUNT: &str = "fusermount3";
const FUSERMOUNT_PACKAGE: &str = "fuse3";
/// Longest error text that is read from it, in bytes.
const FUSERMOUNT_TEXT_MAX: u64 = 4096;

/// Options of a mount. `nosuid` and `nodev` are on unless the fields disable them, which only root may.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The source that `/proc/mounts` shows.
    pub source: String,
    /// The type that `/proc/mounts` shows after `fuse.`; may be empty.
    pub subtype: String,
    /// No writes.
    pub read_only: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by owner, group and mode, and by ACLs if they are negotiated.
    pub default_permissions: bool,
    /// Set-user-ID bits count.
    pub suid: bool,
    /// Device files work.
    pub dev: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
}

/// The failure of a mount. Each is one line with the directory or program, and the remedy.
#[derive(Debug)]
pub enum MountError {
    /// The directory does not exist.
    Missing(PathBuf),
    /// It is not a directory.
    NotADirectory(PathBuf),
    /// It contains files.
    NotEmpty(PathBuf),
    /// Something is mounted there.
    Mounted(PathBuf),
    /// A FUSE file system without process is mounted there.
    Dead(PathBuf),
    /// `/dev/fuse` does not exist.
    NoDevice,
    /// `fusermount3` is not installed.
    NoFusermount,
    /// `fusermount3` failed, with its error text.
    Fusermount(PathBuf, String),
    /// The source, type or directory contains a NUL.
    Nul,
    /// Another error.
    Io(PathBuf, io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "{}: no such directory", path.display()),
            Self::NotADirectory(path) => write!(f, "{}: not a directory", path.display()),
            Self::NotEmpty(path) => write!(f, "{}: directory is not empty", path.display()),
            Self::Mounted(path) => write!(f, "{}: already mounted", path.display()),
            Self::Dead(path) => {
                write!(f, "{0}: a FUSE mount whose process is gone; run `umount {0}` first", path.display())
            }
            Self::NoDevice => f.write_str(
                "/dev/fuse does not exist; load the module fuse, or pass the device to the container",
            ),
            Self::NoFusermount => {
                write!(
                    f,
                    "{FUSERMOUNT} is not installed; install the package {FUSERMOUNT_PACKAGE}, or mount as root"
                )
            }
            Self::Fusermount(path, text) => write!(f, "{}: {FUSERMOUNT} failed: {text}", path.display()),
            Self::Nul => f.write_str("source, type and directory of a mount cannot contain NUL"),
            Self::Io(path, error) => write!(f, "{}: cannot mount: {error}", path.display()),
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self { Some(error) } else { None }
    }
}

/// Mounts a FUSE file system on `directory`, which must be empty, and returns its descriptor for [`Session::new`](crate::Session::new).
/// Programs that use the mount wait until a session serves it.
///
/// # Errors
/// See [`MountError`].
pub fn mount(directory: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let directory = check(directory)?;
    let program = Path::new(FUSERMOUNT);
    let device = match Device::open() {
        Ok(device) => device,
        // The program opens the device itself, but cannot help if there is none.
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => return Err(MountError::NoDevice),
            io::ErrorKind::PermissionDenied => return by_fusermount(program, &directory, options),
            _ => return Err(MountError::Io(PathBuf::from("/dev/fuse"), error)),
        },
    };
    match mount_directly(&device, &directory, options)? {
        Ok(()) => Ok(device),
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {
            by_fusermount(program, &directory, options)
        }
        Err(error) => Err(MountError::Io(directory, error.into())),
    }
}

/// Returns the whole path of a directory that can be mounted on: it exists, is empty, and nothing is mounted there.
///
/// # Errors
/// See [`MountError`].
pub fn check(directory: &Path) -> Result<PathBuf, MountError> {
    let path = || directory.to_owned();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(path()),
        io::ErrorKind::NotADirectory => MountError::NotADirectory(path()),
        _ if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => MountError::Dead(path()),
        _ => MountError::Io(path(), error),
    };
    // Without a request to a server that may not answer.
    let found = statx(CWD, directory, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        .map_err(|error| failed(error.into()))?;
    if FileType::from_raw_mode(u32::from(found.stx_mode)) != FileType::Directory {
        return Err(MountError::NotADirectory(path()));
    }
    if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        // A dead mount has attributes, but no content.
        let is_dead = rustix::fs::statfs(directory).is_err_and(|error| error == Errno::NOTCONN);
        return Err(if is_dead { MountError::Dead(path()) } else { MountError::Mounted(path()) });
    }
    let mut entries = std::fs::read_dir(directory).map_err(failed)?;
    if entries.next().is_some() {
        return Err(MountError::NotEmpty(path()));
    }
    std::fs::canonicalize(directory).map_err(failed)
}

/// Mounts by mount(2). The outer error is one of the arguments.
fn mount_directly(
    device: &OwnedFd,
    directory: &Path,
    options: &Options,
) -> Result<rustix::io::Result<()>, MountError> {
    let text = |text: String| CString::new(text).map_err(|_| MountError::Nul);
    let kind =
        if options.subtype.is_empty() { "fuse".to_owned() } else { format!("fuse.{}", options.subtype) };
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    data.push_str(if options.allow_other { ",allow_other" } else { "" });
    data.push_str(if options.default_permissions { ",default_permissions" } else { "" });
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    let (source, kind, data) = (text(options.source.clone())?, text(kind)?, text(data)?);
    Ok(rustix::mount::mount(&source, directory, &kind, flags, &*data))
}

/// Mounts by `program`, which is `fusermount3`.
fn by_fusermount(program: &Path, directory: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let failed = |error: io::Error| MountError::Io(directory.to_owned(), error);
    let (own, passed) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("-o").arg(fusermount_options(options)).arg("--").arg(directory);
    // The program sends the descriptor over descriptor 0.
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(passed)).stderr(Stdio::piped());
    let child = command.spawn();
    // Its copy of the socket is closed, so that a program that fails ends the read below.
    drop(command);
    let mut child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoFusermount,
        _ => failed(error),
    })?;
    let received = receive_descriptors(&own, &mut [0; 1]);
    let mut text = Vec::new();
    if let Some(errors) = child.stderr.take() {
        // An incomplete text is enough.
        let _ = errors.take(FUSERMOUNT_TEXT_MAX).read_to_end(&mut text);
    }
    child.wait().map_err(failed)?;
    match received.map(|(_, mut devices)| devices.pop()) {
        Ok(Some(device)) => Ok(device),
        _ => Err(MountError::Fusermount(directory.to_owned(), one_line(&text))),
    }
}

/// Returns the last line of a program's errors, without its name.
fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no error text");
    line.trim().trim_start_matches(FUSERMOUNT).trim_start_matches(": ").to_owned()
}

fn fusermount_options(options: &Options) -> OsString {
    // A comma ends an option.
    let escape = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut all = vec![format!("fsname={}", escape(&options.source))];
    if !options.subtype.is_empty() {
        all.push(format!("subtype={}", escape(&options.subtype)));
    }
    let flags = [
        (options.read_only, "ro"),
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.suid, "suid"),
        (options.dev, "dev"),
        (options.noexec, "noexec"),
    ];
    all.extend(flags.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name.to_owned()));
    OsString::from_vec(all.join(",").into_bytes())
}

/// Unmounts. `lazy` detaches a mount that is in use at once, and ends it when its last file is closed.
///
/// # Errors
/// `ResourceBusy` if it is in use, `InvalidInput` if nothing is mounted there; others of umount(2), or of `fusermount3` as text.
pub fn unmount(directory: &Path, lazy: bool) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(directory, flags) {
        Err(Errno::PERM) => {}
        result => return Ok(result?),
    }
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(directory).stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), MountError::NoFusermount),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(MountError::Fusermount(directory.to_owned(), one_line(&output.stderr))))
}

/// Ends all requests of a mount with an error, so that it can be unmounted although its process does not answer. `device` is the minor
/// number of its device. Root may, and the user who mounted if `/sys/fs/fuse/connections` is mounted.
///
/// # Errors
/// `PermissionDenied` without rights; `NotFound` without sysfs.
pub fn abort(directory: &Path, device: u32) -> io::Result<()> {
    match std::fs::write(format!("/sys/fs/fuse/connections/{device}/abort"), "1") {
        // FORCE aborts the connection before DETACH unmounts.
        Err(_) if rustix::process::geteuid().is_root() => {
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
            Ok(rustix::mount::unmount(directory, flags)?)
        }
        written => written,
    }
}

/// Sets how many KiB the kernel reads ahead on a mount. Only root may; without it the kernel reads ahead at most 128 KiB even if INIT
/// negotiated more, so that READs through the page cache are not larger.
///
/// # Errors
/// `PermissionDenied` without rights; `NotFound` without sysfs.
pub fn set_read_ahead(directory: &Path, kib: u32) -> io::Result<()> {
    let found = statx(CWD, directory, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    let path = format!("/sys/class/bdi/{}:{}/read_ahead_kb", found.stx_dev_major, found.stx_dev_minor);
    std::fs::write(path, kib.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn refusal(directory: &Path) -> String {
        let error = mount(directory, &Options::default()).expect_err("a directory that is refused");
        error.to_string()
    }

    #[test]
    fn each_unusable_directory_has_its_error() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let file = top.path().join("file");
        std::fs::write(&file, "").expect("a file");
        let missing = top.path().join("missing");
        assert_eq!(refusal(&missing), format!("{}: no such directory", missing.display()));
        assert_eq!(refusal(&file), format!("{}: not a directory", file.display()));
        assert_eq!(refusal(top.path()), format!("{}: directory is not empty", top.path().display()));
        assert_eq!(refusal(Path::new("/proc")), "/proc: already mounted");
    }

    #[test]
    fn fusermount_returns_the_descriptor_of_a_mount() {
        let has_program = Command::new(FUSERMOUNT).arg("-V").output().is_ok();
        if !has_program || !rustix::process::geteuid().is_root() || Device::open().is_err() {
            println!("skipped: needs root, /dev/fuse and fusermount3");
            return;
        }
        let top = tempfile::tempdir().expect("a temporary directory");
        let options = Options { source: "a,b".to_owned(), subtype: "enfys".to_owned(), ..Options::default() };
        let device = by_fusermount(Path::new(FUSERMOUNT), top.path(), &options).expect("a mount");
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mount =
            mounts.lines().find(|line| line.contains(&*top.path().to_string_lossy())).expect("this mount");
        assert!(mount.starts_with("a,b "), "{mount}");
        assert!(mount.contains(" fuse.enfys rw,nosuid,nodev,"), "{mount}");
        let session = crate::Session::new(device, &crate::Config::default()).expect("a session");
        drop(session);
        unmount(top.path(), false).expect("an unused mount");
    }

    #[test]
    fn a_missing_fusermount_is_named_with_its_package() {
        let program = Path::new("/nonexistent/fusermount3");
        let error = by_fusermount(program, Path::new("/"), &Options::default()).expect_err("no program");
        assert!(error.to_string().contains("install the package fuse3"), "{error}");
    }

    #[test]
    fn a_program_without_a_descriptor_is_an_error_with_its_text() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let program = top.path().join("fusermount3");
        std::fs::write(&program, "#!/bin/sh\necho 'fusermount3: no rights here' >&2\nexit 1\n")
            .expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("own file");
        let error = by_fusermount(&program, Path::new("/d"), &Options::default()).expect_err("no descriptor");
        assert_eq!(error.to_string(), "/d: fusermount3 failed: no rights here");
    }

    #[test]
    fn options_of_fusermount_are_escaped() {
        let options = Options {
            source: "a,b\\c".to_owned(),
            subtype: "enfys".to_owned(),
            read_only: true,
            allow_other: true,
            ..Options::default()
        };
        assert_eq!(
            fusermount_options(&options).as_bytes(),
            b"fsname=a\\,b\\\\c,subtype=enfys,ro,allow_other"
        );
    }
}
