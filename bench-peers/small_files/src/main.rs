//! Copies a tree of small files to an NFS server and back with the crate nfs-rs, lists it and removes it, and prints the seconds of
//! each: a comparison for `tests/kernel/timings/longlink.sh`.
//!
//! `small-files-peer 'nfs://127.0.0.1/export?version=4.1&nfsport=2049' TREE`; TREE has directories of files.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use nfs_rs::{Mount, OPEN_READ, parse_url_and_mount, write_all};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Operations in flight together.
const IN_FLIGHT: usize = 64;
const NAME: &str = "small-files-peer";

/// A file of the tree: its directory's number, its name, its data.
struct File {
    directory: usize,
    name: String,
    data: Bytes,
}

fn read_tree(tree: &Path) -> Outcome<(Vec<String>, Vec<File>)> {
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for directory in fs::read_dir(tree)? {
        let directory = directory?;
        for file in fs::read_dir(directory.path())? {
            let file = file?;
            let name = file.file_name().into_string().map_err(|_| "a name is not UTF-8")?;
            let data = fs::read(file.path())?.into();
            files.push(File { directory: directories.len(), name, data });
        }
        directories.push(directory.file_name().into_string().map_err(|_| "a name is not UTF-8")?);
    }
    Ok((directories, files))
}

/// Runs an operation for each item, many at a time.
async fn each<T, R, F: Future<Output = nfs_rs::Result<R>>>(
    items: impl IntoIterator<Item = T>,
    operation: impl Fn(T) -> F,
) -> nfs_rs::Result<Vec<R>> {
    stream::iter(items).map(operation).buffered(IN_FLIGHT).try_collect().await
}

async fn write(mount: &dyn Mount, directory: Bytes, file: &File) -> nfs_rs::Result<()> {
    let created = mount.create(directory, &file.name, Some(0o644)).await?;
    write_all(mount, created.fh.clone(), 0, file.data.clone()).await?;
    mount.commit(created.fh.clone(), 0, 0).await?;
    mount.close(created.fh).await
}

async fn read(mount: &dyn Mount, directory: Bytes, file: &File) -> nfs_rs::Result<bool> {
    let opened = mount.open(directory, &file.name, OPEN_READ).await?;
    let data = mount.read(opened.fh.clone(), 0, 1 << 16).await?;
    mount.close(opened.fh).await?;
    Ok(data == file.data)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let (Some(url), Some(tree)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: small-files-peer URL TREE".into());
    };
    let (names, files) = read_tree(Path::new(&tree))?;

    let started = Instant::now();
    let mount = parse_url_and_mount(&url).await?;
    let mount: &dyn Mount = &*mount;
    let root = mount.lookup_path(".").await?.fh;
    let top = mount.mkdir(root.clone(), NAME, 0o755).await?.fh;
    let made = each(&names, |name| mount.mkdir(top.clone(), name, 0o755)).await?;
    each(&files, |file| write(mount, made[file.directory].fh.clone(), file)).await?;
    println!("up {:.3}", started.elapsed().as_secs_f64());

    let started = Instant::now();
    let same = each(&files, |file| read(mount, made[file.directory].fh.clone(), file)).await?;
    println!("down {:.3}", started.elapsed().as_secs_f64());
    if same.contains(&false) {
        return Err("a file has other data".into());
    }

    let started = Instant::now();
    let list = async |directory: Bytes| {
        let entries: Vec<_> = mount.readdirplus(directory).await.try_collect().await?;
        nfs_rs::Result::Ok(entries.len())
    };
    let listed = each(&made, |directory| list(directory.fh.clone())).await?;
    println!("find {:.3}", started.elapsed().as_secs_f64());
    if listed.iter().sum::<usize>() < files.len() {
        return Err("files are missing".into());
    }

    let started = Instant::now();
    each(&files, |file| mount.remove(made[file.directory].fh.clone(), &file.name)).await?;
    each(&names, |name| mount.rmdir(top.clone(), name)).await?;
    mount.rmdir(root, NAME).await?;
    println!("rm {:.3}", started.elapsed().as_secs_f64());
    mount.umount().await?;
    Ok(())
}
