//! The file system by polyfuse: it gives requests to its caller, which has to bring the threads.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use polyfuse::reply::{AttrOut, EntryOut, FileAttr, OpenOut, WriteOut};
use polyfuse::{KernelConfig, Operation, Request, Session};

use crate::Outcome;
use crate::files::{FILE_SIZE, Files, REQUEST_MAX, ROOT};

#[derive(Default)]
struct Served {
    files: Files,
    /// Whether INTERRUPT ends a request.
    eintr: bool,
    blocked: Mutex<Vec<Request>>,
}

fn fill(attributes: &mut FileAttr, node: u64) {
    let (mode, size, links) = if node == ROOT { (0o040_755, 0, 2) } else { (0o100_644, FILE_SIZE, 1) };
    attributes.ino(node);
    attributes.mode(mode);
    attributes.size(size);
    attributes.nlink(links);
    attributes.blksize(4096);
}

impl Served {
    /// Answers a request, and returns whether it is answered.
    fn answer(&self, request: &Request) -> Outcome<bool> {
        match request.operation()? {
            Operation::Lookup(lookup) => match Files::find(lookup.name().as_bytes()) {
                Some(node) => {
                    let mut entry = EntryOut::default();
                    entry.ino(node);
                    fill(entry.attr(), node);
                    request.reply(entry)?;
                }
                None => request.reply_error(libc::ENOENT)?,
            },
            Operation::Getattr(getattr) => {
                self.files.got_attributes();
                let mut reply = AttrOut::default();
                fill(reply.attr(), getattr.ino());
                request.reply(reply)?;
            }
            Operation::Open(_) => {
                let mut reply = OpenOut::default();
                reply.direct_io(true);
                request.reply(reply)?;
            }
            Operation::Read(read) => match self.files.read(read.ino(), read.offset(), read.size()) {
                Some(data) => request.reply(&data[..])?,
                None => return Ok(false),
            },
            Operation::Write(write, _) => {
                self.files.wrote(write.size() as usize);
                let mut reply = WriteOut::default();
                reply.size(write.size());
                request.reply(reply)?;
            }
            Operation::Release(_) => request.reply(())?,
            Operation::Forget(_) => {}
            Operation::Interrupt(interrupt) => self.interrupt(interrupt.unique())?,
            _ => request.reply_error(libc::ENOSYS)?,
        }
        Ok(true)
    }

    fn interrupt(&self, unique: u64) -> io::Result<()> {
        let mut blocked = self.blocked.lock().expect("no panic");
        match blocked.iter().position(|request| request.unique() == unique) {
            Some(index) if self.eintr => blocked.swap_remove(index).reply_error(libc::EINTR),
            _ => Ok(()),
        }
    }

    fn run(&self, session: &Session) -> io::Result<()> {
        while let Some(request) = session.next_request()? {
            match self.answer(&request) {
                Ok(true) => {}
                Ok(false) => self.blocked.lock().expect("no panic").push(request),
                // The request was ended by the kernel.
                Err(error) => eprintln!("polyfuse: {error}"),
            }
        }
        Ok(())
    }
}

pub fn serve(directory: &Path, workers: NonZeroUsize, eintr: bool) -> Outcome<()> {
    let mut config = KernelConfig::default();
    config.fusermount_path("/usr/bin/fusermount3").auto_unmount(false).max_write(REQUEST_MAX);
    let session = Session::mount(directory.to_owned(), config)?;
    let served = Served { eintr, ..Served::default() };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.get()).map(|_| scope.spawn(|| served.run(&session))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(())
}
