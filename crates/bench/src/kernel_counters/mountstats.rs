//! `/proc/self/mountstats`: mounts, and for those of NFS a table of operations (`net/sunrpc/stats.c`, `fs/nfs/super.c`; version 1.1).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::MountCounters;

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The device, or a server with its path.
    pub(crate) source: String,
    pub(crate) point: PathBuf,
    pub(crate) file_system: String,
    /// The line `opts:`, which only NFS has.
    pub(crate) options: String,
    /// The line `bytes:`: read and written by system calls, the same with O_DIRECT, read from and written to the server.
    pub(crate) bytes: [u64; 6],
    /// The table of operations, which only NFS has.
    pub(crate) operations: BTreeMap<String, Operation>,
}

/// Counters of one operation: of a compound in version 4, which is named after its main operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Requests that have ended.
    pub requests: u64,
    /// Times that they were sent.
    pub transmissions: u64,
    /// Major timeouts: a request was sent `retrans=` times without an answer.
    pub major_timeouts: u64,
    /// Bytes of requests.
    pub bytes_sent: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
    /// Sum of the times before requests were sent, in milliseconds.
    pub queue_ms: u64,
    /// Sum of the times from sending to the reply, in milliseconds.
    pub round_trip_ms: u64,
    /// Sum of the times from the start of requests to their end, in milliseconds.
    pub execute_ms: u64,
    /// Requests that ended with an error status; 0 before Linux 5.3.
    pub errors: u64,
}

impl Operation {
    /// Parses the numbers of a line; `None` if it has fewer than eight.
    fn parse(numbers: &str) -> Option<Self> {
        let mut numbers = numbers.split_whitespace().map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Self {
            requests: next()?,
            transmissions: next()?,
            major_timeouts: next()?,
            bytes_sent: next()?,
            bytes_received: next()?,
            queue_ms: next()?,
            round_trip_ms: next()?,
            execute_ms: next()?,
            errors: next().unwrap_or_default(),
        })
    }

    fn since(self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            transmissions: self.transmissions.saturating_sub(before.transmissions),
            major_timeouts: self.major_timeouts.saturating_sub(before.major_timeouts),
            bytes_sent: self.bytes_sent.saturating_sub(before.bytes_sent),
            bytes_received: self.bytes_received.saturating_sub(before.bytes_received),
            queue_ms: self.queue_ms.saturating_sub(before.queue_ms),
            round_trip_ms: self.round_trip_ms.saturating_sub(before.round_trip_ms),
            execute_ms: self.execute_ms.saturating_sub(before.execute_ms),
            errors: self.errors.saturating_sub(before.errors),
        }
    }
}

impl Mount {
    pub(super) fn is_nfs(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Returns the operations that were used since `before`.
    pub(super) fn operations_since(&self, before: &Self) -> BTreeMap<String, Operation> {
        let since = |(name, now): (&String, &Operation)| {
            let since = now.since(before.operations.get(name).unwrap_or(&Operation::default()));
            (since != Operation::default()).then(|| (name.clone(), since))
        };
        self.operations.iter().filter_map(since).collect()
    }

    /// Returns the other counters since `before`; `None` if the mount is not of NFS.
    pub(super) fn counters_since(self, before: &Self) -> Option<MountCounters> {
        let since = |field: usize| self.bytes[field].saturating_sub(before.bytes[field]);
        self.is_nfs().then(|| MountCounters {
            program_bytes: (since(0) + since(2), since(1) + since(3)),
            server_bytes: (since(4), since(5)),
            source: self.source,
            point: self.point,
            file_system: self.file_system,
            options: self.options,
        })
    }
}

/// Parses all mounts.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    let mut is_table = false;
    for line in text.lines() {
        if let Some(mount) = heading(line) {
            mounts.push(mount);
            is_table = false;
            continue;
        }
        let Some(mount) = mounts.last_mut() else { continue };
        let line = line.trim();
        if line == "per-op statistics" {
            is_table = true;
            continue;
        }
        let Some((name, rest)) = line.split_once(':') else { continue };
        match name {
            "opts" => mount.options = rest.trim().to_owned(),
            "bytes" if !is_table => {
                let numbers = rest.split_whitespace().map_while(|number| number.parse().ok());
                mount.bytes.iter_mut().zip(numbers).for_each(|(field, number)| *field = number);
            }
            _ if is_table => {
                mount.operations.extend(Operation::parse(rest).map(|operation| (name.to_owned(), operation)));
            }
            _ => {}
        }
    }
    mounts
}

/// Parses the line that begins a mount: `device SOURCE mounted on POINT with fstype TYPE [statvers=1.1]`.
fn heading(line: &str) -> Option<Mount> {
    let (source, rest) = line.split_once(" mounted on ")?;
    let source = source.strip_prefix("device ").or((source == "no device").then_some(""))?;
    let (point, rest) = rest.split_once(" with fstype ")?;
    let file_system = rest.split_whitespace().next()?.to_owned();
    Some(Mount { source: plain(source), point: plain(point).into(), file_system, ..Mount::default() })
}

