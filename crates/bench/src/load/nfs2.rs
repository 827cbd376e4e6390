//! NFSv2 requests and the checks of their replies. The files are made over version 3.

use std::net::SocketAddr;

use bytes::Bytes;
use protocol::mount::{self, FhStatus};
use protocol::nfs2::{
    self, AttrStat, DirOpArgs, DirOpOk, DirOpRes, Fattr, FileHandle, FileType, Outcome as Answer, Proc,
    ReadArgs, Stat, WriteArgs,
};
use xdr::{Decode, Encode, Opaque};

use super::caller::Caller;
use super::replies::Reply;
use super::template::{Program, Template, patch};
use super::workload::{Offsets, Outcome, Workload, Xids};
use crate::error::LoadError;
use crate::layout;
use crate::operation::Operation;

const NFS2: Program = Program { number: nfs2::PROGRAM, version: nfs2::VERSION };
const MOUNT1: Program = Program { number: mount::PROGRAM, version: mount::VERSION_1 };

/// File handles found at setup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles {
    directory: FileHandle,
    read: FileHandle,
    write: FileHandle,
}

impl Handles {
    /// Mounts `export` at `mount` and looks the files up at `server`.
    pub(crate) async fn find(
        server: SocketAddr,
        mount: SocketAddr,
        export: &str,
        xids: &Xids,
    ) -> Result<Self, LoadError> {
        let what = format!("MNT {export} in version 1");
        let path = mount::DirPath::new(Bytes::copy_from_slice(export.as_bytes()))
            .map_err(|why| LoadError::wrong(&what, why))?;
        let mut caller = Caller::connect(mount).await?;
        let root = match caller.call(&what, xids.take(0), MOUNT1, mount::Proc::MNT.0, &path).await? {
            FhStatus::Ok(handle) => handle,
            FhStatus::Fail(status) => return Err(LoadError::wrong(&what, format!("error {status}"))),
        };
        let mut caller = Caller::connect(server).await?;
        let mut lookup = async |directory, name: &str| {
            let what = format!("LOOKUP {name} in version 2");
            let arguments = place(directory, name);
            let result: DirOpRes = caller.call(&what, xids.take(0), NFS2, Proc::LOOKUP.0, &arguments).await?;
            success(result).map(|found: DirOpOk| found.file).map_err(|why| LoadError::wrong(&what, why))
        };
        let directory = lookup(root, layout::DIRECTORY).await?;
        let read = lookup(directory, layout::READ_FILE).await?;
        let write = lookup(directory, layout::SMALL_WRITE_FILE).await?;
        Ok(Self { directory, read, write })
    }
}

fn place(dir: FileHandle, name: &str) -> DirOpArgs {
    let name = Bytes::copy_from_slice(name.as_bytes());
    DirOpArgs { dir, name: Opaque::new(name).expect("the names are short") }
}

fn request(procedure: Proc, arguments: &impl Encode) -> Template {
    Template::call(NFS2, procedure.0, arguments)
}

/// Returns the workload of `operation` for one connection.
///
/// `connection` makes offsets differ between connections, `depth` is the number of slots.
pub(crate) fn workload(
    operation: Operation,
    handles: &Handles,
    connection: u32,
    depth: usize,
) -> Box<dyn Workload> {
    let bytes = operation.payload_bytes();
    let offsets = Offsets::new(bytes, connection);
    match operation {
        Operation::Getattr2 => Box::new(Getattr(request(Proc::GETATTR, &handles.read))),
        Operation::Lookup2 => {
            let arguments = place(handles.directory, layout::READ_FILE);
            Box::new(Lookup { template: request(Proc::LOOKUP, &arguments), expected: handles.read })
        }
        Operation::Read8k2 => Box::new(Read::new(handles.read, bytes, offsets, depth)),
        Operation::Write8k2 => Box::new(Write::new(handles.write, bytes, offsets)),
        other => unreachable!("{other} is not an operation of version 2"),
    }
}

/// Returns the results of a success; any other status is an error here.
fn success<T>(result: Answer<T>) -> Result<T, String> {
    match result {
        Answer::Ok(results) => Ok(results),
        Answer::Fail(status) => Err(format!("{status:?}")),
    }
}

