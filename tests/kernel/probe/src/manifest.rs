//! A tree as text, one line for each entry, so that `diff` shows the differences of two trees.

use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::hash::Hasher;
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{Checked, told};

const READ_BYTES: usize = 256 << 10;

/// Prints path, type, mode, owner, group, links, size, mtime, and checksum or target of everything below `root`.
pub(crate) fn print(root: &Path) -> Checked {
    let mut lines = Vec::new();
    walk(root, root, &mut lines)?;
    lines.sort();
    let mut output = io::BufWriter::new(io::stdout().lock());
    lines.iter().try_for_each(|line| writeln!(output, "{line}")).map_err(told("standard output"))?;
    output.flush().map_err(told("standard output"))
}

fn walk(root: &Path, path: &Path, lines: &mut Vec<String>) -> Checked {
    let metadata = fs::symlink_metadata(path).map_err(told(path))?;
    lines.push(line(root, path, &metadata)?);
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(told(path))? {
            walk(root, &entry.map_err(told(path))?.path(), lines)?;
        }
    }
    Ok(())
}

fn line(root: &Path, path: &Path, metadata: &Metadata) -> Result<String, String> {
    let name = path.strip_prefix(root).unwrap_or(path).as_os_str().as_bytes().escape_ascii();
    let mut line = format!("./{name}");
    let (kind, detail) = kind_and_detail(path, metadata)?;
    let _ = write!(
        line,
        " {kind} mode={:o} owner={}:{}",
        metadata.mode() & 0o7777,
        metadata.uid(),
        metadata.gid()
    );
    // File systems count links and sizes of directories differently.
    if !metadata.is_dir() {
        let _ = write!(line, " links={} size={}", metadata.nlink(), metadata.size());
    }
    let _ = write!(line, " mtime={}.{:09} {detail}", metadata.mtime(), metadata.mtime_nsec());
    Ok(line)
}

fn kind_and_detail(path: &Path, metadata: &Metadata) -> Result<(&'static str, String), String> {
    let kind = metadata.file_type();
    Ok(if kind.is_file() {
        ("file", checksum(path)?)
    } else if kind.is_dir() {
        ("directory", String::new())
    } else if kind.is_symlink() {
        let target = fs::read_link(path).map_err(told(path))?;
        ("symlink", target.as_os_str().as_bytes().escape_ascii().to_string())
    } else if kind.is_fifo() {
        ("fifo", String::new())
    } else if kind.is_socket() {
        ("socket", String::new())
    } else {
        ("device", format!("{:x}", metadata.rdev()))
    })
}

fn checksum(path: &Path) -> Result<String, String> {
    let mut file = fs::File::open(path).map_err(told(path))?;
    let mut hasher = SipHasher24::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = file.read(&mut buffer).map_err(told(path))?;
        if length == 0 {
            return Ok(format!("{:032x}", hasher.finish128().as_u128()));
        }
        hasher.write(&buffer[..length]);
    }
}
