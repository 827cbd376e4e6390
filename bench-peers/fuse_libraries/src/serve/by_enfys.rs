//! The file system by enfys-fuse.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuse::mount::{Options, mount};
use fuse::{
    Attributes, Caller, Config, Copied, Data, Entry, Errno, FileHandle, Filesystem, Getattr,
    GrantedAttributes, Lookup, NodeId, Open, OpenFlags, Opened, Read, Release, Reply, Session, Write,
};

use crate::Outcome;
use crate::files::{FILE_SIZE, Files, REQUEST_MAX, ROOT};

#[derive(Default)]
struct Served {
    files: Files,
    blocked: Mutex<Vec<Reply<Data>>>,
}

fn attributes(node: NodeId) -> Attributes {
    let (mode, size, links) = if node.0 == ROOT { (0o040_755, 0, 2) } else { (0o100_644, FILE_SIZE, 1) };
    Attributes { inode: node.0, mode, size, links, block_size: 4096, ..Attributes::default() }
}

impl Filesystem for Served {
    fn lookup(&self, _: Caller, request: Lookup, reply: Reply<Entry>) {
        let Some(node) = Files::find(&request.name) else { return reply.error(Errno::NOENT) };
        let node = NodeId(node);
        let _ = reply.ok(Entry {
            node,
            generation: 0,
            attributes: attributes(node),
            entry_timeout: Duration::ZERO,
            attribute_timeout: Duration::ZERO,
        });
    }

    fn getattr(&self, _: Caller, request: Getattr, reply: Reply<GrantedAttributes>) {
        self.files.got_attributes();
        let _ = reply.ok(GrantedAttributes { attributes: attributes(request.node), timeout: Duration::ZERO });
    }

    fn open(&self, _: Caller, _: Open, reply: Reply<Opened>) {
        let _ = reply.ok(Opened { handle: FileHandle(0), flags: OpenFlags::DIRECT_IO });
    }

    fn release(&self, _: Caller, _: Release, reply: Reply<()>) {
        let _ = reply.ok(());
    }

    fn read(&self, _: Caller, request: Read, reply: Reply<Data>) {
        match self.files.read(request.node.0, request.offset, request.size) {
            Some(data) => drop(reply.ok(data.into())),
            None => self.blocked.lock().expect("no panic").push(reply),
        }
    }

    fn write(&self, _: Caller, request: Write, reply: Reply<Copied>) {
        self.files.wrote(request.data.len());
        let _ = reply.ok(Copied(request.data.len() as u64));
    }
}

pub fn serve(directory: &Path, workers: NonZeroUsize) -> Outcome<()> {
    let options = Options { source: "enfys".to_owned(), ..Options::default() };
    let device = mount(directory, &options)?;
    let session = Session::new(device, &Config { workers, max_write: REQUEST_MAX, ..Config::default() })?;
    session.serve(Arc::new(Served::default()))?.wait()?;
    Ok(())
}
