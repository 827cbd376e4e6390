//! The procedures of version 3 by those of version 2.

use bytes::Bytes;
use protocol::nfs2::{self, MAXDATA, Outcome, Proc, Sattr};
use protocol::nfs3::PostOpAttr;
use protocol::nfs3::{
    AccessArgs, AccessOk, CommitArgs, CommitOk, CreateArgs, CreateHow, CreateOk, DirList, DirOpArgs, Entry,
    Fattr, FsProperties, FsinfoArgs, FsinfoOk, FsstatArgs, FsstatOk, GetattrArgs, LinkArgs, LinkWcc,
    LookupArgs, LookupOk, MkdirArgs, MknodArgs, NfsTime, PathconfArgs, PathconfOk, ReadArgs, ReadOk,
    ReaddirArgs, ReaddirOk, ReaddirplusArgs, ReaddirplusOk, ReadlinkArgs, ReadlinkOk, RemoveArgs, RenameArgs,
    RenameWcc, SetattrArgs, StableHow, SymlinkArgs, WccData, WriteOk,
};
use protocol::nfs4::types::Status;
use protocol::nfsacl::{GetAclArgs, GetAclOk, SetAclArgs};
use xdr::{Chain, Decode, Encode, Opaque};

use super::FILE_SIZE_MAX;
use super::access::permissions;
use super::convert::{
    after, attributes, created, handle, handle_back, mode, opaque, place, set_attributes, some, special_file,
    with_known_times, with_type,
};
use crate::calls::{Calls, Procedure, Replied};
use crate::config::Caller;
use crate::error::OpError;
use crate::record::{RecordWriter, first_bytes, length};

/// The attributes of a directory around a change: the reply has none.
const NOTHING: WccData = WccData { before: None, after: None };

/// The server, and the caller for whom it is called.
pub(crate) struct Link<'a> {
    pub(crate) calls: &'a Calls,
    pub(crate) caller: &'a Caller,
}

/// Arguments of a procedure of version 3, which procedures of version 2 can perform.
pub(crate) trait ByVersion2 {
    /// The results of version 3 on success.
    type Results;

    /// Performs the procedure.
    ///
    /// # Errors
    /// No usable reply arrived, or version 2 cannot express the arguments or does not have the operation.
    async fn perform(&self, link: &Link<'_>) -> Result<Replied<Self::Results>, OpError>;
}

impl Link<'_> {
    async fn call<T: Decode>(&self, number: Proc, arguments: &impl Encode) -> Result<Replied<T>, OpError> {
        self.call_encoded(number, |record| arguments.encode(record.writer())).await
    }

    async fn call_encoded<T: Decode>(
        &self,
        number: Proc,
        encode: impl FnOnce(&mut RecordWriter),
    ) -> Result<Replied<T>, OpError> {
        let procedure = Procedure { program: nfs2::PROGRAM, version: nfs2::VERSION, number: number.0 };
        let (outcome, is_repeated) = self.calls.call::<Outcome<T>>(self.caller, procedure, encode).await?;
        let result = match outcome {
            Outcome::Ok(ok) => Ok(ok),
            Outcome::Fail(status) => {
                self.calls.engine.note_error(procedure.label());
                Err(Status(status.0))
            }
        };
        Ok(Replied { result, is_repeated })
    }

    /// Calls a procedure that creates an object.
    async fn create(
        &self,
        number: Proc,
        at: &DirOpArgs,
        attributes: Sattr,
    ) -> Result<Replied<CreateOk>, OpError> {
        let arguments = nfs2::CreateArgs { where_: place(at)?, attributes };
        let replied = self.call::<nfs2::DirOpOk>(number, &arguments).await?;
        replied.try_map(|ok| Ok(created(&ok)))
    }

    /// Returns whether a name is free. CREATE takes an existing file, so that clients of version 2 look before; another client may
    /// still create it in between.
    async fn is_free(&self, at: &DirOpArgs) -> Result<bool, OpError> {
        match self.call::<nfs2::DirOpOk>(Proc::LOOKUP, &place(at)?).await?.result {
            Ok(_) => Ok(false),
            Err(Status::NOENT) => Ok(true),
            Err(status) => Err(OpError::Status(status)),
        }
    }

