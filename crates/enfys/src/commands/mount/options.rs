//! The options after `-o`: those of a mount point, in one table; all others are those of nfs(5), which the client implements.

use std::path::PathBuf;

use client::cache::limiter::{BUDGET_MIN, Budget, Limiter, USER_MINIMUM};
use client::config::Caches;
use client::url::{LookupCache, Options as NfsOptions};
use mount::{DISK_CACHE_MIN, IdMap};

use crate::size::Size;

/// Minimum similarity of an unknown option to a known one that the error suggests.
const SIMILARITY_MIN: f64 = 0.85;
/// Without `memory=` caches have this part of the machine's memory, a quarter, and at most this number of bytes.
const MEMORY_PART: u64 = 4;
const MEMORY_USUAL_MAX: u64 = 256 << 20;
/// Size of a disk cache without `cache_size=`.
const CACHE_USUAL: u64 = 1 << 30;
/// Minimum and maximum percentage of `memory_reads=`. Above, unwritten data would have less than an eighth.
const MEMORY_READS_PERCENT: std::ops::RangeInclusive<u8> = 5..=75;
/// Minimum and maximum number of KiB of `memory_user=`: from the usual minimum to the part that all minimums have together of the largest
/// budget.
const MEMORY_USER_KIB: std::ops::RangeInclusive<u32> = (USER_MINIMUM >> 10) as u32..=128 << 20;
/// Minimum and maximum number of MiB of `memory=`.
const MEMORY_MIB: std::ops::RangeInclusive<u32> = (BUDGET_MIN >> 20) as u32..=1 << 20;

/// The settings of all options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Options of nfs(5), first those of the URL.
    pub nfs: NfsOptions,
    pub read_only: bool,
    /// `None`: whether root mounts.
    pub allow_other: Option<bool>,
    /// `None`: as `allow_other`.
    pub default_permissions: Option<bool>,
    pub suid: bool,
    pub dev: bool,
    pub noexec: bool,
    /// Access control lists below version 4.2 too.
    pub acl: bool,
    pub users: IdMap,
    pub groups: IdMap,
    /// Memory for caches and written-behind data; `None`: a part of the machine's.
    pub memory_mib: Option<u32>,
    /// Part of the memory that each user gets although others have filled it.
    pub memory_user_kib: Option<u32>,
    /// Part of the memory that unwritten data never use, in percent.
    pub memory_reads_percent: Option<u8>,
    /// Directory of the disk cache, as an absolute path.
    pub cache: Option<PathBuf>,
    /// Size of the disk cache.
    pub cache_bytes: Option<u64>,
}

