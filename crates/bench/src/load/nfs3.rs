//! NFSv3 requests and the checks of their replies.

mod open_read;
mod readdirplus;

use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;
use protocol::mount::{self, MountResult};
use protocol::nfs3::{
    self, Access, AccessArgs, AccessResult, CreateArgs, CreateHow, CreateResult, DirOpArgs, Fattr,
    FileHandle, FileType, GetattrArgs, GetattrResult, LookupArgs, LookupOk, LookupResult, MkdirArgs,
    MkdirResult, NfsStat, Outcome as Answer, PostOpAttr, Proc, ReadArgs, RemoveArgs, RemoveResult, Sattr,
    StableHow, WriteArgs, WriteResult, WriteVerf,
};
use xdr::{Decode, DecodeError, Encode, Opaque, Reader};

use super::caller::Caller;
use super::replies::Reply;
use super::shapes::{AtOffset, Plain, Read, Write, payload};
use super::template::{Program, Template};
use super::workload::{Offsets, Outcome, Workload, Xids};
use crate::error::LoadError;
use crate::layout;
use crate::operation::{Operation, SMALL_BYTES};

/// Version 3.
pub const NFS3: Program = Program { number: nfs3::PROGRAM, version: nfs3::VERSION };
const MOUNT3: Program = Program { number: mount::PROGRAM, version: mount::VERSION_3 };

/// Maximum bytes of a WRITE that fills a file: every server accepts WRITEs of this size.
const FILL_BYTES_MAX: u32 = 64 << 10;
/// Permissions that user 0 certainly has on a regular file.
const ACCESS_ASKED: Access = Access::READ.union(Access::MODIFY).union(Access::EXTEND);

/// File handles found at setup, as the server gave them.
#[derive(Clone, Debug)]
pub(crate) struct Handles {
    directory: FileHandle,
    churn: FileHandle,
    read: FileHandle,
    small_write: FileHandle,
    large_write: FileHandle,
    /// The directory of the small files.
    small: FileHandle,
}

impl Handles {
    /// Mounts `export` at `mount` and looks everything up at `server`; missing files are made and filled there.
    pub(crate) async fn find(
        server: SocketAddr,
        mount: SocketAddr,
        export: &str,
        xids: &Xids,
    ) -> Result<Self, LoadError> {
        let root = mnt(mount, export, xids).await?;
        let mut setup = Setup { caller: Caller::connect(server).await?, xids };
        let (directory, _) = setup.directory(root, layout::DIRECTORY).await?;
        let (churn, _) = setup.directory(directory, layout::CHURN_DIRECTORY).await?;
        let (small, made) = setup.directory(directory, layout::SMALL_DIRECTORY).await?;
        if made {
            setup.small_files(small).await?;
        }
        let mut files = [FileHandle::default(); layout::FILES.len()];
        for (file, (name, block_bytes)) in files.iter_mut().zip(layout::FILES) {
            *file = setup.file(directory, name, block_bytes).await?;
        }
        let [read, small_write, large_write] = files;
        Ok(Self { directory, churn, read, small_write, large_write, small })
    }
}

async fn mnt(mount: SocketAddr, export: &str, xids: &Xids) -> Result<FileHandle, LoadError> {
    let what = format!("MNT {export}");
    let path = mount::DirPath::new(Bytes::copy_from_slice(export.as_bytes()))
        .map_err(|why| LoadError::wrong(&what, why))?;
    let mut caller = Caller::connect(mount).await?;
    match caller.call(&what, xids.take(0), MOUNT3, mount::Proc::MNT.0, &path).await? {
        MountResult::Ok(mounted) => Ok(mounted.fhandle),
        MountResult::Fail(status) => Err(LoadError::wrong(&what, format!("{status:?}"))),
    }
}

/// The files that operations work on, found or made.
struct Setup<'a> {
    caller: Caller,
    xids: &'a Xids,
}

