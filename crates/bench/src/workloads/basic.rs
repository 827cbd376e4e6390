//! The operations of Connectathon's Basic tests, with their counts (1994, Table 1 and Figure 4).
//!
//! Each thread works in a directory of its own. Counts that a test prints for two operations together are split.

use super::files::{Pieces, pattern, read_whole};
use super::{Parameters, Workload};
use crate::runner::{Ends, Meter, Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const CREATE: Op = Op::metadata("create");
const MKDIR: Op = Op::metadata("mkdir");
const REMOVE: Op = Op::metadata("remove");
const RMDIR: Op = Op::metadata("rmdir");
const STAT: Op = Op::metadata("stat");
const CHMOD: Op = Op::metadata("chmod");
const WRITE: Op = Op::write("write-file");
const READ: Op = Op::read("read-file");
const LIST: Op = Op::metadata("list");
const RENAME: Op = Op::metadata("rename");
const LINK: Op = Op::metadata("link");
const SYMLINK: Op = Op::metadata("symlink");
const READLINK: Op = Op::metadata("readlink");
const STATFS: Op = Op::metadata("statfs");

/// Levels of test 1's tree, and files and directories of each of its directories: 155 files in 62 directories.
const LEVELS: u32 = 5;
const FILES_OF_DIRECTORY: u32 = 5;
const DIRECTORIES_OF_DIRECTORY: u32 = 2;
/// Test 3: pairs of getwd, which asks the server for nothing here, and stat.
const STATS: u32 = 250;
/// Files of tests 4, 7 and 8, and how often each is worked on.
const FILES: u32 = 10;
const CHMODS: u32 = 50;
const RENAMES: u32 = 10;
const SYMLINKS: u32 = 20;
/// Test 5: size of the file and of one call, in bytes, and repetitions.
const FILE_BYTES: u64 = 1 << 20;
const CALL_BYTES: u64 = 8 << 10;
const REPEATS: u32 = 10;
/// Test 6: files of the directory that is listed.
const LISTED: u32 = 200;
/// Test 9.
const STATFSES: u32 = 1500;

/// `basic`.
pub struct Basic;

impl Workload for Basic {
    const ENDS: Ends = Ends::Work;

    fn new(_: &Parameters<'_>) -> Self {
        Self
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        for thread in 0..who.threads {
            files.make_directory(&directory(Who { thread, ..who })).await?;
        }
        Ok(())
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let files = task.files.enter(&directory(task.who)).await?;
        task.ready().await;
        let meter = &task.meter;
        create_and_remove_tree(&files, meter).await?;
        for _ in 0..STATS {
            meter.time(STAT, files.stat("")).await?;
        }
        change_modes(&files, meter).await?;
        write_and_read(&files, meter).await?;
        list_and_remove(&files, meter).await?;
        rename_and_link(&files, meter).await?;
        symlink_and_readlink(&files, meter).await?;
        for _ in 0..STATFSES {
            meter.time(STATFS, files.file_system_status()).await?;
        }
        Ok(())
    }
}

fn directory(who: Who) -> String {
    format!("thread-{}-{}", who.client + 1, who.thread + 1)
}

async fn create<F: Files>(files: &F, meter: &Meter, path: &str) -> Result<(), Fault> {
    let create = async { files.open(path, How::CREATE).await?.close().await };
    meter.time(CREATE, create).await
}

/// Tests 1 and 2.
async fn create_and_remove_tree<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    let directories = tree();
    for (directory, has_files) in &directories {
        if !directory.is_empty() {
            meter.time(MKDIR, files.make_directory(directory)).await?;
        }
        for file in files_of(directory).filter(|_| *has_files) {
            create(files, meter, &file).await?;
        }
    }
    for (directory, has_files) in directories.iter().rev() {
        for file in files_of(directory).filter(|_| *has_files) {
            meter.time(REMOVE, files.remove(&file)).await?;
        }
        if !directory.is_empty() {
            meter.time(RMDIR, files.remove_directory(directory)).await?;
        }
    }
    Ok(())
}

/// Returns the directories of test 1, each after its parent, and whether they have files: those of the last level are empty.
fn tree() -> Vec<(String, bool)> {
    let mut all = vec![(String::new(), true)];
    let mut level = vec![String::new()];
    for number in 1..=LEVELS {
        let below = |parent: &String| {
            let separator = if parent.is_empty() { "" } else { "/" };
            let below =
                (0..DIRECTORIES_OF_DIRECTORY).map(|number| format!("{parent}{separator}dir.{number}"));
            below.collect::<Vec<_>>()
        };
        level = level.iter().flat_map(below).collect();
        all.extend(level.iter().map(|path| (path.clone(), number < LEVELS)));
    }
    all
}