/// The effect of an option.
enum Effect {
    Flag(fn(&mut MountOptions)),
    Value(fn(&mut MountOptions, &str) -> Result<(), String>),
    /// For mount(8), systemd and fstab(5); it changes nothing here.
    Ignored,
    /// Is recognized and refused, with this explanation.
    Refused(&'static str),
}

use Effect::{Flag, Ignored, Refused, Value};

/// A row: name, effect, and the text of the manual and `--help`; no text for options that do nothing.
type Row = (&'static str, Effect, &'static str);

#[rustfmt::skip]
const OPTIONS: &[Row] = &[
    ("ro", Flag(|options| options.read_only = true), "Refuse all changes"),
    ("rw", Flag(|options| options.read_only = false), "Allow changes (default)"),
    ("allow_other", Flag(|options| options.allow_other = Some(true)), "Let all users use the mount (default for root)"),
    ("noallow_other", Flag(|options| options.allow_other = Some(false)), "Let only the user who mounts use it"),
    ("default_permissions", Flag(|options| options.default_permissions = Some(true)), "Let the kernel check modes and owners too (default with allow_other)"),
    ("nodefault_permissions", Flag(|options| options.default_permissions = Some(false)), "Let only the server check permissions"),
    ("suid", Flag(|options| options.suid = true), "Set-user-ID bits count (root only)"),
    ("nosuid", Flag(|options| options.suid = false), "Set-user-ID bits do not count (default)"),
    ("dev", Flag(|options| options.dev = true), "Device files work (root only)"),
    ("nodev", Flag(|options| options.dev = false), "Device files do not work (default)"),
    ("exec", Flag(|options| options.noexec = false), "Programs can be executed (default)"),
    ("noexec", Flag(|options| options.noexec = true), "Programs cannot be executed"),
    ("acl", Flag(|options| options.acl = true), "Access control lists in versions 3, 4.0 and 4.1 too; writes get slower"),
    ("noacl", Flag(|options| options.acl = false), "No access control lists below version 4.2 (default)"),
    ("map_uid", Value(|options, pair| options.users.add(pair).map_err(|error| error.to_string())), "REMOTE:LOCAL: a user with another number at the server"),
    ("map_gid", Value(|options, pair| options.groups.add(pair).map_err(|error| error.to_string())), "REMOTE:LOCAL: a group with another number at the server"),
    ("memory", Value(set_memory), "MIB: memory for caches and unwritten data (default a quarter, at most 256)"),
    ("memory_user", Value(set_memory_user), "KIB: part of it that each user gets although others have filled it (default 256)"),
    ("memory_reads", Value(set_memory_reads), "PERCENT: part of it that unwritten data never use (default 25)"),
    ("cache", Value(set_cache), "DIR: keep blocks of files in this directory too, also for later mounts"),
    ("cache_size", Value(set_cache_size), "SIZE: limit of that directory (default 1GiB)"),
    ("defaults", Ignored, ""), ("auto", Ignored, ""), ("noauto", Ignored, ""), ("nofail", Ignored, ""), ("_netdev", Ignored, ""),
    ("user", Ignored, ""), ("nouser", Ignored, ""), ("users", Ignored, ""), ("owner", Ignored, ""), ("group", Ignored, ""),
    ("atime", Ignored, ""), ("noatime", Ignored, ""), ("relatime", Ignored, ""), ("norelatime", Ignored, ""),
    ("strictatime", Ignored, ""), ("nostrictatime", Ignored, ""), ("lazytime", Ignored, ""), ("nolazytime", Ignored, ""),
    ("diratime", Ignored, ""), ("nodiratime", Ignored, ""), ("async", Ignored, ""), ("silent", Ignored, ""),
    ("sync", Refused("every write would wait for the server's disk: let programs call fsync(2)"), ""),
    ("remount", Refused("unmount, and mount again"), ""),
    ("bind", Refused("use mount --bind"), ""),
];

impl MountOptions {
    /// Starts with the options of a URL.
    pub fn new(nfs: NfsOptions) -> Self {
        Self { nfs, ..Self::default() }
    }

    /// Applies a list with commas.
    ///
    /// # Errors
    /// One sentence about the first option that is unknown, wrong or refused.
    pub fn apply_list(&mut self, list: &str) -> Result<(), String> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply(option))
    }

    /// Applies `NAME` or `NAME=VALUE`.
    fn apply(&mut self, option: &str) -> Result<(), String> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if name.starts_with("x-") || name.starts_with("X-") || name == "comment" {
            // fstab(5) leaves them to other programs.
            return Ok(());
        }
        let Some((_, effect, _)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
            return self.nfs.apply(option).map_err(|error| suggestion(name).unwrap_or(error.to_string()));
        };
        match (effect, value) {
            (Flag(apply), None) => {
                apply(self);
                Ok(())
            }
            (Value(apply), Some(value)) => apply(self, value).map_err(|why| format!("`{option}`: {why}")),
            (Ignored, _) => Ok(()),
            (Refused(why), _) => Err(format!("`{option}`: {why}")),
            (Value(_), None) => Err(format!("`{name}` needs a value: {name}=…")),
            (Flag(_), Some(_)) => Err(format!("`{name}` takes no value")),
        }
    }

    /// Returns the caches of the client. `machine` is the memory of the machine in bytes.
    pub fn caches(&self, machine: u64) -> Caches {
        let usual = (machine / MEMORY_PART).min(MEMORY_USUAL_MAX);
        let bytes = self.memory_mib.map_or(usual, |mib| u64::from(mib) << 20);
        let mut budget = Budget::new(bytes);
        if let Some(kib) = self.memory_user_kib {
            budget.user_minimum = (u64::from(kib) << 10).min(budget.for_minimums);
        }
        if let Some(percent) = self.memory_reads_percent {
            budget.for_reads = budget.total / 100 * u64::from(percent);
        }
        Caches::new(Limiter::new(budget), &self.nfs)
    }

    /// Returns the directory of the disk cache and its size in bytes, if there is one.
    ///
    /// # Errors
    /// One sentence about options that exclude each other.
    pub fn disk_cache(&self) -> Result<Option<(PathBuf, u64)>, String> {
        match (&self.cache, self.cache_bytes) {
            (None, Some(_)) => Err("`cache_size=` needs `cache=DIR`".to_owned()),
            (None, None) => Ok(None),
            (Some(_), _) if self.nfs.attribute_cache == Some(false) => {
                Err("`cache=` has no effect with `noac`, which caches nothing".to_owned())
            }
            (Some(directory), bytes) => Ok(Some((directory.clone(), bytes.unwrap_or(CACHE_USUAL)))),
        }
    }

    /// Returns whether the kernel may remember that a name is missing.
    pub fn caches_missing_names(&self) -> bool {
        !matches!(self.nfs.lookup_cache, Some(LookupCache::Positive | LookupCache::None))
    }

    /// Returns whether other users may use the mount.
    pub fn allows_others(&self, is_root: bool) -> bool {
        self.allow_other.unwrap_or(is_root)
    }
}

