//! Copies of trees: to the server, on the server, and back.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use client::attributes::{SetAttributes, SetTime, Timestamp};
use client::copy::{Copied, CopyOptions, Same, copy_tree};
use client::tree::{ServerTree, Tree};
use net::blocking::wait;
use net::local::LocalTree;

use super::{Outcome, Place, pattern, same};

const OPTIONS: CopyOptions = CopyOptions {
    is_recursive: true,
    preserves: true,
    umask: 0o022,
    skips: Some(Same::Content),
    deletes: true,
    reflink: client::copy::Reflink::Auto,
};

pub(super) fn trees_are_copied(place: &Place) -> Outcome {
    let directory = tempfile::tempdir()?;
    let (original, back) = (directory.path().join("original"), directory.path().join("back"));
    make_tree(&original)?;
    fs::create_dir(&back)?;
    let server = place.fs();
    for name in ["up", "copy"] {
        server.create_dir(name.as_bytes(), 0o755)?;
    }
    // One that the source does not have.
    server.write(b"up/extra", "content")?;
    let (local, up) = (LocalTree::open(&original)?, wait(ServerTree::open(server.inner(), b"up"))?);
    all_copied(wait(copy_tree(&local, &up, OPTIONS)))?;
    let (from, copy) =
        (wait(ServerTree::open(server.inner(), b"up"))?, wait(ServerTree::open(server.inner(), b"copy"))?);
    all_copied(wait(copy_tree(&from, &copy, OPTIONS)))?;
    let (copy, down) = (wait(ServerTree::open(place.other().inner(), b"copy"))?, LocalTree::open(&back)?);
    all_copied(wait(copy_tree(&copy, &down, OPTIONS)))?;
    same("the tree that came back", manifest(&original)?, manifest(&back)?)?;
    // The copy of a changed file is made equal again.
    let old = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
    server.write(b"up/large", "changed")?;
    server.set_attributes(b"up/large", &SetAttributes { mtime: SetTime::To(old), ..Default::default() })?;
    all_copied(wait(copy_tree(&local, &up, OPTIONS)))?;
    same("a changed file", fs::read(original.join("large"))?.len(), place.other().read(b"up/large")?.len())
}

fn all_copied<S: Tree, D: Tree>(copied: Vec<Copied<S, D>>) -> Outcome
where
    S::Error: Display,
    D::Error: Display,
{
    for copied in copied {
        copied.outcome.map_err(|error| format!("the copy to {:?}: {error}", copied.target))?;
    }
    Ok(())
}

fn make_tree(root: &Path) -> Outcome {
    fs::create_dir_all(root.join("a/b/c"))?;
    fs::write(root.join("large"), pattern(2_500_000))?;
    for number in 0..30 {
        fs::write(root.join(format!("a/b/file {number}")), pattern(number * 500))?;
    }
    fs::hard_link(root.join("large"), root.join("a/second name"))?;
    symlink("../large", root.join("a/link"))?;
    fs::set_permissions(root.join("a/b/file 7"), fs::Permissions::from_mode(0o640))?;
    Ok(fs::set_permissions(root.join("a/b/c"), fs::Permissions::from_mode(0o700))?)
}

/// Returns a line for each object of a tree: path, type and mode, names, size, times, content.
fn manifest(root: &Path) -> Outcome<Vec<String>> {
    let (mut lines, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let is = fs::symlink_metadata(&path)?;
            let content = match is.file_type() {
                kind if kind.is_symlink() => fs::read_link(&path)?.into_os_string().into_encoded_bytes(),
                kind if kind.is_file() => fs::read(&path)?,
                _ => Vec::new(),
            };
            if is.is_dir() {
                waiting.push(path.clone());
            }
            let sum =
                content.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            // Servers differ in the times that they keep of links and in the sizes of directories.
            let (size, mtime) = if is.is_file() { (is.size(), is.mtime()) } else { (0, 0) };
            let nlink = if is.is_dir() { 0 } else { is.nlink() };
            let relative = path.strip_prefix(root)?.display().to_string();
            lines.push(format!("{relative} {:o} {nlink} {size} {mtime} {sum:x}", is.mode()));
        }
    }
    lines.sort();
    Ok(lines)
}
