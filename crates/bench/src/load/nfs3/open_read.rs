//! A program's open, read and close of a small file in version 3: LOOKUP, ACCESS, READ; and the same system calls without a
//! protocol.

use protocol::nfs3::{
    Access, AccessArgs, AccessResult, DirOpArgs, FileHandle, LookupArgs, LookupResult, Proc, ReadArgs,
    ReadResult,
};
use xdr::{Decode, Encode};

use super::{request, success};
use crate::floor::OPEN_READ_CLOSE;
use crate::load::replies::Reply;
use crate::load::small_files::{self, NameField, Walk};
use crate::load::template::{Template, patch};
use crate::load::workload::{Outcome, Workload};
use crate::operation::SMALL_BYTES;

/// Room for a READ reply's head before and after its data.
const REPLY_BYTES_MAX: usize = SMALL_BYTES as usize + 1024;

fn place(dir: FileHandle, index: u32) -> DirOpArgs {
    DirOpArgs { dir, name: small_files::name(index) }
}

/// Checks that all of the small file `index` was read.
fn check_read(index: u32, reply: &Reply<'_>) -> Result<(), String> {
    let read = success(reply.results::<ReadResult>()?)?;
    if !read.eof || read.count != SMALL_BYTES {
        return Err(format!("{} bytes, end of file: {}", read.count, read.eof));
    }
    small_files::check_data(index, read.data.bytes())
}

/// A call about a file that was looked up before.
struct ByHandle {
    template: Template,
    handle_at: usize,
}

impl ByHandle {
    /// Returns a call for handles of the length of `like`. Encodings with two different handles must differ from the first byte
    /// of the handle on.
    fn new(like: FileHandle, render: impl Fn(FileHandle) -> Template) -> Self {
        let filled = |byte| FileHandle::new(&vec![byte; like.len()]).expect("the length of another handle");
        let template = render(filled(0));
        let handle_at = Template::field(&template, &render(filled(u8::MAX)));
        Self { template, handle_at }
    }

    fn append(&self, handle: FileHandle, xid: u32, out: &mut Vec<u8>) {
        let start = self.template.append(xid, out);
        patch(out, start + self.handle_at, &handle);
    }
}

/// The next call of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Lookup,
    Access,
    Read,
}

/// LOOKUP of the name, ACCESS as for open(2), READ of the whole file; the three count as one operation.
pub(super) struct OpenRead {
    lookup: Template,
    name: NameField,
    access: ByHandle,
    read: ByHandle,
    walk: Walk,
    /// Each slot's file: its number, its handle, and the step that is next.
    slots: Vec<(u32, FileHandle, Step)>,
}

impl OpenRead {
    /// Returns the workload in `directory`, where the handle of one file is `like`.
    pub(super) fn new(directory: FileHandle, like: FileHandle, connection: u32, depth: usize) -> Self {
        let lookup = |index| request(Proc::LOOKUP, &LookupArgs { what: place(directory, index) });
        let access = |object| request(Proc::ACCESS, &AccessArgs { object, access: Access::READ });
        let read = |file| request(Proc::READ, &ReadArgs { file, offset: 0, count: SMALL_BYTES });
        Self {
            lookup: lookup(0),
            name: NameField::find(lookup),
            access: ByHandle::new(like, access),
            read: ByHandle::new(like, read),
            walk: Walk::of_connection(connection),
            slots: vec![(0, like, Step::Lookup); depth],
        }
    }
}

impl Workload for OpenRead {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let (index, handle, step) = &mut self.slots[slot];
        match step {
            Step::Lookup => {
                *index = self.walk.next();
                let start = self.lookup.append(xid, out);
                self.name.patch(out, start, *index);
            }
            Step::Access => self.access.append(*handle, xid, out),
            Step::Read => self.read.append(*handle, xid, out),
        }
    }

    fn reply_head_bytes(&self) -> usize {
        REPLY_BYTES_MAX
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let (index, handle, step) = &mut self.slots[slot];
        match step {
            Step::Lookup => {
                let found = success(reply.results::<LookupResult>()?)?.object;
                if found.len() != handle.len() {
                    return Err("handles of different lengths".into());
                }
                (*handle, *step) = (found, Step::Access);
                Ok(Outcome::Continues)
            }
            Step::Access => {
                let granted = success(reply.results::<AccessResult>()?)?.access;
                if !granted.contains(Access::READ) {
                    return Err(format!("only {granted:?} is granted"));
                }
                *step = Step::Read;
                Ok(Outcome::Continues)
            }
            Step::Read => {
                check_read(*index, reply)?;
                *step = Step::Lookup;
                Ok(Outcome::Finished)
            }
        }
    }
}

/// The floor's own call: `openat`, `fstat`, `pread` and `close` of a small file.
pub(super) struct Bare {
    template: Template,
    name: NameField,
    walk: Walk,
    asked: Vec<u32>,
}

/// Arguments of that call.
#[derive(Encode, Decode)]
struct BareArgs {
    place: DirOpArgs,
    count: u32,
}

impl Bare {
    /// Returns the workload in `directory`.
    pub(super) fn new(directory: FileHandle, connection: u32, depth: usize) -> Self {
        let render = |index| {
            request(OPEN_READ_CLOSE, &BareArgs { place: place(directory, index), count: SMALL_BYTES })
        };
        Self {
            template: render(0),
            name: NameField::find(render),
            walk: Walk::of_connection(connection),
            asked: vec![0; depth],
        }
    }
}

impl Workload for Bare {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.asked[slot] = self.walk.next();
        let start = self.template.append(xid, out);
        self.name.patch(out, start, self.asked[slot]);
    }

    fn reply_head_bytes(&self) -> usize {
        REPLY_BYTES_MAX
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        check_read(self.asked[slot], reply).map(|()| Outcome::Finished)
    }
}
