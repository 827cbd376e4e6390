//! File systems that are mounted inside exported directories, from /proc/self/mountinfo.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// The mounts that this process sees (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";
/// Types of file systems that are not served inside an export: the kernel's own objects, and network file systems, since a dead server would
/// block the start.
const NEVER_SERVED: &[&str] = &[
    "9p",
    "afs",
    "autofs",
    "binfmt_misc",
    "bpf",
    "ceph",
    "cgroup",
    "cgroup2",
    "cifs",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "glusterfs",
    "lustre",
    "hugetlbfs",
    "mqueue",
    "nfs",
    "nfs4",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smb3",
    "sysfs",
    "tracefs",
];

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    id: u64,
    path: PathBuf,
    kind: String,
}

/// Returns the mount points inside `directory` whose file systems can be served, outer ones first. `directory` has no symbolic links.
///
/// # Errors
/// Those of reading the mounts.
pub(super) fn inside(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mounts = parse(&std::fs::read(MOUNTS)?);
    let is_inside = |mount: &Mount| mount.path != directory && mount.path.starts_with(directory);
    let mounts = mounts.into_iter().filter(|mount| is_inside(mount) && is_served(mount) && is_visible(mount));
    let mut paths: Vec<_> = mounts.map(|mount| mount.path).collect();
    paths.sort_by_key(|path| path.components().count());
    Ok(paths)
}

/// Returns whether the type of the file system can be served.
fn is_served(mount: &Mount) -> bool {
    !NEVER_SERVED.contains(&&*mount.kind) && !is_fuse(&mount.kind)
}

/// Returns whether a process of any user implements the file system (FUSE). It could show set-user-ID files, or never answer.
/// `fuseblk` is a disk that root mounted.
fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind.starts_with("fuse.")
}

/// Returns whether the mount is the one at its path: another one may be mounted over it.
fn is_visible(mount: &Mount) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let Ok(status) = rustix::fs::statx(CWD, &mount.path, flags, StatxFlags::MNT_ID) else { return false };
    // Before Linux 5.8, the kernel has no mount IDs here.
    status.stx_mask & StatxFlags::MNT_ID.bits() == 0 || status.stx_mnt_id == mount.id
}

/// Parses lines `ID PARENT DEVICE ROOT PATH OPTIONS [TAG…] - TYPE SOURCE OPTIONS`.
fn parse(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let path = unescape(fields.nth(3)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Mount { id, path, kind: String::from_utf8_lossy(kind).into_owned() })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Returns a path in which space, tab, newline and backslash are escaped as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let [first, more @ ..] = rest {
        let digits =
            more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed_with_paths_and_types() {
        let text = b"36 35 98:0 /mnt1 /mnt/a\\040b\\134c rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
                     37 35 0:5 / /proc rw - proc proc rw\nnot a line\n";
        let mount = |id, path: &str, kind: &str| Mount { id, path: path.into(), kind: kind.into() };
        assert_eq!(parse(text), [mount(36, "/mnt/a b\\c", "ext3"), mount(37, "/proc", "proc")]);
    }

    #[test]
    fn kernel_file_systems_are_not_served() {
        assert!(inside(Path::new("/")).is_ok_and(|paths| !paths.contains(&"/proc".into())));
    }

    #[test]
    fn file_systems_of_fuse_are_not_served() {
        for kind in ["fuse", "fuse.sshfs", "fuse.a.b"] {
            assert!(is_fuse(kind), "{kind}");
        }
        for kind in ["fuseblk", "ext4", "xfs", "fusectl", "fuse-like"] {
            assert!(!is_fuse(kind), "{kind}");
        }
        let mount = |id: u64, kind: &str| format!("{id} 1 0:{id} / /srv/{kind} rw - {kind} source rw\n");
        let text: String = ["ext4", "fuse.sshfs", "fuse", "fuseblk", "nfs4", "proc"]
            .into_iter()
            .zip(7..)
            .map(|(kind, id)| mount(id, kind))
            .collect();
        let mounts = parse(text.as_bytes()).into_iter().filter(is_served);
        let served: Vec<_> = mounts.map(|mount| mount.kind).collect();
        assert_eq!(served, ["ext4", "fuseblk"]);
    }
}