impl Setup<'_> {
    async fn call<T: Decode, F: Decode>(
        &mut self,
        what: &str,
        procedure: Proc,
        arguments: &impl Encode,
    ) -> Result<Answer<T, F>, LoadError> {
        self.caller.call(what, self.xids.take(0), NFS3, procedure.0, arguments).await
    }

    async fn lookup(&mut self, parent: FileHandle, name: &str) -> Result<Option<LookupOk>, LoadError> {
        let what = format!("LOOKUP {name}");
        let result: LookupResult =
            self.call(&what, Proc::LOOKUP, &LookupArgs { what: place(parent, name) }).await?;
        match result {
            Answer::Fail(NfsStat::NOENT, _) => Ok(None),
            other => success(other).map(Some).map_err(|why| LoadError::wrong(&what, why)),
        }
    }

    /// Returns a directory, which it creates if it is missing, and whether it did.
    async fn directory(&mut self, parent: FileHandle, name: &str) -> Result<(FileHandle, bool), LoadError> {
        if let Some(found) = self.lookup(parent, name).await? {
            return Ok((found.object, false));
        }
        let attributes = Sattr { mode: Some(0o755), ..Sattr::default() };
        let arguments = MkdirArgs { where_: place(parent, name), attributes };
        let what = format!("MKDIR {name}");
        let result: MkdirResult = self.call(&what, Proc::MKDIR, &arguments).await?;
        success(result).map_err(|why| LoadError::wrong(&what, why))?;
        Ok((self.made(parent, name).await?, true))
    }

    async fn small_files(&mut self, directory: FileHandle) -> Result<(), LoadError> {
        for index in 0..layout::SMALL_FILES {
            let name = layout::small_name(index);
            let file = self.create(directory, &name).await?;
            let start = layout::small_offset(index);
            self.fill(file, &name, start..start + u64::from(SMALL_BYTES), SMALL_BYTES).await?;
        }
        Ok(())
    }

    async fn file(
        &mut self,
        parent: FileHandle,
        name: &str,
        block_bytes: u32,
    ) -> Result<FileHandle, LoadError> {
        if let Some(found) = self.lookup(parent, name).await? {
            return Ok(found.object);
        }
        let file = self.create(parent, name).await?;
        self.fill(file, name, 0..layout::FILE_BYTES, block_bytes.min(FILL_BYTES_MAX)).await?;
        Ok(file)
    }

    async fn create(&mut self, parent: FileHandle, name: &str) -> Result<FileHandle, LoadError> {
        let how = CreateHow::Guarded(Sattr { mode: Some(0o644), ..Sattr::default() });
        let what = format!("CREATE {name}");
        let arguments = CreateArgs { where_: place(parent, name), how };
        let result: CreateResult = self.call(&what, Proc::CREATE, &arguments).await?;
        success(result).map_err(|why| LoadError::wrong(&what, why))?;
        self.made(parent, name).await
    }

    /// Returns the handle of a created object by LOOKUP: the handle in the reply of CREATE or MKDIR is optional (RFC 1813 §3.3.8).
    async fn made(&mut self, parent: FileHandle, name: &str) -> Result<FileHandle, LoadError> {
        let found = self.lookup(parent, name).await?;
        Ok(found.ok_or_else(|| LoadError::wrong("LOOKUP", format!("{name} does not exist")))?.object)
    }

    /// Writes the range `pattern` of the test pattern to the start of `file`, `count` bytes at a time.
    async fn fill(
        &mut self,
        file: FileHandle,
        name: &str,
        pattern: Range<u64>,
        count: u32,
    ) -> Result<(), LoadError> {
        let what = format!("WRITE {name}");
        for at in pattern.clone().step_by(count as usize) {
            let offset = at - pattern.start;
            let mut block = vec![0; count as usize];
            layout::fill_pattern(at, &mut block);
            let data = Opaque::new(block).expect("within the protocol's bound");
            let arguments = WriteArgs { file, offset, count, stable: StableHow::Unstable, data };
            let result: WriteResult = self.call(&what, Proc::WRITE, &arguments).await?;
            match success(result) {
                Ok(written) if written.count == count => {}
                Ok(written) => {
                    return Err(LoadError::wrong(&what, format!("{} bytes written", written.count)));
                }
                Err(why) => return Err(LoadError::wrong(&what, why)),
            }
        }
        Ok(())
    }
}

fn place(dir: FileHandle, name: &str) -> DirOpArgs {
    let name = Bytes::copy_from_slice(name.as_bytes());
    DirOpArgs { dir, name: Opaque::new(name).expect("the names are short") }
}

fn request(procedure: Proc, arguments: &impl Encode) -> Template {
    Template::call(NFS3, procedure.0, arguments)
}

