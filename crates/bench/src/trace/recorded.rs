//! Records all operations on the files of a target.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{Flags, Kind, Record};
use super::writer::TraceWriter;
use crate::result::{ClientCounters, RequestCounters};
use crate::targets::{Buffer, Fault, Files, How, OpenFile, Status};

/// The files of a target, whose operations are written into a trace if there is one. All targets of a run are of this type, so that
/// workloads are compiled once for each kind of target.
#[derive(Clone)]
pub struct Recorded<F> {
    inner: F,
    stream: Stream,
    /// The directory below that of the trace, with a slash after it; empty for that of the trace.
    prefix: String,
}

/// An open file of it.
pub struct RecordedFile<F> {
    inner: F,
    stream: Stream,
    /// Its number in the trace.
    number: u64,
}

/// A thread of a client, and where its operations are written.
#[derive(Clone)]
struct Stream {
    writer: Option<Arc<TraceWriter>>,
    client: u32,
    thread: u32,
}

impl Stream {
    /// Does an operation, and writes its record, which `complete` completes with the result.
    async fn operate<T>(
        &self,
        record: impl FnOnce() -> Record,
        work: impl Future<Output = Result<T, Fault>>,
        complete: impl FnOnce(&mut Record, &T),
    ) -> Result<T, Fault> {
        let Some(writer) = &self.writer else { return work.await };
        let (client, stream, at_us) = (self.client, self.thread, writer.now_us());
        let done = work.await;
        let took_us = writer.now_us().saturating_sub(at_us);
        let mut record = Record { client, stream, at_us, took_us, ..record() };
        match &done {
            Ok(done) => complete(&mut record, done),
            Err(fault) => record.error = Some(fault.errno.unwrap_or(libc::EIO)),
        }
        writer.add(&record);
        done
    }
}

impl<F: Files> Recorded<F> {
    /// Takes the files of a client. [`Files::for_thread`] says whose operations they are, and where the trace begins.
    #[must_use]
    pub fn new(inner: F, writer: Option<Arc<TraceWriter>>) -> Self {
        Self { inner, stream: Stream { writer, client: 0, thread: 0 }, prefix: String::new() }
    }

    fn record(&self, op: Kind, path: &str) -> Record {
        let path = format!("{}{path}", self.prefix);
        Record { path: Some(path.trim_end_matches('/').to_owned()), ..Record::new(op) }
    }

    /// Does an operation on a path whose result is not recorded.
    async fn on_path<T>(
        &self,
        record: impl FnOnce() -> Record,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        self.stream.operate(record, work, |_, _| {}).await
    }
}

fn add_status(record: &mut Record, status: &Status) {
    record.size = Some(status.size);
    record.directory = status.is_directory;
}

impl<F: Files> Files for Recorded<F> {
    type File = RecordedFile<F::File>;

    fn for_thread(&self, client: u32, thread: u32) -> Self {
        let stream = Stream { writer: self.stream.writer.clone(), client, thread };
        Self { inner: self.inner.for_thread(client, thread), stream, prefix: String::new() }
    }

    async fn enter(&self, path: &str) -> Result<Self, Fault> {
        let inner = self.inner.enter(path).await?;
        Ok(Self { inner, stream: self.stream.clone(), prefix: format!("{}{path}/", self.prefix) })
    }

    async fn open(&self, path: &str, how: How) -> Result<Self::File, Fault> {
        let number = self.stream.writer.as_ref().map_or(0, |writer| writer.new_file());
        let record = || Record { file: Some(number), how: Some(Flags(how)), ..self.record(Kind::Open, path) };
        let open = self.inner.open(path, how);
        let opened =
            self.stream.operate(record, open, |record, file| record.size = Some(file.size())).await?;
        Ok(RecordedFile { inner: opened, stream: self.stream.clone(), number })
    }

    async fn stat(&self, path: &str) -> Result<Status, Fault> {
        self.stream.operate(|| self.record(Kind::Stat, path), self.inner.stat(path), add_status).await
    }

    async fn list_names(&self, path: &str) -> Result<Vec<String>, Fault> {
        let count = |record: &mut Record, entries: &Vec<_>| record.result = Some(entries.len() as u64);
        self.stream.operate(|| self.record(Kind::Names, path), self.inner.list_names(path), count).await
    }

    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>, Fault> {
        let count = |record: &mut Record, entries: &Vec<_>| record.result = Some(entries.len() as u64);
        self.stream.operate(|| self.record(Kind::List, path), self.inner.list(path), count).await
    }

    async fn make_directory(&self, path: &str) -> Result<(), Fault> {
        self.on_path(|| self.record(Kind::Mkdir, path), self.inner.make_directory(path)).await
    }

    async fn remove_directory(&self, path: &str) -> Result<(), Fault> {
        self.on_path(|| self.record(Kind::Rmdir, path), self.inner.remove_directory(path)).await
    }

    async fn remove(&self, path: &str) -> Result<(), Fault> {
        self.on_path(|| self.record(Kind::Remove, path), self.inner.remove(path)).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), Fault> {
        let record =
            || Record { to: Some(format!("{}{to}", self.prefix)), ..self.record(Kind::Rename, from) };
        self.on_path(record, self.inner.rename(from, to)).await
    }