    async fn change_name<T>(
        &self,
        number: Proc,
        arguments: &impl Encode,
        results: T,
    ) -> Result<Replied<T>, OpError> {
        self.call::<()>(number, arguments).await?.try_map(|()| Ok(results))
    }
}

/// Returns results without a call.
fn at_once<T>(result: Result<T, Status>) -> Result<Replied<T>, OpError> {
    Ok(Replied { result, is_repeated: false })
}

impl ByVersion2 for GetattrArgs {
    type Results = Fattr;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<Fattr>, OpError> {
        let replied = link.call::<nfs2::Fattr>(Proc::GETATTR, &handle(&self.object)?).await?;
        replied.try_map(|found| Ok(attributes(&found)))
    }
}

impl ByVersion2 for SetattrArgs {
    type Results = WccData;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<WccData>, OpError> {
        let (file, attributes) = (
            handle(&self.object)?,
            set_attributes(&with_known_times(&self.new_attributes, link.calls.engine.time_of_day()))?,
        );
        let arguments = nfs2::SattrArgs { file, attributes };
        link.call::<nfs2::Fattr>(Proc::SETATTR, &arguments).await?.try_map(|set| Ok(after(&set)))
    }
}

impl ByVersion2 for LookupArgs {
    type Results = LookupOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<LookupOk>, OpError> {
        let replied = link.call::<nfs2::DirOpOk>(Proc::LOOKUP, &place(&self.what)?).await?;
        replied.try_map(|found| {
            Ok(LookupOk {
                object: handle_back(&found.file),
                obj_attributes: some(&found.attributes),
                dir_attributes: None,
            })
        })
    }
}

impl ByVersion2 for AccessArgs {
    type Results = AccessOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<AccessOk>, OpError> {
        let replied = GetattrArgs { object: self.object }.perform(link).await?;
        replied.try_map(|found| {
            let access = permissions(link.caller, &found) & self.access;
            Ok(AccessOk { obj_attributes: Some(found), access })
        })
    }
}

impl ByVersion2 for ReadlinkArgs {
    type Results = ReadlinkOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<ReadlinkOk>, OpError> {
        let replied = link.call::<nfs2::Path>(Proc::READLINK, &handle(&self.symlink)?).await?;
        replied.try_map(|path| Ok(ReadlinkOk { symlink_attributes: None, data: opaque(path)? }))
    }
}

impl ByVersion2 for ReadArgs {
    type Results = ReadOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<ReadOk>, OpError> {
        let Ok(offset) = u32::try_from(self.offset) else {
            // No file of version 2 has data there.
            return at_once(Ok(ReadOk {
                file_attributes: None,
                count: 0,
                eof: true,
                data: Opaque::default(),
            }));
        };
        let (file, count) = (handle(&self.file)?, self.count.min(MAXDATA as u32));
        let arguments = nfs2::ReadArgs { file, offset, count, totalcount: 0 };
        let replied = link.call::<nfs2::ReadOk>(Proc::READ, &arguments).await?;
        replied.try_map(|read| {
            let (size, count) = (u64::from(read.attributes.size), read.data.len() as u32);
            if size > FILE_SIZE_MAX {
                // Servers show a larger file so: its end would be lost silently.
                return Err(OpError::Status(Status::FBIG));
            }
            let eof = u64::from(offset) + u64::from(count) >= size;
            Ok(ReadOk { file_attributes: some(&read.attributes), count, eof, data: opaque(read.data)? })
        })
    }
}

