//! Shared mappings: data written through one are read by all, and reach the server.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::sys::Mapping;
use crate::tree::contents;
use crate::{Checked, same, told};

const LENGTH: usize = 1 << 20;

/// Leaves a file whose content is [`expected`], for a comparison over another mount.
pub(crate) fn check(path: &Path) -> Checked {
    let file = open(path)?;
    file.set_len(LENGTH as u64).map_err(told(path))?;
    let mut mapping = Mapping::new(&file, LENGTH).map_err(told(path))?;
    same("a new file's bytes", vec![0; 4096], mapping.read(LENGTH - 4096, 4096))?;

    mapping.write(0, &contents(1, LENGTH));
    let second = open(path)?;
    let other = Mapping::new(&second, LENGTH).map_err(told(path))?;
    same("bytes seen by a second mapping", contents(1, LENGTH), other.read(0, LENGTH))?;

    let mut read = vec![0; 10_000];
    second.read_exact_at(&mut read, 5_000).map_err(told(path))?;
    same("bytes seen by read", contents(1, LENGTH)[5_000..15_000].to_vec(), read)?;

    second.write_all_at(b"by write", 100_001).map_err(told(path))?;
    same("bytes seen after a write", b"by write".to_vec(), mapping.read(100_001, 8))?;

    mapping.write(LENGTH - 8, b"the last");
    mapping.sync().map_err(told("msync"))?;
    drop((mapping, other));
    same("content after msync", expected(), fs::read(path).map_err(told(path))?)
}

fn open(path: &Path) -> Result<File, String> {
    File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(told(path))
}

fn expected() -> Vec<u8> {
    let mut bytes = contents(1, LENGTH);
    bytes[100_001..100_009].copy_from_slice(b"by write");
    bytes[LENGTH - 8..].copy_from_slice(b"the last");
    bytes
}