fn set_memory(options: &mut MountOptions, mib: &str) -> Result<(), String> {
    let given = mib.parse().ok().filter(|mib| MEMORY_MIB.contains(mib));
    let range = || format!("expected a number of MiB from {} to {}", MEMORY_MIB.start(), MEMORY_MIB.end());
    options.memory_mib = Some(given.ok_or_else(range)?);
    Ok(())
}

fn set_cache(options: &mut MountOptions, directory: &str) -> Result<(), String> {
    let directory = PathBuf::from(directory);
    if !directory.is_absolute() {
        return Err("expected an absolute path".to_owned());
    }
    options.cache = Some(directory);
    Ok(())
}

fn set_cache_size(options: &mut MountOptions, size: &str) -> Result<(), String> {
    let Size(bytes) = size.parse()?;
    if bytes < DISK_CACHE_MIN {
        return Err(format!("expected at least {}", Size(DISK_CACHE_MIN)));
    }
    options.cache_bytes = Some(bytes);
    Ok(())
}

fn set_memory_user(options: &mut MountOptions, kib: &str) -> Result<(), String> {
    let given = kib.parse().ok().filter(|kib| MEMORY_USER_KIB.contains(kib));
    let range =
        || format!("expected a number of KiB from {} to {}", MEMORY_USER_KIB.start(), MEMORY_USER_KIB.end());
    options.memory_user_kib = Some(given.ok_or_else(range)?);
    Ok(())
}

fn set_memory_reads(options: &mut MountOptions, percent: &str) -> Result<(), String> {
    let given = percent.parse().ok().filter(|percent| MEMORY_READS_PERCENT.contains(percent));
    let range = || {
        let (least, most) = (MEMORY_READS_PERCENT.start(), MEMORY_READS_PERCENT.end());
        format!("expected a percentage from {least} to {most}")
    };
    options.memory_reads_percent = Some(given.ok_or_else(range)?);
    Ok(())
}

fn suggestion(name: &str) -> Option<String> {
    let similar = OPTIONS.iter().map(|(known, ..)| (strsim::jaro_winkler(name, known), *known));
    let (similarity, known) = similar.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (similarity >= SIMILARITY_MIN).then(|| format!("unknown option `{name}`: did you mean `{known}`?"))
}

