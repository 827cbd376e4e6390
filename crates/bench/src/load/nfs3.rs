//! NFSv3 requests and the checks of their replies.

use std::net::SocketAddr;

use bytes::Bytes;
use xdr::{Reader, Writer};

use super::caller::Caller;
use super::replies::Reply;
use super::template::{Program, Raw, Template, patch};
use super::workload::{Offsets, Outcome, Workload, Xids};
use crate::error::LoadError;
use crate::layout;
use crate::operation::Operation;

pub(super) const NFS3: Program = Program { number: 100_003, version: 3 };
const MOUNT3: Program = Program { number: 100_005, version: 3 };

pub(super) const NFSPROC3_NULL: u32 = 0;
const NFSPROC3_GETATTR: u32 = 1;
const NFSPROC3_LOOKUP: u32 = 3;
const NFSPROC3_ACCESS: u32 = 4;
const NFSPROC3_READ: u32 = 6;
const NFSPROC3_WRITE: u32 = 7;
const NFSPROC3_CREATE: u32 = 8;
const NFSPROC3_REMOVE: u32 = 12;
const MOUNTPROC3_MNT: u32 = 1;

/// RFC 1813 §2.6: fattr3 is of fixed size, 84 bytes.
const FATTR3_BYTES: usize = 84;
/// READ | LOOKUP | MODIFY | EXTEND: what uid 0 certainly has on a regular file, LOOKUP apart.
const ACCESS_ASKED: u32 = 0x0d;

/// File handles found at setup, as the server gave them.
#[derive(Clone, Debug)]
pub(crate) struct Handles {
    directory: Vec<u8>,
    churn: Vec<u8>,
    read: Vec<u8>,
    write: Vec<u8>,
}

impl Handles {
    /// Mounts `export` at `mount` and looks everything up at `server`.
    pub(crate) async fn find(
        server: SocketAddr,
        mount: SocketAddr,
        export: &str,
        xids: &Xids,
    ) -> Result<Self, LoadError> {
        let root = mnt(mount, export, xids).await?;
        let mut caller = Caller::connect(server).await?;
        let directory = lookup(&mut caller, &root, layout::DIRECTORY, xids).await?;
        let churn = lookup(&mut caller, &directory, layout::CHURN_DIRECTORY, xids).await?;
        let read = lookup(&mut caller, &directory, layout::READ_FILE, xids).await?;
        let write = lookup(&mut caller, &directory, layout::WRITE_FILE, xids).await?;
        Ok(Self { directory, churn, read, write })
    }
}

async fn mnt(mount: SocketAddr, export: &str, xids: &Xids) -> Result<Vec<u8>, LoadError> {
    let mut caller = Caller::connect(mount).await?;
    let mut arguments = Writer::default();
    arguments.opaque(export.as_bytes());
    let what = format!("MNT {export}");
    let results = caller.call(&what, xids.take(0), MOUNT3, MOUNTPROC3_MNT, &Raw(arguments.inline())).await?;
    handle_result(results).map_err(|why| LoadError::wrong(&what, why))
}

async fn lookup(caller: &mut Caller, parent: &[u8], name: &str, xids: &Xids) -> Result<Vec<u8>, LoadError> {
    let what = format!("LOOKUP {name}");
    let arguments = diropargs(parent, name);
    let results = caller.call(&what, xids.take(0), NFS3, NFSPROC3_LOOKUP, &Raw(&arguments)).await?;
    handle_result(results).map_err(|why| LoadError::wrong(&what, why))
}

