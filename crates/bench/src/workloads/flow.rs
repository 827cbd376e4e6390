//! Operations of Filebench's loops, each counted separately.

use super::Parameters;
use super::file_set::{FileSet, root};
use super::files::{Pieces, pattern, read_whole};
use crate::runner::{Meter, Op, Task};
use crate::targets::{Fault, Files, How, OpenFile};

const CREATE: Op = Op::metadata("create");
const OPEN: Op = Op::metadata("open");
const CLOSE: Op = Op::metadata("close");
const READ: Op = Op::read("read-file");
const WRITE: Op = Op::write("write-file");
const APPEND: Op = Op::write("append");
const FSYNC: Op = Op::metadata("fsync");
const DELETE: Op = Op::metadata("delete");
const STAT: Op = Op::metadata("stat");

/// Files and sizes in bytes of a loop.
pub(super) struct FlowSettings {
    pub(super) set: FileSet,
    pub(super) io_bytes: u64,
    pub(super) append_bytes: u64,
}

impl FlowSettings {
    /// Reads `files`, `mean-size`, `directory-width`, `io-size` and `append`; `preallocated` is the part of the files that exists
    /// at the start.
    pub(super) fn new(parameters: &Parameters<'_>, preallocated: f64) -> Self {
        let (files, mean) = (parameters.count("files"), parameters.size("mean-size"));
        Self {
            set: FileSet::new(files, mean, parameters.count("directory-width"), preallocated),
            io_bytes: parameters.size("io-size"),
            append_bytes: parameters.size("append"),
        }
    }
}

/// The state of a thread.
pub(super) struct Flow<'t, F: Files> {
    files: F,
    meter: &'t Meter,
    pieces: Pieces,
    io_bytes: u64,
    append_bytes: u64,
}

impl<'t, F: Files> Flow<'t, F> {
    /// Enters the directory of the thread's client.
    pub(super) async fn new(task: &'t Task<F>, settings: &FlowSettings) -> Result<Self, Fault> {
        let files = task.files.enter(&root(task.who)).await?;
        let (append_bytes, io_bytes) = (settings.append_bytes, settings.io_bytes.max(1));
        Ok(Self { files, meter: &task.meter, pieces: Pieces::default(), io_bytes, append_bytes })
    }

    pub(super) async fn create(&self, path: &str) -> Result<F::File, Fault> {
        self.meter.time(CREATE, self.files.open(path, How { truncate: false, ..How::CREATE })).await
    }

    pub(super) async fn open(&self, path: &str, how: How) -> Result<F::File, Fault> {
        self.meter.time(OPEN, self.files.open(path, how)).await
    }

    pub(super) async fn close(&self, file: F::File) -> Result<(), Fault> {
        self.meter.time(CLOSE, file.close()).await
    }

    /// Writes a file of this size from the start.
    pub(super) async fn write_whole(&self, file: &F::File, size: u64) -> Result<(), Fault> {
        let data = pattern(0, size);
        let write = async {
            let mut offset = 0;
            while offset < size {
                let length = self.io_bytes.min(size - offset);
                let piece = data.slice(offset as usize..(offset + length) as usize);
                let written = file.write(offset, piece).await? as u64;
                offset += written;
                if written < length {
                    break;
                }
            }
            Ok(offset)
        };
        self.meter.transfer(WRITE, size, write).await.map(|_| ())
    }

    /// Appends to a file whose size is known.
    pub(super) async fn append(&self, file: &F::File, size: u64) -> Result<(), Fault> {
        let length = self.append_bytes;
        let append = pattern(size, length);
        let write = async { Ok(file.write(size, append).await? as u64) };
        self.meter.transfer(APPEND, length, write).await.map(|_| ())
    }

    /// Reads a file up to its size at the open, and compares all of it.
    pub(super) async fn read_whole(&mut self, file: &F::File) -> Result<(), Fault> {
        let size = file.size();
        let read = read_whole(file, size, self.io_bytes, &mut self.pieces);
        self.meter.transfer(READ, size, read).await?;
        self.pieces.check(self.meter)
    }

    pub(super) async fn fsync(&self, file: &F::File) -> Result<(), Fault> {
        self.meter.time(FSYNC, file.sync()).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), Fault> {
        self.meter.time(DELETE, self.files.remove(path)).await
    }

    pub(super) async fn stat(&self, path: &str) -> Result<(), Fault> {
        self.meter.time(STAT, self.files.stat(path)).await.map(|_| ())
    }
}