/// Replaces `\040` and the like: the kernel writes spaces, tabs, line feeds and backslashes in octal.
fn plain(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Returns the mount that a path is on. Of several at the same place, the last hides the others.
pub(crate) fn of_path(mounts: Vec<Mount>, path: &Path) -> Option<Mount> {
    let with_path = mounts.into_iter().filter(|mount| path.starts_with(&mount.point));
    with_path.max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.1 with knfsd, mounted at `/run/nfs mount` with version 4.2 and at `/run/three` with version 3, before and after a
    /// script that writes "hello\n" into each of ten new files of the first mount, reads all ten (which are in its cache), and opens
    /// one that does not exist.
    const BEFORE: &str = include_str!("captured/mountstats-before");
    const AFTER: &str = include_str!("captured/mountstats-after");

    fn mount(text: &str, path: &str) -> Mount {
        of_path(parse(text), Path::new(path)).expect("a mount")
    }

    #[test]
    fn differences_are_what_the_script_did() {
        let (before, after) = (mount(BEFORE, "/run/nfs mount/a/b"), mount(AFTER, "/run/nfs mount"));
        assert_eq!((before.source.as_str(), before.file_system.as_str()), ("127.0.0.1:/export", "nfs4"));
        assert!(before.options.starts_with("rw,vers=4.2,rsize=65536,"), "{}", before.options);
        let operations = after.operations_since(&before);
        let counts: Vec<(&str, u64)> =
            operations.iter().map(|(name, operation)| (name.as_str(), operation.requests)).collect();
        // Opens of new files are OPEN, those of known ones OPEN_NOATTR.
        let expected = [
            ("ACCESS", 1),
            ("CLOSE", 20),
            ("GETATTR", 1),
            ("OPEN", 11),
            ("OPEN_NOATTR", 10),
            ("READDIR", 1),
            ("WRITE", 10),
        ];
        assert_eq!(counts, expected);
        let (write, open) = (operations["WRITE"], operations["OPEN"]);
        assert_eq!((write.transmissions, write.bytes_sent, write.bytes_received), (10, 2080, 1840));
        assert_eq!((open.errors, write.errors), (1, 0), "the file that does not exist");
        let other = after.counters_since(&before).expect("NFS");
        assert_eq!((other.program_bytes, other.server_bytes), ((60, 60), (0, 60)));
    }

    #[test]
    fn another_mount_and_mount_point_are_not_mixed_up() {
        let (before, after) = (mount(BEFORE, "/run/three/x"), mount(AFTER, "/run/three/x"));
        assert_eq!(after.file_system, "nfs");
        assert_eq!(after.operations["NULL"].queue_ms, 6);
        assert_eq!(after.operations_since(&before), BTreeMap::new());
        assert_eq!(mount(BEFORE, "/run/three-other").point, Path::new("/run"), "a longer name");
        let local = mount(AFTER, "/home");
        assert_eq!((local.point.as_path(), local.file_system.as_str()), (Path::new("/"), "hostfs"));
        assert_eq!(local.clone().counters_since(&local), None);
    }

    #[test]
    fn the_last_of_mounts_at_one_place_counts() {
        let text = "device a:/x mounted on /m with fstype nfs statvers=1.1\ndevice b:/x mounted on /m with fstype nfs4 statvers=1.1\n";
        assert_eq!(mount(text, "/m").source, "b:/x");
    }

    #[test]
    fn unknown_and_damaged_lines_are_ignored() {
        let damaged = "per-op statistics\nREAD: 1 1\ndevice\nno device mounted on /a\\04 with fstype nfs\n\tnew line:\n\
                       \tbytes:\t1 x\n\tper-op statistics\n\tREAD: 1 2 3 4 5 6 7 8\n\tWRITE: 1 2 3 4 5 6 7\n\
                       \tOPEN: 1 2 3 4 5 6 7 -8 0\n\tFUTURE: 1 2 3 4 5 6 7 8 9 10 11\n\tfree text\n";
        let mounts = parse(damaged);
        assert_eq!(mounts.len(), 1);
        assert_eq!((mounts[0].point.as_path(), mounts[0].bytes), (Path::new("/a\\04"), [1, 0, 0, 0, 0, 0]));
        let names: Vec<&str> = mounts[0].operations.keys().map(String::as_str).collect();
        assert_eq!(names, ["FUTURE", "READ"]);
        assert_eq!((mounts[0].operations["READ"].errors, mounts[0].operations["FUTURE"].errors), (0, 9));
        for end in 0..AFTER.len() {
            // Any truncation; the text is ASCII.
            parse(&AFTER[..end]);
        }
    }
}