/// Writes at most as much as one WRITE takes. The data are then stable.
///
/// # Errors
/// FBIG if the file would have a size that version 2 does not have.
pub(crate) async fn write(
    link: &Link<'_>,
    file: &protocol::nfs3::FileHandle,
    offset: u64,
    data: &[Bytes],
) -> Result<Replied<WriteOk>, OpError> {
    let data = first_bytes(data, MAXDATA);
    let count = length(&data) as u32;
    let start = match u32::try_from(offset) {
        Ok(start) if offset + u64::from(count) <= FILE_SIZE_MAX => start,
        _ => return Err(OpError::Status(Status::FBIG)),
    };
    let file = handle(file)?;
    let encode = |record: &mut RecordWriter| {
        file.encode(record.writer());
        // The first and the third of these are unused (RFC 1094 §2.2.9).
        [0, start, 0].iter().for_each(|word| record.writer().u32(*word));
        record.opaque(&data);
    };
    let replied = link.call_encoded::<nfs2::Fattr>(Proc::WRITE, encode).await?;
    replied.try_map(|written| {
        Ok(WriteOk { file_wcc: after(&written), count, committed: StableHow::FileSync, verf: [0; 8] })
    })
}

impl ByVersion2 for CreateArgs {
    type Results = CreateOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<CreateOk>, OpError> {
        let (CreateHow::Unchecked(set) | CreateHow::Guarded(set)) = &self.how else {
            return at_once(Err(Status::NOTSUPP));
        };
        if matches!(self.how, CreateHow::Guarded(_)) && !link.is_free(&self.where_).await? {
            return at_once(Err(Status::EXIST));
        }
        link.create(Proc::CREATE, &self.where_, with_type(set, mode::REGULAR)?).await
    }
}

impl ByVersion2 for MkdirArgs {
    type Results = CreateOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<CreateOk>, OpError> {
        link.create(Proc::MKDIR, &self.where_, with_type(&self.attributes, mode::DIRECTORY)?).await
    }
}

impl ByVersion2 for SymlinkArgs {
    type Results = CreateOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<CreateOk>, OpError> {
        let to = Opaque::new(self.symlink_data.bytes().clone());
        let to = to.map_err(|_| OpError::Status(Status::NAMETOOLONG))?;
        let attributes = set_attributes(&self.symlink_attributes)?;
        let arguments = nfs2::SymlinkArgs { from: place(&self.where_)?, to, attributes };
        let made = CreateOk { obj: None, obj_attributes: None, dir_wcc: NOTHING };
        link.change_name(Proc::SYMLINK, &arguments, made).await
    }
}

impl ByVersion2 for MknodArgs {
    type Results = CreateOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<CreateOk>, OpError> {
        let (set, expected) = special_file(&self.what)?;
        if !link.is_free(&self.where_).await? {
            return at_once(Err(Status::EXIST));
        }
        let replied = link.create(Proc::CREATE, &self.where_, set).await?;
        let made = replied.result.as_ref().ok().and_then(|made| made.obj_attributes);
        if made.is_some_and(|made| made.file_type != expected) {
            // A server without the convention has created a regular file, or taken one that another client has just created.
            return Err(OpError::Unsupported("special files in NFS version 2"));
        }
        Ok(replied)
    }
}

impl ByVersion2 for RemoveArgs {
    type Results = WccData;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<WccData>, OpError> {
        link.change_name(Proc::REMOVE, &place(&self.object)?, NOTHING).await
    }
}

/// Performs RMDIR, whose arguments are those of REMOVE.
///
/// # Errors
/// As [`ByVersion2::perform`].
pub(crate) async fn remove_directory(
    link: &Link<'_>,
    arguments: &RemoveArgs,
) -> Result<Replied<WccData>, OpError> {
    link.change_name(Proc::RMDIR, &place(&arguments.object)?, NOTHING).await
}

impl ByVersion2 for RenameArgs {
    type Results = RenameWcc;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<RenameWcc>, OpError> {
        let arguments = nfs2::RenameArgs { from: place(&self.from)?, to: place(&self.to)? };
        link.change_name(Proc::RENAME, &arguments, RenameWcc::default()).await
    }
}

impl ByVersion2 for LinkArgs {
    type Results = LinkWcc;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<LinkWcc>, OpError> {
        let arguments = nfs2::LinkArgs { from: handle(&self.file)?, to: place(&self.link)? };
        link.change_name(Proc::LINK, &arguments, LinkWcc::default()).await
    }
}