/// Checks that attributes are those of the prepared regular file.
fn check_attributes(attributes: &Fattr) -> Result<(), String> {
    if attributes.file_type == FileType::REG && u64::from(attributes.size) == layout::FILE_BYTES {
        Ok(())
    } else {
        Err(format!("attributes of another file: {attributes:?}"))
    }
}

struct Getattr(Template);

impl Workload for Getattr {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.0.append(xid, out);
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        check_attributes(&success(reply.results::<AttrStat>()?)?)?;
        Ok(Outcome::Finished)
    }
}

struct Lookup {
    template: Template,
    expected: FileHandle,
}

impl Workload for Lookup {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.template.append(xid, out);
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let found = success(reply.results::<DirOpRes>()?)?;
        if found.file != self.expected {
            return Err("another file handle than before".into());
        }
        check_attributes(&found.attributes)?;
        Ok(Outcome::Finished)
    }
}

struct Read {
    template: Template,
    offset_at: usize,
    count: u32,
    offsets: Offsets,
    /// The offset that each slot requested.
    asked: Vec<u64>,
}

impl Read {
    fn new(file: FileHandle, count: u32, offsets: Offsets, depth: usize) -> Self {
        let render = |offset| request(Proc::READ, &ReadArgs { file, offset, count, totalcount: 0 });
        let template = render(0);
        let offset_at = Template::field(&template, &render(u32::MAX));
        Self { template, offset_at, count, offsets, asked: vec![0; depth] }
    }
}

impl Workload for Read {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let offset = self.offsets.next();
        self.asked[slot] = offset;
        let start = self.template.append(xid, out);
        // The file is far shorter than 4 GiB.
        patch(out, start + self.offset_at, &(offset as u32).to_be_bytes());
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        // The data are too long to be decoded as a value: everything before them is, then their length and first word.
        let mut reader = reply.reader()?;
        let mut head = || -> Result<_, xdr::DecodeError> {
            let status = Stat::decode(&mut reader)?;
            if status != Stat::OK {
                return Ok(Err(status));
            }
            let attributes = Fattr::decode(&mut reader)?;
            let length = reader.u32()?;
            Ok(Ok((attributes, length, reader.position(), reader.opaque_fixed::<8>()?)))
        };
        let (attributes, length, at, word) =
            head().map_err(|error| error.to_string())?.map_err(|status| format!("{status:?}"))?;
        check_attributes(&attributes)?;
        if length != self.count {
            return Err(format!("{length} bytes of data instead of {}", self.count));
        }
        if word != layout::pattern_word(self.asked[slot]) {
            return Err(format!("other data than the file holds at {}", self.asked[slot]));
        }
        match at + self.count as usize {
            end if end == reply.length => Ok(Outcome::Finished),
            end => Err(format!("{} bytes instead of {end}", reply.length)),
        }
    }
}

/// WRITE, which version 2 answers when the data are on stable storage.
struct Write {
    template: Template,
    offset_at: usize,
    offsets: Offsets,
    payload: Bytes,
}

impl Write {
    fn new(file: FileHandle, count: u32, offsets: Offsets) -> Self {
        let mut payload = vec![0; count as usize];
        layout::fill_pattern(0, &mut payload);
        let payload = Bytes::from(payload);
        let render = |offset| {
            let data = Opaque::new(payload.clone()).expect("within the protocol's bound");
            let arguments = WriteArgs { file, beginoffset: 0, offset, totalcount: 0, data };
            request(Proc::WRITE, &arguments).without_payload(payload.len())
        };
        let template = render(0);
        let offset_at = Template::field(&template, &render(u32::MAX));
        Self { template, offset_at, offsets, payload }
    }
}

impl Workload for Write {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        let start = self.template.append(xid, out);
        patch(out, start + self.offset_at, &(self.offsets.next() as u32).to_be_bytes());
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        check_attributes(&success(reply.results::<AttrStat>()?)?)?;
        Ok(Outcome::Finished)
    }
}