    async fn link(&self, from: &str, to: &str) -> Result<(), Fault> {
        let record = || Record { to: Some(format!("{}{to}", self.prefix)), ..self.record(Kind::Link, from) };
        self.on_path(record, self.inner.link(from, to)).await
    }

    async fn symlink(&self, target: &str, path: &str) -> Result<(), Fault> {
        let record = || Record { to: Some(target.to_owned()), ..self.record(Kind::Symlink, path) };
        self.on_path(record, self.inner.symlink(target, path)).await
    }

    async fn read_link(&self, path: &str) -> Result<usize, Fault> {
        self.on_path(|| self.record(Kind::Readlink, path), self.inner.read_link(path)).await
    }

    async fn set_mode(&self, path: &str, mode: u32) -> Result<(), Fault> {
        let record = || Record { mode: Some(mode), ..self.record(Kind::Chmod, path) };
        self.on_path(record, self.inner.set_mode(path, mode)).await
    }

    async fn set_size(&self, path: &str, size: u64) -> Result<(), Fault> {
        let record = || Record { length: Some(size), ..self.record(Kind::SetSize, path) };
        self.on_path(record, self.inner.set_size(path, size)).await
    }

    async fn touch(&self, path: &str) -> Result<(), Fault> {
        self.on_path(|| self.record(Kind::Touch, path), self.inner.touch(path)).await
    }

    async fn file_system_status(&self) -> Result<(), Fault> {
        self.on_path(|| self.record(Kind::Statfs, ""), self.inner.file_system_status()).await
    }

    async fn sync_all(&self) -> Result<(), Fault> {
        self.inner.sync_all().await
    }

    fn local_path(&self, path: &str) -> Option<PathBuf> {
        if self.stream.writer.is_some() { None } else { self.inner.local_path(path) }
    }

    fn traffic(&self) -> BTreeMap<String, RequestCounters> {
        self.inner.traffic()
    }

    fn counters(&self) -> Option<ClientCounters> {
        self.inner.counters()
    }

    async fn leave(self) {
        self.inner.leave().await;
    }
}

impl<F: OpenFile> RecordedFile<F> {
    fn record(&self, op: Kind) -> Record {
        Record { file: Some(self.number), ..Record::new(op) }
    }

    fn transfer(&self, op: Kind, offset: u64, length: usize) -> Record {
        Record { offset: Some(offset), length: Some(length as u64), ..self.record(op) }
    }
}

impl<F> RecordedFile<F> {
    /// Returns the record of a lock; one without length has no end.
    fn bytes(&self, op: Kind, bytes: &Range<u64>) -> Record {
        let length = (bytes.end != u64::MAX).then(|| bytes.end - bytes.start);
        Record { file: Some(self.number), offset: Some(bytes.start), length, ..Record::new(op) }
    }
}

fn add_count(record: &mut Record, count: &usize) {
    record.result = Some(*count as u64);
}

impl<F: OpenFile> OpenFile for RecordedFile<F> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    async fn read(&self, offset: u64, count: usize, buffer: &mut Buffer) -> Result<usize, Fault> {
        let record = || self.transfer(Kind::Read, offset, count);
        self.stream.operate(record, self.inner.read(offset, count, buffer), add_count).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<usize, Fault> {
        let length = data.len();
        let record = || self.transfer(Kind::Write, offset, length);
        self.stream.operate(record, self.inner.write(offset, data), add_count).await
    }

    async fn sync(&self) -> Result<(), Fault> {
        self.stream.operate(|| self.record(Kind::Sync), self.inner.sync(), |_, ()| {}).await
    }

    async fn lock_shared(&self) -> Result<(), Fault> {
        self.stream.operate(|| self.record(Kind::Lock), self.inner.lock_shared(), |_, ()| {}).await
    }

    async fn unlock(&self) -> Result<(), Fault> {
        self.stream.operate(|| self.record(Kind::Unlock), self.inner.unlock(), |_, ()| {}).await
    }

    async fn try_lock_bytes(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool, Fault> {
        let how = Some(Flags(if exclusive { How::WRITE } else { How::READ }));
        let record = || Record { how, ..self.bytes(Kind::Lock, &bytes) };
        let lock = self.inner.try_lock_bytes(bytes.clone(), exclusive);
        let complete = |record: &mut Record, is_granted: &bool| {
            record.error = (!is_granted).then_some(libc::EAGAIN);
        };
        self.stream.operate(record, lock, complete).await
    }

    async fn unlock_bytes(&self, bytes: Range<u64>) -> Result<(), Fault> {
        let record = || self.bytes(Kind::Unlock, &bytes);
        self.stream.operate(record, self.inner.unlock_bytes(bytes.clone()), |_, ()| {}).await
    }

    async fn close(self) -> Result<(), Fault> {
        let Self { inner, stream, number } = self;
        let record = || Record { file: Some(number), ..Record::new(Kind::Close) };
        stream.operate(record, inner.close(), |_, ()| {}).await
    }
}