/// Returns the workload of `operation` for one connection.
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
    let object = handles.read;
    match operation {
        Operation::Null => {
            Box::new(Plain { template: request(Proc::NULL, &()), check: |reply: &Reply<'_>| reply.results() })
        }
        Operation::Getattr => Box::new(Plain {
            template: request(Proc::GETATTR, &GetattrArgs { object }),
            check: check_getattr,
        }),
        Operation::Access => {
            let arguments = AccessArgs { object, access: ACCESS_ASKED };
            Box::new(Plain { template: request(Proc::ACCESS, &arguments), check: check_access })
        }
        Operation::Lookup => {
            let arguments = LookupArgs { what: place(handles.directory, layout::READ_FILE) };
            let check = move |reply: &Reply<'_>| check_lookup(reply, object);
            Box::new(Plain { template: request(Proc::LOOKUP, &arguments), check })
        }
        Operation::Read4k | Operation::Read8k | Operation::Read1m => {
            Box::new(read(object, bytes, offsets, depth))
        }
        Operation::Write4k => Box::new(write(handles.small_write, bytes, offsets, StableHow::Unstable)),
        Operation::Write4kSync | Operation::Write8kSync => {
            Box::new(write(handles.small_write, bytes, offsets, StableHow::FileSync))
        }
        Operation::Write1m => Box::new(write(handles.large_write, bytes, offsets, StableHow::Unstable)),
        Operation::CreateRemove => Box::new(CreateRemove::new(handles.churn, connection, depth)),
        Operation::OpenReadFloor => Box::new(open_read::Bare::new(handles.small, connection, depth)),
        Operation::OpenRead => Box::new(open_read::OpenRead::new(handles.small, object, connection, depth)),
        Operation::ListingSendFloor => Box::new(readdirplus::Send::new()),
        Operation::Readdirplus => Box::new(readdirplus::Readdirplus::new(handles.small, depth)),
        other => unreachable!("{other} is not an operation of version 3"),
    }
}

/// Returns the results of a success; any other status is an error here.
fn success<T, F>(result: Answer<T, F>) -> Result<T, String> {
    result.into_result().map_err(|(status, _)| format!("{status:?}"))
}

/// Checks that attributes are those of the prepared regular file.
fn check_attributes(attributes: &Fattr) -> Result<(), String> {
    if attributes.file_type == FileType::REG && attributes.size == layout::FILE_BYTES {
        Ok(())
    } else {
        Err(format!("attributes of another file: {attributes:?}"))
    }
}

fn check_getattr(reply: &Reply<'_>) -> Result<(), String> {
    check_attributes(&success(reply.results::<GetattrResult>()?)?)
}

fn check_access(reply: &Reply<'_>) -> Result<(), String> {
    let result = success(reply.results::<AccessResult>()?)?;
    if result.access.contains(ACCESS_ASKED) {
        Ok(())
    } else {
        Err(format!("{:?} alone is granted", result.access))
    }
}

fn check_lookup(reply: &Reply<'_>, expected: FileHandle) -> Result<(), String> {
    let found = success(reply.results::<LookupResult>()?)?;
    if found.object != expected {
        return Err("another file handle than before".into());
    }
    // RFC 1813 §2.6: attributes in addition to a result are optional, but may not be wrong.
    found.obj_attributes.as_ref().map_or(Ok(()), check_attributes)
}

fn read(file: FileHandle, count: u32, offsets: Offsets, depth: usize) -> impl Workload {
    let render = |offset| request(Proc::READ, &ReadArgs { file, offset, count });
    let head = move |reader: &mut Reader| -> Result<u32, String> {
        let mut decode = || {
            let status = NfsStat::decode(reader)?;
            if status != NfsStat::OK {
                return Ok(Err(format!("{status:?}")));
            }
            let _attributes = PostOpAttr::decode(reader)?;
            let (counted, _eof, length) = (reader.u32()?, reader.bool()?, reader.u32()?);
            Ok(Ok((counted, length)))
        };
        let (counted, length) = decode().map_err(|error: DecodeError| error.to_string())??;
        if counted == length { Ok(length) } else { Err(format!("count {counted}, {length} bytes of data")) }
    };
    Read::new(AtOffset::new(render(0), &render(u64::MAX), 8), count, offsets, depth, head)
}

fn write(file: FileHandle, count: u32, offsets: Offsets, stable: StableHow) -> impl Workload {
    let payload = payload(count);
    let render = |offset| {
        let data = Opaque::new(payload.clone()).expect("within the protocol's bound");
        let arguments = WriteArgs { file, offset, count, stable, data };
        request(Proc::WRITE, &arguments).without_payload(payload.len())
    };
    let at = AtOffset::new(render(0), &render(u64::MAX), 8);
    // That of the first reply: it may not change while the server lives.
    let mut verifier: Option<WriteVerf> = None;
    let check = move |reply: &Reply<'_>| {
        let written = success(reply.results::<WriteResult>()?)?;
        if written.count != count {
            return Err(format!("{} bytes written of {count}", written.count));
        }
        if written.committed < stable {
            return Err(format!("{:?} where {stable:?} was requested", written.committed));
        }
        if *verifier.get_or_insert(written.verf) != written.verf {
            return Err("the write verifier changed: unstable data may be lost".into());
        }
        Ok(())
    };
    Write::new(at, offsets, payload, check)
}

/// CREATE (GUARDED) of a name of the slot's own, then its REMOVE; the pair counts as one operation.
struct CreateRemove {
    /// A CREATE and a REMOVE for each slot.
    templates: Vec<[Template; 2]>,
    /// Slots whose file exists, so that the REMOVE comes next.
    created: Vec<bool>,
}

impl CreateRemove {
    fn new(parent: FileHandle, connection: u32, depth: usize) -> Self {
        let pair = |slot| {
            let object = place(parent, &format!("file-{connection:02}-{slot:02}"));
            let how = CreateHow::Guarded(Sattr { mode: Some(0o644), ..Sattr::default() });
            let create = request(Proc::CREATE, &CreateArgs { where_: object.clone(), how });
            [create, request(Proc::REMOVE, &RemoveArgs { object })]
        };
        Self { templates: (0..depth).map(pair).collect(), created: vec![false; depth] }
    }
}

impl Workload for CreateRemove {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.templates[slot][usize::from(self.created[slot])].append(xid, out);
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let outcome = if self.created[slot] {
            success(reply.results::<RemoveResult>()?)?;
            Outcome::Finished
        } else {
            success(reply.results::<CreateResult>()?)?;
            Outcome::Continues
        };
        self.created[slot] = !self.created[slot];
        Ok(outcome)
    }
}
