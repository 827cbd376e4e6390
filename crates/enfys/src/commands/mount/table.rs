//! The mounts of this process's namespace, from `/proc/self/mountinfo` (proc(5)). This module sends no requests to a server.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The file system type of mounts of Enfys.
const KIND: &str = "fuse.enfys";

/// A mount.
#[derive(Debug, PartialEq, Eq)]
pub struct Mounted {
    pub kind: String,
    pub is_ours: bool,
    /// Minor number of its device, by which FUSE connections are known.
    pub device: u32,
    /// The user that mounted it.
    pub user: u32,
}

/// Returns the uppermost mount on a directory.
///
/// # Errors
/// `/proc` cannot be read.
pub fn find(directory: &Path) -> io::Result<Option<Mounted>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?, directory))
}

/// Returns the whole path of a directory, without access to the directory itself, whose server may be unreachable.
///
/// # Errors
/// The directory above cannot be found.
pub fn absolute(directory: &Path) -> io::Result<PathBuf> {
    match (directory.parent(), directory.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
        _ => std::fs::canonicalize(directory),
    }
}

/// Returns the directory of the mount that a path is in, and the path below it.
///
/// # Errors
/// `/proc` cannot be read, or the path cannot be resolved.
pub fn mount_of(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let whole = std::fs::canonicalize(path)?;
    let table = std::fs::read("/proc/self/mountinfo")?;
    let mounted = whole.ancestors().find(|above| parse(&table, above).is_some()).unwrap_or(Path::new("/"));
    let below = whole.strip_prefix(mounted).unwrap_or(Path::new("")).to_path_buf();
    Ok((mounted.to_path_buf(), below))
}

fn parse(table: &[u8], directory: &Path) -> Option<Mounted> {
    let wanted = directory.as_os_str().as_bytes();
    table.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let place = unescaped(fields.nth(1)?);
        if place.as_bytes() != wanted {
            return None;
        }
        let mut fields = fields.skip_while(|field| *field != b"-");
        let kind = fields.nth(1)?;
        let options = fields.nth(1).unwrap_or_default();
        let mut options = options.split(|byte| *byte == b',');
        let user = options.find_map(|option| option.strip_prefix(b"user_id="));
        let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok()).unwrap_or(0);
        let kind = String::from_utf8_lossy(kind).into_owned();
        let minor = std::str::from_utf8(device).ok()?.split_once(':')?.1.parse().ok()?;
        Some(Mounted { is_ours: kind == KIND, kind, device: minor, user })
    })
}

/// Returns text whose blanks and backslashes are octal numbers after a backslash.
fn unescaped(text: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        40 22 0:50 / /mnt/a\\040b rw,nosuid,nodev - fuse.enfys nfs://host/x rw,user_id=1000,group_id=0\n\
        41 22 0:51 / /mnt/c rw shared:2 master:3 - tmpfs none rw\n\
        42 41 0:52 / /mnt/c rw - fuse.enfys nfs://host/y rw\n";

    #[test]
    fn the_uppermost_mount_of_a_directory_is_found() {
        let kind = "fuse.enfys";
        let ours = |device, user| Some(Mounted { kind: kind.to_owned(), is_ours: true, device, user });
        assert_eq!(parse(TABLE, Path::new("/mnt/a b")), ours(50, 1000));
        assert_eq!(parse(TABLE, Path::new("/mnt/c")), ours(52, 0));
        assert_eq!(parse(TABLE, Path::new("/mnt/d")), None);
        assert!(!parse(TABLE, Path::new("/")).expect("the root").is_ours);
    }
}