fn files_of(directory: &str) -> impl Iterator<Item = String> {
    let separator = if directory.is_empty() { "" } else { "/" };
    (0..FILES_OF_DIRECTORY).map(move |number| format!("{directory}{separator}file.{number}"))
}

/// Test 4.
async fn change_modes<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    for file in 0..FILES {
        create(files, meter, &format!("file.{file}")).await?;
    }
    for _ in 0..CHMODS {
        for path in (0..FILES).map(|file| format!("file.{file}")) {
            for mode in [0, 0o666] {
                meter.time(CHMOD, files.set_mode(&path, mode)).await?;
                meter.time(STAT, files.stat(&path)).await?;
            }
        }
    }
    remove_files(files, meter).await
}

async fn remove_files<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    for file in 0..FILES {
        meter.time(REMOVE, files.remove(&format!("file.{file}"))).await?;
    }
    Ok(())
}

/// Test 5.
async fn write_and_read<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    let data = pattern(0, FILE_BYTES);
    for _ in 0..REPEATS {
        let write = async {
            let file = files.open("bigfile", How::CREATE).await?;
            let mut written = 0;
            while written < FILE_BYTES {
                let call = data.slice(written as usize..(written + CALL_BYTES).min(FILE_BYTES) as usize);
                written += file.write(written, call).await? as u64;
            }
            file.close().await.map(|()| written)
        };
        meter.transfer(WRITE, FILE_BYTES, write).await?;
    }
    let mut pieces = Pieces::default();
    for _ in 0..REPEATS {
        let read = async {
            let file = files.open("bigfile", How::READ).await?;
            let read = read_whole(&file, FILE_BYTES, CALL_BYTES, &mut pieces).await?;
            file.close().await.map(|()| read)
        };
        meter.transfer(READ, FILE_BYTES, read).await?;
        pieces.check(meter)?;
    }
    meter.time(REMOVE, files.remove("bigfile")).await
}

/// Test 6: the names of the directory are listed before each removal, so that 20,500 entries are read, `.` and `..` included.
async fn list_and_remove<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    for file in 0..LISTED {
        create(files, meter, &format!("listed.{file}")).await?;
    }
    for file in 0..LISTED {
        let entries = meter.time(LIST, files.list_names("")).await?.len();
        if entries != (LISTED - file) as usize {
            return Err(Fault::new(format!("list: {entries} entries of {}", LISTED - file)));
        }
        meter.time(REMOVE, files.remove(&format!("listed.{file}"))).await?;
    }
    Ok(())
}

/// Test 7.
async fn rename_and_link<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    for file in 0..FILES {
        create(files, meter, &format!("file.{file}")).await?;
    }
    for _ in 0..RENAMES {
        for file in 0..FILES {
            let (old, new) = (format!("file.{file}"), format!("newfile.{file}"));
            meter.time(RENAME, files.rename(&old, &new)).await?;
            meter.time(STAT, files.stat(&new)).await?;
            meter.time(LINK, files.link(&new, &old)).await?;
            meter.time(STAT, files.stat(&old)).await?;
            meter.time(REMOVE, files.remove(&new)).await?;
        }
    }
    remove_files(files, meter).await
}

/// Test 8.
async fn symlink_and_readlink<F: Files>(files: &F, meter: &Meter) -> Result<(), Fault> {
    for _ in 0..SYMLINKS {
        for path in (0..FILES).map(|file| format!("symlink.{file}")) {
            meter.time(SYMLINK, files.symlink("/this/is/a/symlink", &path)).await?;
            meter.time(READLINK, files.read_link(&path)).await?;
            meter.time(REMOVE, files.remove(&path)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test 1's own message: "created 155 files 62 directories 5 levels deep".
    #[test]
    fn tree_is_that_of_the_test() {
        let directories = tree();
        assert_eq!(directories.len() - 1, 62);
        let with_files = directories.iter().filter(|(_, has_files)| *has_files);
        assert_eq!(with_files.flat_map(|(directory, _)| files_of(directory)).count(), 155);
    }
}
