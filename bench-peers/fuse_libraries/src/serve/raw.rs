//! GETATTR without a library: the least that a FUSE process does for a request, waiting by read(2) or by poll(2). The mount, INIT and
//! the cloned descriptors are those of enfys-fuse.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use fuse::mount::{Options, mount};
use fuse::{Config, Session};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::Outcome;
use crate::files::{FILE_SIZE, Files, REQUEST_MAX, ROOT};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
/// Bytes of `fuse_in_header`.
const HEADER: usize = 40;

/// Fields of a structure in the machine's byte order.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn words(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn longs(mut self, longs: &[u64]) -> Self {
        self.0.extend(longs.iter().flat_map(|long| long.to_ne_bytes()));
        self
    }

    /// `fuse_attr`.
    fn attributes(self, node: u64) -> Self {
        let (mode, size, links) = if node == ROOT { (0o040_755, 0, 2) } else { (0o100_644, FILE_SIZE, 1) };
        self.longs(&[node, size, 0, 0, 0, 0]).words(&[0, 0, 0, mode, links, 0, 0, 0, 4096, 0])
    }
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

/// Returns the body of a reply, or an error; `None` if the request has no reply.
fn answer(files: &Files, request: &[u8]) -> Option<Result<Fields, Errno>> {
    let opcode = u32::from_ne_bytes(request[4..8].try_into().expect("four bytes"));
    let node = long(request, 16);
    let body = match opcode {
        FORGET | BATCH_FORGET | INTERRUPT => return None,
        LOOKUP => {
            let name = request[HEADER..].split(|byte| *byte == 0).next().unwrap_or_default();
            let Some(found) = Files::find(name) else { return Some(Err(Errno::NOENT)) };
            Fields::default().longs(&[found, 0, 0, 0]).words(&[0, 0]).attributes(found)
        }
        GETATTR => {
            files.got_attributes();
            Fields::default().longs(&[0]).words(&[0, 0]).attributes(node)
        }
        // FOPEN_DIRECT_IO
        OPEN => Fields::default().longs(&[0]).words(&[1, 0]),
        READ => {
            let size = u32::from_ne_bytes(request[HEADER + 16..HEADER + 20].try_into().expect("four bytes"));
            let data = files.read(node, long(request, HEADER + 8), size);
            return Some(data.map(|data| Fields(data.into())).ok_or(Errno::OPNOTSUPP));
        }
        _ => return Some(Err(Errno::NOSYS)),
    };
    Some(Ok(body))
}

fn run(mut device: &File, files: &Files, polls: bool) -> io::Result<()> {
    let mut buffer = vec![0; REQUEST_MAX as usize + 4096];
    loop {
        if polls {
            poll(&mut [PollFd::new(device, PollFlags::IN)], None)?;
        }
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            Err(error) => return Err(error),
        };
        let request = &buffer[..length];
        let Some(result) = answer(files, request) else { continue };
        let (error, body) = match result {
            Ok(Fields(body)) => (0, body),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let reply = Fields::default()
            .words(&[16 + body.len() as u32, error.cast_unsigned()])
            .longs(&[long(request, 8)]);
        let written = device.write_vectored(&[io::IoSlice::new(&reply.0), io::IoSlice::new(&body)]);
        written.map(drop)?;
    }
}

pub fn serve(directory: &Path, workers: NonZeroUsize, polls: bool) -> Outcome<()> {
    let options = Options { source: "raw".to_owned(), ..Options::default() };
    let device = mount(directory, &options)?;
    // Kept, but not served: its descriptors are those below.
    let session = Session::new(device, &Config { workers, max_write: REQUEST_MAX, ..Config::default() })?;
    let devices: Vec<File> = session.duplicate_devices()?.into_iter().map(File::from).collect();
    if polls {
        for device in &devices {
            fcntl_setfl(device, fcntl_getfl(device)? | OFlags::NONBLOCK)?;
        }
    }
    let files = Files::default();
    thread::scope(|scope| {
        let threads: Vec<_> =
            devices.iter().map(|device| scope.spawn(|| run(device, &files, polls))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    drop(session);
    Ok(())
}
