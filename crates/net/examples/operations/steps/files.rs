//! Open, read, write, fsync, close.

use client::errno::Errno;
use client::fs::OpenOptions;
use client::results::{OpenMode, Stability};

use super::{BOTH, Outcome, Place, fails, holds, pattern, same};

pub(super) fn open_creates_and_refuses(place: &Place) -> Outcome {
    let fs = place.fs();
    fails("opening what is missing", fs.open(b"opened", &OpenOptions::READ), Errno::ENOENT)?;
    let file = fs.open(b"opened", &OpenOptions { permissions: 0o640, ..OpenOptions::CREATE })?;
    same("size and mode of a new file", (0, 0o640), (file.stat()?.size, file.stat()?.mode))?;
    file.close()?;
    let exclusive = OpenOptions { exclusive: Some(*b"verifier"), truncate: false, ..OpenOptions::CREATE };
    fails("O_EXCL of what exists", fs.open(b"opened", &exclusive), Errno::EEXIST)?;
    let file = fs.open(b"exclusive", &exclusive)?;
    file.write_at(0, "text")?;
    file.close()?;
    same("what O_EXCL created", b"text".to_vec(), place.other().read(b"exclusive")?)?;
    fs.create_dir(b"opened directory", 0o755)?;
    let write = OpenOptions { mode: OpenMode::WRITE, ..OpenOptions::READ };
    fails("writing a directory", fs.open(b"opened directory", &write), Errno::EISDIR)?;
    fails("a file below a file", fs.open(b"opened/below", &OpenOptions::READ), Errno::ENOTDIR)
}

pub(super) fn written_data_are_read_by_another_client(place: &Place) -> Outcome {
    let content = pattern((3 << 20) + 17);
    let file = place.fs().open(b"data", &BOTH)?;
    file.write_at(1 << 20, content[1 << 20..].to_vec())?;
    file.write_at(0, content[..1 << 20].to_vec())?;
    file.sync()?;
    holds("what fsync made stable is read by another client", place.other().read(b"data")? == content)?;
    holds("across two requests", file.read_at((1 << 20) - 5, 10)? == content[(1 << 20) - 5..(1 << 20) + 5])?;
    same(
        "less at the end",
        content[content.len() - 3..].to_vec(),
        file.read_at(content.len() as u64 - 3, 100)?,
    )?;
    same("nothing behind the end", Vec::new(), file.read_at(content.len() as u64 + 1, 100)?)?;
    file.write_at(7, "changed")?;
    file.close()?;
    let opened = place.other().open(b"data", &OpenOptions::READ)?;
    same("what close wrote", b"changed".to_vec(), opened.read_at(7, 7)?)?;
    same("size at the open", content.len() as u64, opened.inner().opened_attributes().size)?;
    let (object, found) = (opened.inner().object(), place.fs().stat(b"data")?);
    same("the object of an open file", found.fileid, object.attributes.fileid)?;
    opened.close()?;

    let stable = OpenOptions { stability: Stability::FileSync, ..OpenOptions::CREATE };
    let file = place.fs().open(b"data", &stable)?;
    same("size after O_TRUNC", 0, file.stat()?.size)?;
    file.write_at(0, "stable")?;
    same("O_SYNC", b"stable".to_vec(), place.other().read(b"data")?)?;
    Ok(file.close()?)
}

pub(super) fn whole_files(place: &Place) -> Outcome {
    let (fs, name) = (place.fs(), "größer".as_bytes());
    for length in [100_000, 10, 0] {
        let content = pattern(length);
        fs.write(name, content.clone())?;
        holds("a whole file", fs.read(name)? == content && place.other().read(name)? == content)?;
    }
    fails("reading what is missing", fs.read(b"missing"), Errno::ENOENT)
}

pub(super) fn a_removed_file_is_read_while_it_is_open(place: &Place) -> Outcome {
    let fs = place.fs();
    fs.create_dir(b"unlinked", 0o755)?;
    let file = fs.open(b"unlinked/file", &BOTH)?;
    file.write_at(0, "content")?;
    fs.remove_file(b"unlinked/file")?;
    fails("its name", fs.stat(b"unlinked/file"), Errno::ENOENT)?;
    file.write_at(7, " and more")?;
    same("its content", b"content and more".to_vec(), file.read_at(0, 100)?)?;
    file.close()?;
    same("what is left of it", 0, place.other().read_dir(b"unlinked")?.len())
}