/// Returns the table for `--help`.
pub fn help() -> String {
    let rows = OPTIONS.iter().filter(|(.., text)| !text.is_empty());
    let rows: Vec<String> = rows.map(|(name, _, text)| format!("  {name:<22} {text}")).collect();
    format!("Options after -o:\n{}\nand those of nfs(5), as in URLs.", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client::cache::attributes::Timeouts;

    use super::*;

    fn applied(list: &str) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
        options.apply_list(list)?;
        Ok(options)
    }

    #[test]
    fn options_of_the_mount_and_of_nfs_are_one_list() {
        let options =
            applied("ro,vers=4.1,noexec,actimeo=7,map_uid=1000:501,_netdev,x-systemd.automount,rw").unwrap();
        assert_eq!((options.read_only, options.noexec), (false, true));
        let timeouts = options.caches(1 << 30).metadata.timeouts;
        assert_eq!(timeouts, Timeouts::actimeo(Duration::from_secs(7)));
        assert_eq!(options.nfs.words()[0], "version=4.1");
        assert_eq!(applied("noac").unwrap().caches(1 << 30).metadata.timeouts, Timeouts::noac());
    }

    #[test]
    fn caches_have_a_quarter_of_the_memory_or_the_given_size() {
        let budget = |list, machine| applied(list).unwrap().caches(machine).memory.budget().total >> 20;
        assert_eq!((budget("", 400 << 20), budget("", 64 << 30)), (100, 256));
        assert_eq!((budget("memory=1024", 400 << 20), budget("memory=16", 64 << 30)), (1024, 16));
        for wrong in ["memory=15", "memory=1048577", "memory=1G"] {
            let error = applied(wrong).unwrap_err();
            assert_eq!(error, format!("`{wrong}`: expected a number of MiB from 16 to 1048576"));
        }
    }

    #[test]
    fn a_disk_cache_has_a_directory_and_a_size() {
        let cache = |list| applied(list).unwrap().disk_cache();
        let at = |bytes| Ok(Some((PathBuf::from("/var/cache/x"), bytes)));
        assert_eq!((cache("ro"), cache("cache=/var/cache/x")), (Ok(None), at(1 << 30)));
        assert_eq!(cache("cache_size=10GiB,cache=/var/cache/x"), at(10 << 30));
        assert_eq!(cache("cache_size=10GiB").unwrap_err(), "`cache_size=` needs `cache=DIR`");
        assert!(cache("cache=/x,noac").unwrap_err().contains("noac"));
        assert_eq!(applied("cache=x").unwrap_err(), "`cache=x`: expected an absolute path");
        assert_eq!(applied("cache_size=1KiB").unwrap_err(), "`cache_size=1KiB`: expected at least 1 MiB");
        assert!(applied("cache_size=many").unwrap_err().contains("expected a number of bytes"));
    }

    #[test]
    fn a_user_has_a_minimum_within_the_part_for_minimums() {
        let budget = |list| applied(list).unwrap().caches(4 << 30).memory.budget();
        assert_eq!(budget("memory=64").user_minimum, 256 << 10);
        assert_eq!(budget("memory=64,memory_user=1024").user_minimum, 1 << 20);
        assert_eq!(budget("memory=64,memory_user=65536").user_minimum, 8 << 20, "an eighth of the memory");
        assert!(applied("memory_user=255").unwrap_err().contains("from 256 to"));
    }

    #[test]
    fn a_part_of_the_memory_is_kept_for_reads() {
        let budget = |list| applied(list).unwrap().caches(4 << 30).memory.budget();
        assert_eq!(budget("memory=64").for_reads, 16 << 20, "a quarter");
        assert_eq!(budget("memory_reads=50,memory=100").for_reads, 50 << 20);
        for wrong in ["memory_reads=4", "memory_reads=76", "memory_reads=50%", "memory_reads=1000"] {
            let error = applied(wrong).unwrap_err();
            assert_eq!(error, format!("`{wrong}`: expected a percentage from 5 to 75"));
        }
    }

    #[test]
    fn an_unknown_wrong_or_refused_option_is_named() {
        assert_eq!(
            applied("ro,allow_othr").unwrap_err(),
            "unknown option `allow_othr`: did you mean `allow_other`?"
        );
        assert_eq!(applied("frobnicate").unwrap_err(), "unknown option `frobnicate`: see nfs(5)");
        assert_eq!(applied("ro=1").unwrap_err(), "`ro` takes no value");
        assert_eq!(applied("map_uid").unwrap_err(), "`map_uid` needs a value: map_uid=…");
        assert_eq!(applied("map_uid=1").unwrap_err(), "`map_uid=1`: `1`: expected REMOTE:LOCAL, two numbers");
        assert_eq!(applied("remount").unwrap_err(), "`remount`: unmount, and mount again");
    }

    #[test]
    fn only_a_mount_of_root_is_for_all_users_by_default() {
        assert!(applied("").unwrap().allows_others(true) && !applied("").unwrap().allows_others(false));
        assert!(!applied("noallow_other").unwrap().allows_others(true));
    }

    #[test]
    fn missing_names_are_cached_unless_lookupcache_forbids_it() {
        assert!(
            applied("").unwrap().caches_missing_names()
                && applied("lookupcache=all").unwrap().caches_missing_names()
        );
        assert!(!applied("lookupcache=pos").unwrap().caches_missing_names());
        assert!(!applied("lookupcache=none").unwrap().caches_missing_names());
    }
}
