//! What the kernel of the clients' machine counts over a run on a directory: requests of an NFS mount (`mountstats`), the whole
//! system (as vmstat(8) shows it), and the directory's disk (as iostat(1) shows it).
//!
//! The parsers take the text of a file and ignore lines that they do not know: each kernel adds lines and fields.

pub(crate) mod disk;
pub(crate) mod mountstats;
pub(crate) mod system;

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use self::disk::DiskCounters;
pub use self::mountstats::Operation;
pub use self::system::SystemCounters;

/// By how much the kernel's counters grew over the measured time. They include what others did meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCounters {
    /// Identifies the kernel since its start (`/proc/sys/kernel/random/boot_id`): processes under the same one see the same counters.
    pub boot_id: String,
    /// The mount, if it is of NFS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountCounters>,
    /// The whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemCounters>,
    /// The disk of the directory, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskCounters>,
}

/// An NFS mount of the kernel, without its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountCounters {
    /// Server and path.
    pub source: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// `nfs` or `nfs4`.
    pub file_system: String,
    /// Options in effect, as the kernel writes them.
    pub options: String,
    /// Bytes that programs read and wrote by system calls, O_DIRECT included.
    pub program_bytes: (u64, u64),
    /// Bytes that the mount read from the server and wrote to it.
    pub server_bytes: (u64, u64),
}

impl KernelCounters {
    /// Returns whether both are of the same mount or disk of the same system, so that one includes the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let point = |counters: &Self| counters.mount.as_ref().map(|mount| mount.point.clone());
        self.boot_id == other.boot_id && point(self) == point(other)
    }
}

/// The counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    directory: PathBuf,
    boot_id: String,
    mount: Option<mountstats::Mount>,
    system: Option<SystemCounters>,
    disk: Option<DiskCounters>,
}

impl Snapshot {
    /// Reads all counters for a directory. Those that the system does not have are left out.
    pub(crate) fn read(directory: &Path) -> Self {
        let canonical = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let mount = mount_of(&canonical);
        let system = text("/proc/stat").map(|stat| {
            let vmstat = text("/proc/vmstat").unwrap_or_default();
            SystemCounters::parse(&stat, &vmstat)
        });
        let source = mount.as_ref().map(|mount| mount.source.as_str()).unwrap_or_default();
        let device = device(&canonical, source);
        let disk =
            device.zip(text("/proc/diskstats")).and_then(|(device, text)| disk::of_device(&text, device));
        let boot_id = text("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        Self { directory: directory.to_owned(), boot_id, mount, system, disk }
    }

    /// Reads them once a mount of NFS has sent what programs left to it: under a delegation the kernel does not send all data when
    /// a file is closed, and it never waits for the reply of a CLOSE. On a mount that others use this takes [`SETTLE_MAX`].
    pub(crate) fn settled(directory: &Path) -> Self {
        let canonical = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        send_all(directory, &canonical);
        settle(&canonical);
        Self::read(directory)
    }

    /// Returns the growth until a mount of NFS is quiet, and its requests by operation.
    pub(crate) fn until_settled(&self) -> (KernelCounters, BTreeMap<String, Operation>) {
        let canonical = fs::canonicalize(&self.directory).unwrap_or_else(|_| self.directory.clone());
        send_all(&self.directory, &canonical);
        // System and disk do nothing for the run while the last replies come.
        let mut now = Self::read(&self.directory);
        now.mount = settle(&canonical).or(now.mount);
        let mut operations = BTreeMap::new();
        let mount = now.mount.zip(self.mount.as_ref()).and_then(|(now, before)| {
            operations = now.operations_since(before);
            now.counters_since(before)
        });
        let system = now.system.zip(self.system.as_ref()).map(|(now, before)| now.since(before));
        let disk = now.disk.zip(self.disk.as_ref()).map(|(now, before)| now.since(before));
        (KernelCounters { boot_id: now.boot_id, mount, system, disk }, operations)
    }
}

/// How long a mount may go on to send after a run.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// A mount is quiet if none of its counters changes for this time: the replies of a server that takes longer are missed.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// Has a mount of NFS send the data that it keeps.
fn send_all(directory: &Path, canonical: &Path) {
    if mount_of(canonical).as_ref().is_some_and(mountstats::Mount::is_nfs) {
        // Programs have had the errors of their writes; others' data must not fail the run.
        let _ = fs::File::open(directory).map(rustix::fs::syncfs);
    }
}

/// Waits until a mount of NFS is quiet, and returns its counters.
fn settle(canonical: &Path) -> Option<mountstats::Mount> {
    let mut last = mount_of(canonical).filter(mountstats::Mount::is_nfs)?;
    let began = Instant::now();
    while began.elapsed() < SETTLE_MAX {
        std::thread::sleep(SETTLE_PAUSE);
        let Some(now) = mount_of(canonical) else { break };
        if now == last {
            break;
        }
        last = now;
    }
    Some(last)
}

fn text(path: &str) -> Option<String> {
    fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned()).ok()
}

/// Returns the mount that a path is on.
fn mount_of(canonical: &Path) -> Option<mountstats::Mount> {
    let mounts = text("/proc/self/mountstats").map_or_else(Vec::new, |text| mountstats::parse(&text));
    mountstats::of_path(mounts, canonical)
}

/// Returns the number of the block device with a directory. Some file systems (btrfs) have numbers of their own: then that of the
/// mount's source.
fn device(directory: &Path, source: &str) -> Option<(u64, u64)> {
    /// The major number of file systems without a block device.
    const UNNAMED_MAJOR: u64 = 0;
    let split = |number: u64| (u64::from(libc::major(number)), u64::from(libc::minor(number)));
    let own = fs::metadata(directory).ok().map(|metadata| split(metadata.st_dev()));
    own.filter(|(major, _)| *major != UNNAMED_MAJOR).or_else(|| {
        let metadata = fs::metadata(source).ok().filter(|_| source.starts_with('/'))?;
        metadata.file_type().is_block_device().then(|| split(metadata.st_rdev()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_systems_counters_grow() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let before = Snapshot::read(directory.path());
        let system = before.system.as_ref().expect("/proc/stat");
        assert!(system.context_switches > 0 && system.cpu_user_seconds > 0.0, "{system:?}");
        // Each sleep is a switch of this thread at least.
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let (growth, operations) = before.until_settled();
        let switches = growth.system.expect("/proc/stat").context_switches;
        assert!((5..system.context_switches).contains(&switches), "{switches}");
        assert_eq!(growth.boot_id.len(), 36, "a UUID");
        assert!(operations.is_empty(), "no directory of NFS");
    }

    #[test]
    fn agents_on_one_mount_see_the_same_counters() {
        let of = |boot_id: &str, point: &str| KernelCounters {
            boot_id: boot_id.to_owned(),
            mount: Some(MountCounters {
                source: "server:/export".to_owned(),
                point: PathBuf::from(point),
                file_system: "nfs4".to_owned(),
                options: String::new(),
                program_bytes: (0, 0),
                server_bytes: (0, 0),
            }),
            system: None,
            disk: None,
        };
        assert!(of("a", "/mnt").is_same(&of("a", "/mnt")));
        assert!(!of("a", "/mnt").is_same(&of("b", "/mnt")) && !of("a", "/mnt").is_same(&of("a", "/other")));
    }
}