impl ByVersion2 for ReaddirArgs {
    type Results = ReaddirOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<ReaddirOk>, OpError> {
        let cookie = u32::try_from(self.cookie).map_err(|_| OpError::Status(Status::BAD_COOKIE))?;
        let (cookie, count) = (cookie.to_be_bytes(), self.count.min(MAXDATA as u32));
        let arguments = nfs2::ReaddirArgs { dir: handle(&self.dir)?, cookie, count };
        let replied = link.call::<nfs2::ReaddirOk>(Proc::READDIR, &arguments).await?;
        replied.try_map(|listed| {
            let entries = listed.entries.into_vec().into_iter().map(|entry| Entry {
                fileid: entry.fileid.into(),
                name: entry.name,
                cookie: u32::from_be_bytes(entry.cookie).into(),
            });
            let entries = Chain::new(entries.collect());
            let entries = entries.map_err(|_| OpError::BadReply("more entries than version 3 can list"))?;
            let reply = DirList { entries, eof: listed.eof };
            Ok(ReaddirOk { dir_attributes: None, cookieverf: [0; 8], reply })
        })
    }
}

impl ByVersion2 for ReaddirplusArgs {
    type Results = ReaddirplusOk;

    /// Version 2 does not have it: its clients look up the names that READDIR lists.
    async fn perform(&self, _link: &Link<'_>) -> Result<Replied<ReaddirplusOk>, OpError> {
        at_once(Err(Status::NOTSUPP))
    }
}

impl ByVersion2 for FsstatArgs {
    type Results = FsstatOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<FsstatOk>, OpError> {
        let replied = link.call::<nfs2::StatfsOk>(Proc::STATFS, &handle(&self.fsroot)?).await?;
        replied.try_map(|space| {
            let bytes = |blocks: u32| u64::from(blocks) * u64::from(space.bsize);
            Ok(FsstatOk {
                obj_attributes: None,
                tbytes: bytes(space.blocks),
                fbytes: bytes(space.bfree),
                abytes: bytes(space.bavail),
                // Numbers of files are unknown.
                tfiles: 0,
                ffiles: 0,
                afiles: 0,
                invarsec: 0,
            })
        })
    }
}

impl ByVersion2 for FsinfoArgs {
    type Results = FsinfoOk;

    /// Version 2 has fixed limits.
    async fn perform(&self, _link: &Link<'_>) -> Result<Replied<FsinfoOk>, OpError> {
        let size = MAXDATA as u32;
        at_once(Ok(FsinfoOk {
            obj_attributes: None,
            rtmax: size,
            rtpref: size,
            rtmult: 1,
            wtmax: size,
            wtpref: size,
            wtmult: 1,
            dtpref: size,
            maxfilesize: FILE_SIZE_MAX,
            time_delta: NfsTime { seconds: 0, nseconds: 1000 },
            properties: FsProperties::LINK | FsProperties::SYMLINK | FsProperties::CANSETTIME,
        }))
    }
}

impl ByVersion2 for PathconfArgs {
    type Results = PathconfOk;

    /// Version 2 does not have it.
    async fn perform(&self, _link: &Link<'_>) -> Result<Replied<PathconfOk>, OpError> {
        at_once(Err(Status::NOTSUPP))
    }
}

impl ByVersion2 for CommitArgs {
    type Results = CommitOk;

    /// Every WRITE is stable (RFC 1094 §2.2.9).
    async fn perform(&self, _link: &Link<'_>) -> Result<Replied<CommitOk>, OpError> {
        at_once(Ok(CommitOk { file_wcc: NOTHING, verf: [0; 8] }))
    }
}

impl ByVersion2 for GetAclArgs {
    type Results = GetAclOk;

    async fn perform(&self, _link: &Link<'_>) -> Result<Replied<GetAclOk>, OpError> {
        Err(OpError::Unsupported("access control lists in NFS version 2"))
    }
}

impl ByVersion2 for SetAclArgs {
    type Results = PostOpAttr;

    async fn perform(&self, _link: &Link<'_>) -> Result<Replied<PostOpAttr>, OpError> {
        Err(OpError::Unsupported("access control lists in NFS version 2"))
    }
}
