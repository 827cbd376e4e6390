//! Many threads that read one file at the same time, around the cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use crate::{Checked, told};

const BLOCK_BYTES: usize = 4096;

/// Reads all of `path` block by block with `readers` threads.
pub(crate) fn at_once(path: &Path, readers: usize) -> Checked {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).map_err(told(path))?;
    let start = Barrier::new(readers);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    read(&file).map_err(told(path))
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| reader.join().unwrap_or(Err("a reader panicked".into())))
    })
}

fn read(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut block = vec![0; BLOCK_BYTES];
    (0..length).step_by(BLOCK_BYTES).try_for_each(|offset| file.read_exact_at(&mut block, offset))
}
