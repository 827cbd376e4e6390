//! NFSv2 requests and the checks of their replies. The files are made over version 3.

use std::net::SocketAddr;

use bytes::Bytes;
use protocol::mount::{self, FhStatus};
use protocol::nfs2::{
    self, AttrStat, DirOpArgs, DirOpOk, DirOpRes, Fattr, FileHandle, FileType, Outcome as Answer, Proc,
    ReadArgs, WriteArgs,
};
use xdr::{Decode, DecodeError, Encode, Opaque, Reader};

use super::caller::Caller;
use super::replies::Reply;
use super::shapes::{AtOffset, Plain, Read, Write, payload};
use super::template::{Program, Template};
use super::workload::{Offsets, Workload, Xids};
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
        Operation::Getattr2 => Box::new(Plain {
            template: request(Proc::GETATTR, &handles.read),
            check: |reply: &Reply<'_>| check_attributes(&success(reply.results::<AttrStat>()?)?),
        }),
        Operation::Lookup2 => {
            let (arguments, expected) = (place(handles.directory, layout::READ_FILE), handles.read);
            let check = move |reply: &Reply<'_>| check_lookup(reply, expected);
            Box::new(Plain { template: request(Proc::LOOKUP, &arguments), check })
        }
        Operation::Read8k2 => Box::new(read(handles.read, bytes, offsets, depth)),
        Operation::Write8k2 => Box::new(write(handles.write, bytes, offsets)),
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

fn check_lookup(reply: &Reply<'_>, expected: FileHandle) -> Result<(), String> {
    let found = success(reply.results::<DirOpRes>()?)?;
    if found.file != expected {
        return Err("another file handle than before".into());
    }
    check_attributes(&found.attributes)
}

fn read(file: FileHandle, count: u32, offsets: Offsets, depth: usize) -> impl Workload {
    let render = |offset| request(Proc::READ, &ReadArgs { file, offset, count, totalcount: 0 });
    let head = |reader: &mut Reader| -> Result<u32, String> {
        let mut decode = || Ok((success(Answer::<Fattr>::decode(reader)?), reader.u32()?));
        let (attributes, length) = decode().map_err(|error: DecodeError| error.to_string())?;
        check_attributes(&attributes?)?;
        Ok(length)
    };
    Read::new(AtOffset::new(render(0), &render(u32::MAX), 4), count, offsets, depth, head)
}

/// WRITE, which version 2 answers when the data are on stable storage.
fn write(file: FileHandle, count: u32, offsets: Offsets) -> impl Workload {
    let payload = payload(count);
    let render = |offset| {
        let data = Opaque::new(payload.clone()).expect("within the protocol's bound");
        let arguments = WriteArgs { file, beginoffset: 0, offset, totalcount: 0, data };
        request(Proc::WRITE, &arguments).without_payload(payload.len())
    };
    let at = AtOffset::new(render(0), &render(u32::MAX), 4);
    let check = |reply: &Reply<'_>| check_attributes(&success(reply.results::<AttrStat>()?)?);
    Write::new(at, offsets, payload, check)
}