/// MNT and LOOKUP both answer a status and then a handle of at most 64 bytes.
fn handle_result(results: Bytes) -> Result<Vec<u8>, String> {
    let mut reader = Reader::new(results);
    match reader.u32().map_err(text)? {
        0 => {}
        status => return Err(format!("status {status}")),
    }
    // RFC 1813 §2.4: NFS3_FHSIZE is 64.
    Ok(reader.opaque(64).map_err(text)?.to_vec())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn diropargs(parent: &[u8], name: &str) -> Bytes {
    let mut w = Writer::default();
    w.opaque(parent);
    w.opaque(name.as_bytes());
    w.into_bytes()
}

fn request(procedure: u32, arguments: &[u8], payload_bytes: u32) -> Template {
    Template::call(NFS3, procedure, &Raw(arguments), payload_bytes)
}

/// The workload of `operation` for one connection.
///
/// `connection` makes names and offsets differ between connections, `depth` is the number of slots.
pub(crate) fn workload(
    operation: Operation,
    handles: &Handles,
    connection: u32,
    depth: usize,
) -> Box<dyn Workload> {
    let bytes = operation.payload_bytes();
    let offsets = Offsets::new(bytes, connection);
    match operation {
        Operation::Null => Box::new(Plain { template: request(NFSPROC3_NULL, &[], 0), check: check_null }),
        Operation::Getattr => {
            let mut arguments = Writer::default();
            arguments.opaque(&handles.read);
            let template = request(NFSPROC3_GETATTR, &arguments.into_bytes(), 0);
            Box::new(Plain { template, check: check_getattr })
        }
        Operation::Access => {
            let mut arguments = Writer::default();
            arguments.opaque(&handles.read);
            arguments.u32(ACCESS_ASKED);
            let template = request(NFSPROC3_ACCESS, &arguments.into_bytes(), 0);
            Box::new(Plain { template, check: check_access })
        }
        Operation::Lookup => {
            let template = request(NFSPROC3_LOOKUP, &diropargs(&handles.directory, layout::READ_FILE), 0);
            Box::new(Lookup { template, expected: handles.read.clone() })
        }
        Operation::Read4k | Operation::Read1m => Box::new(Read::new(&handles.read, bytes, offsets, depth)),
        Operation::Write4k | Operation::Write1m => Box::new(Write::new(&handles.write, bytes, offsets)),
        Operation::CreateRemove => Box::new(CreateRemove::new(&handles.churn, connection, depth)),
        Operation::SequenceGetattr41 => unreachable!("not an operation of version 3"),
    }
}

/// An operation whose requests are all alike.
struct Plain {
    template: Template,
    check: fn(&Reply<'_>) -> Result<(), String>,
}

impl Workload for Plain {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.template.append(xid, out);
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        (self.check)(reply).map(|()| Outcome::Finished)
    }
}

/// Checks the header and an NFS3_OK, and returns where the rest starts.
fn ok(reply: &Reply<'_>) -> Result<usize, String> {
    let at = reply.results()?;
    match reply.word(at)? {
        0 => Ok(at + 4),
        status => Err(format!("nfsstat3 {status}")),
    }
}

/// Steps over a post_op_attr at `at`.
fn after_post_op_attr(reply: &Reply<'_>, at: usize) -> Result<usize, String> {
    match reply.word(at)? {
        0 => Ok(at + 4),
        1 => Ok(at + 4 + FATTR3_BYTES),
        other => Err(format!("a boolean of {other}")),
    }
}

/// Steps over a wcc_data at `at`.
fn after_wcc_data(reply: &Reply<'_>, at: usize) -> Result<usize, String> {
    // RFC 1813 §2.6: wcc_attr is size, mtime, ctime: 24 bytes.
    let after_before = match reply.word(at)? {
        0 => at + 4,
        1 => at + 28,
        other => return Err(format!("a boolean of {other}")),
    };
    after_post_op_attr(reply, after_before)
}

fn ends_at(reply: &Reply<'_>, at: usize) -> Result<(), String> {
    if reply.length == at { Ok(()) } else { Err(format!("{} bytes instead of {at}", reply.length)) }
}

fn check_null(reply: &Reply<'_>) -> Result<(), String> {
    ends_at(reply, reply.results()?)
}

/// Checks that the attributes at `at` are those of the prepared regular file.
fn check_attributes(reply: &Reply<'_>, at: usize) -> Result<(), String> {
    // RFC 1813 §2.6: type first (NF3REG = 1), size as sixth field, after mode, nlink, uid and gid.
    let size = u64::from(reply.word(at + 20)?) << 32 | u64::from(reply.word(at + 24)?);
    if reply.word(at)? != 1 || size != layout::FILE_BYTES {
        return Err(format!("attributes of another file: type {}, size {size}", reply.word(at)?));
    }
    Ok(())
}

fn check_getattr(reply: &Reply<'_>) -> Result<(), String> {
    let at = ok(reply)?;
    check_attributes(reply, at)?;
    ends_at(reply, at + FATTR3_BYTES)
}

fn check_access(reply: &Reply<'_>) -> Result<(), String> {
    let at = after_post_op_attr(reply, ok(reply)?)?;
    let granted = reply.word(at)?;
    if granted & ACCESS_ASKED != ACCESS_ASKED {
        return Err(format!("access {granted:#x} granted of {ACCESS_ASKED:#x}"));
    }
    ends_at(reply, at + 4)
}

struct Lookup {
    template: Template,
    expected: Vec<u8>,
}

impl Workload for Lookup {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.template.append(xid, out);
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let at = ok(reply)?;
        let length = reply.word(at)? as usize;
        let handle = reply.head.get(at + 4..).and_then(|rest| rest.get(..length));
        if handle != Some(&self.expected[..]) {
            return Err("another file handle than before".into());
        }
        let attributes = at + 4 + length.next_multiple_of(4);
        let after = after_post_op_attr(reply, attributes)?;
        if after > attributes + 4 {
            check_attributes(reply, attributes + 4)?;
        }
        ends_at(reply, after_post_op_attr(reply, after)?)?;
        Ok(Outcome::Finished)
    }
}

struct Read {
    template: Template,
    offset_at: usize,
    bytes: u32,
    offsets: Offsets,
    /// The offset that each slot asked for.
    asked: Vec<u64>,
}

