//! Open files that are renamed, replaced and removed: the descriptor stays usable.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::{Checked, same, told};

/// How often, and at which interval, to check whether the client has removed its `.nfs…` files.
const LEFT_OVER_TRIES: u32 = 600;
const LEFT_OVER_PAUSE: Duration = Duration::from_millis(100);

type Scenario = (&'static str, fn(&Path) -> Checked);

/// Runs all scenarios, each in its own directory below `root`.
pub(crate) fn check(root: &Path) -> Checked {
    const SCENARIOS: &[Scenario] = &[
        ("removed-while-open", removed_while_open),
        ("renamed-while-open", renamed_while_open),
        ("replaced-while-open", replaced_while_open),
        ("removed-and-made-again", removed_and_made_again),
        ("directory-of-an-open-file", directory_of_an_open_file),
    ];
    for (name, scenario) in SCENARIOS {
        let directory = root.join(name);
        fs::create_dir(&directory).map_err(told(&directory))?;
        scenario(&directory).map_err(|why| format!("{name}: {why}"))?;
        println!("ok: {name}");
    }
    Ok(())
}

fn create(path: &Path, text: &str) -> Result<File, String> {
    let mut file = File::options().read(true).write(true).create_new(true).open(path).map_err(told(path))?;
    file.write_all(text.as_bytes()).map_err(told(path))?;
    Ok(file)
}

fn text_of(file: &mut File) -> Result<String, String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).map_err(told("seek"))?;
    file.read_to_string(&mut text).map_err(told("read"))?;
    Ok(text)
}

/// Returns the names that a user sees: not the `.nfs…` files, by which the client keeps removed files.
fn visible(directory: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(directory).map_err(told(directory))?;
    let names: Result<Vec<String>, String> = entries
        .map(|entry| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).map_err(told(directory))
        })
        .collect();
    let mut names = names?;
    names.retain(|name| !name.starts_with(".nfs"));
    names.sort();
    Ok(names)
}

/// Returns the number of entries, `.nfs…` files included. The client removes these some time after the last close, so this waits
/// until there are `expected`.
fn left_over(directory: &Path, expected: usize) -> Checked {
    let mut count = 0;
    for _ in 0..LEFT_OVER_TRIES {
        count = fs::read_dir(directory).map_err(told(directory))?.count();
        if count == expected {
            return Ok(());
        }
        std::thread::sleep(LEFT_OVER_PAUSE);
    }
    same("entries some time after the last close", expected, count)
}

fn removed_while_open(directory: &Path) -> Checked {
    let path = directory.join("file");
    let mut file = create(&path, "before")?;
    file.sync_all().map_err(told(&path))?;
    fs::remove_file(&path).map_err(told(&path))?;
    same("visible names", Vec::<String>::new(), visible(directory)?)?;
    file.write_all(b" and after").map_err(told("write to the removed file"))?;
    file.sync_all().map_err(told("fsync of the removed file"))?;
    same("text", "before and after".to_owned(), text_of(&mut file)?)?;
    file.set_len(6).map_err(told("truncate"))?;
    same("size", 6, file.metadata().map_err(told("fstat"))?.size())?;
    drop(file);
    left_over(directory, 0)
}

fn renamed_while_open(directory: &Path) -> Checked {
    let (old, new) = (directory.join("old"), directory.join("new"));
    let mut file = create(&old, "before")?;
    fs::rename(&old, &new).map_err(told(&new))?;
    file.write_all(b" and after").map_err(told("write to the renamed file"))?;
    file.sync_all().map_err(told("fsync"))?;
    same(
        "text by the new name",
        "before and after".to_owned(),
        fs::read_to_string(&new).map_err(told(&new))?,
    )?;
    same("the old name exists", false, old.exists())?;
    let (by_file, by_name) =
        (file.metadata().map_err(told("fstat"))?.ino(), fs::metadata(&new).map_err(told(&new))?.ino());
    same("inode number", by_file, by_name)
}

fn replaced_while_open(directory: &Path) -> Checked {
    let (victim, newcomer) = (directory.join("victim"), directory.join("newcomer"));
    let mut open = create(&victim, "the old one")?;
    open.sync_all().map_err(told("fsync"))?;
    drop(create(&newcomer, "the new one")?);
    fs::rename(&newcomer, &victim).map_err(told(&victim))?;
    same("visible names", vec!["victim".to_owned()], visible(directory)?)?;
    same("text by name", "the new one".to_owned(), fs::read_to_string(&victim).map_err(told(&victim))?)?;
    open.write_all(b", still there").map_err(told("write to the replaced file"))?;
    same("text of the open file", "the old one, still there".to_owned(), text_of(&mut open)?)?;
    drop(open);
    same(
        "text by name at last",
        "the new one".to_owned(),
        fs::read_to_string(&victim).map_err(told(&victim))?,
    )?;
    left_over(directory, 1)
}

fn removed_and_made_again(directory: &Path) -> Checked {
    let path = directory.join("file");
    let mut first = create(&path, "first")?;
    fs::remove_file(&path).map_err(told(&path))?;
    let mut second = create(&path, "second")?;
    second.sync_all().map_err(told("fsync"))?;
    same("text of the first", "first".to_owned(), text_of(&mut first)?)?;
    same("text of the second", "second".to_owned(), text_of(&mut second)?)?;
    let inodes =
        (first.metadata().map_err(told("fstat"))?.ino(), second.metadata().map_err(told("fstat"))?.ino());
    same("both are the same file", false, inodes.0 == inodes.1)
}

fn directory_of_an_open_file(directory: &Path) -> Checked {
    let (old, new) = (directory.join("old"), directory.join("new"));
    fs::create_dir(&old).map_err(told(&old))?;
    let mut file = create(&old.join("file"), "before")?;
    fs::rename(&old, &new).map_err(told(&new))?;
    file.write_all(b" and after").map_err(told("write"))?;
    file.sync_all().map_err(told("fsync"))?;
    let moved = new.join("file");
    same("text", "before and after".to_owned(), fs::read_to_string(&moved).map_err(told(&moved))?)?;
    drop(file);
    fs::remove_file(&moved).map_err(told(&moved))?;
    fs::remove_dir(&new).map_err(told(&new))
}