impl Read {
    fn new(handle: &[u8], bytes: u32, offsets: Offsets, depth: usize) -> Self {
        let render = |offset| {
            let mut arguments = Writer::default();
            arguments.opaque(handle);
            arguments.u64(offset);
            arguments.u32(bytes);
            request(NFSPROC3_READ, &arguments.into_bytes(), 0)
        };
        let template = render(0);
        let offset_at = Template::field(&template, &render(u64::MAX));
        Self { template, offset_at, bytes, offsets, asked: vec![0; depth] }
    }
}

impl Workload for Read {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let offset = self.offsets.next();
        self.asked[slot] = offset;
        let start = self.template.append(xid, out);
        patch(out, start + self.offset_at, &offset.to_be_bytes());
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        // RFC 1813 §3.3.6: file_attributes, count, eof, data<>.
        let at = after_post_op_attr(reply, ok(reply)?)?;
        let (count, length) = (reply.word(at)?, reply.word(at + 8)?);
        if (count, length) != (self.bytes, self.bytes) {
            return Err(format!("count {count}, {length} bytes of data instead of {}", self.bytes));
        }
        let data = at + 12;
        if reply.head.get(data..data + 8) != Some(&layout::pattern_word(self.asked[slot])) {
            return Err(format!("other data than the file holds at {}", self.asked[slot]));
        }
        ends_at(reply, data + self.bytes as usize)?;
        Ok(Outcome::Finished)
    }
}

struct Write {
    template: Template,
    offset_at: usize,
    bytes: u32,
    offsets: Offsets,
    payload: Vec<u8>,
    /// The verifier of the first reply: it may not change while the server lives.
    verifier: Option<(u32, u32)>,
}

impl Write {
    fn new(handle: &[u8], bytes: u32, offsets: Offsets) -> Self {
        let render = |offset| {
            let mut arguments = Writer::default();
            arguments.opaque(handle);
            arguments.u64(offset);
            arguments.u32(bytes);
            arguments.u32(0); // UNSTABLE
            arguments.u32(bytes); // the length of the data, which follow from the shared payload
            request(NFSPROC3_WRITE, &arguments.into_bytes(), bytes)
        };
        let template = render(0);
        let offset_at = Template::field(&template, &render(u64::MAX));
        let mut payload = vec![0; bytes as usize];
        layout::fill_pattern(0, &mut payload);
        Self { template, offset_at, bytes, offsets, payload, verifier: None }
    }
}

impl Workload for Write {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        let start = self.template.append(xid, out);
        patch(out, start + self.offset_at, &self.offsets.next().to_be_bytes());
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        // RFC 1813 §3.3.7: file_wcc, count, committed, verf.
        let at = after_wcc_data(reply, ok(reply)?)?;
        if reply.word(at)? != self.bytes {
            return Err(format!("{} bytes written of {}", reply.word(at)?, self.bytes));
        }
        if reply.word(at + 4)? > 2 {
            return Err(format!("stable_how {}", reply.word(at + 4)?));
        }
        let verifier = (reply.word(at + 8)?, reply.word(at + 12)?);
        if *self.verifier.get_or_insert(verifier) != verifier {
            return Err("the write verifier changed: unstable data may be lost".into());
        }
        ends_at(reply, at + 16)?;
        Ok(Outcome::Finished)
    }
}

/// CREATE (GUARDED) of a name of the slot's own, then its REMOVE; the pair counts as one operation.
struct CreateRemove {
    /// A CREATE and a REMOVE for each slot.
    templates: Vec<[Template; 2]>,
    /// Slots whose file exists, so that the REMOVE comes next.
    created: Vec<bool>,
}

impl CreateRemove {
    fn new(parent: &[u8], connection: u32, depth: usize) -> Self {
        let templates = (0..depth)
            .map(|slot| {
                let place = diropargs(parent, &format!("file-{connection:02}-{slot:02}"));
                let mut arguments = Writer::default();
                arguments.raw(&place);
                arguments.u32(1); // GUARDED
                // sattr3: mode 0644, the rest as the server likes.
                for word in [1, 0o644, 0, 0, 0, 0, 0] {
                    arguments.u32(word);
                }
                let create = request(NFSPROC3_CREATE, &arguments.into_bytes(), 0);
                [create, request(NFSPROC3_REMOVE, &place, 0)]
            })
            .collect();
        Self { templates, created: vec![false; depth] }
    }
}

impl Workload for CreateRemove {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.templates[slot][usize::from(self.created[slot])].append(xid, out);
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let at = ok(reply)?;
        if self.created[slot] {
            ends_at(reply, after_wcc_data(reply, at)?)?;
            self.created[slot] = false;
            return Ok(Outcome::Finished);
        }
        // RFC 1813 §3.3.8: obj (post_op_fh3), obj_attributes, dir_wcc.
        let after_handle = match reply.word(at)? {
            0 => at + 4,
            _ => at + 8 + (reply.word(at + 4)? as usize).next_multiple_of(4),
        };
        let after = after_post_op_attr(reply, after_handle)?;
        ends_at(reply, after_wcc_data(reply, after)?)?;
        self.created[slot] = true;
        Ok(Outcome::Continues)
    }
}
