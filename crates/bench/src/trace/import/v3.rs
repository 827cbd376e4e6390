//! Operations of NFS version 3. It has no opens: reads and writes name the file by its path alone.

use std::collections::HashMap;
use std::net::IpAddr;

use bytes::Bytes;
use protocol::nfs3::*;
use xdr::{Decode, DecodeError, Reader};

use super::errno;
use super::names::{Names, child};
use crate::targets::How;
use crate::trace::format::{Flags, Kind, Record};

/// Entries of listings that need several requests, until the last one.
#[derive(Default)]
pub(super) struct Listings(HashMap<(IpAddr, Bytes), u64>);

type Results<T> = Outcome<T, Rest>;

/// What follows the status of a failure, which is not needed.
struct Rest;

impl Decode for Rest {
    fn decode(_: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

/// Decodes arguments and results.
fn both<A: Decode, R: Decode>(call: &mut Reader, reply: &mut Reader) -> Result<(A, Results<R>), DecodeError> {
    Ok((A::decode(call)?, Results::<R>::decode(reply)?))
}

fn record(op: Kind, path: String) -> Record {
    Record { path: Some(path), ..Record::new(op) }
}

/// Returns the record with the status of its call; none if the client repeats the call.
fn with_status<T>(mut record: Record, results: &Results<T>) -> Vec<Record> {
    if let Outcome::Fail(status, _) = results {
        let Some(error) = errno(status.0) else { return Vec::new() };
        record.error = Some(error);
        record.result = None;
    }
    vec![record]
}

fn add_attributes(record: &mut Record, attributes: Option<&Fattr>, names: &mut Names) {
    if let Some(attributes) = attributes {
        record.size = Some(attributes.size);
        record.directory = attributes.file_type == FileType::DIR;
        if record.directory {
            names.is_directory(record.path.as_deref().unwrap_or_default());
        }
    }
}

fn named(names: &mut Names, what: &DirOpArgs) -> String {
    let directory = names.directory(what.dir.as_ref());
    child(&directory, what.name.as_ref())
}

/// Returns the operations of a call: none or one.
pub(super) fn operation(
    procedure: u32,
    call: &mut Reader,
    reply: &mut Reader,
    names: &mut Names,
    listings: &mut Listings,
    client: IpAddr,
) -> Result<Vec<Record>, DecodeError> {
    Ok(match Proc(procedure) {
        Proc::GETATTR => {
            let (args, results) = both::<GetattrArgs, Fattr>(call, reply)?;
            let mut record = record(Kind::Stat, names.path(args.object.as_ref()));
            if let Outcome::Ok(attributes) = &results {
                add_attributes(&mut record, Some(attributes), names);
            }
            with_status(record, &results)
        }
        Proc::ACCESS => {
            let (args, results) = both::<AccessArgs, AccessOk>(call, reply)?;
            let mut record = record(Kind::Stat, names.path(args.object.as_ref()));
            if let Outcome::Ok(ok) = &results {
                add_attributes(&mut record, ok.obj_attributes.as_ref(), names);
            }
            with_status(record, &results)
        }
        Proc::LOOKUP => {
            let (args, results) = both::<LookupArgs, LookupOk>(call, reply)?;
            let mut record = record(Kind::Stat, named(names, &args.what));
            if let Outcome::Ok(ok) = &results {
                names.learn(ok.object.as_ref(), record.path());
                add_attributes(&mut record, ok.obj_attributes.as_ref(), names);
            }
            with_status(record, &results)
        }
        Proc::SETATTR => {
            let (args, results) = both::<SetattrArgs, WccData>(call, reply)?;
            let (path, set) = (names.path(args.object.as_ref()), args.new_attributes);
            let record = match set {
                Sattr { size: Some(size), .. } => {
                    Record { length: Some(size), ..record(Kind::SetSize, path) }
                }
                Sattr { mode: Some(mode), .. } => Record { mode: Some(mode), ..record(Kind::Chmod, path) },
                _ => record(Kind::Touch, path),
            };
            with_status(record, &results)
        }
        Proc::READLINK => {
            let (args, results) = both::<ReadlinkArgs, ReadlinkOk>(call, reply)?;
            with_status(record(Kind::Readlink, names.path(args.symlink.as_ref())), &results)
        }
        Proc::READ => {
            let (args, results) = both::<ReadArgs, ReadOk>(call, reply)?;
            let result = match &results {
                Outcome::Ok(ok) => Some(u64::from(ok.count.min(args.count))),
                Outcome::Fail(..) => None,
            };
            let (offset, length) = (Some(args.offset), Some(args.count.into()));
            let record = record(Kind::Read, names.path(args.file.as_ref()));
            with_status(Record { offset, length, result, ..record }, &results)
        }
        Proc::WRITE => {
            let (args, results) = both::<WriteArgs, WriteOk>(call, reply)?;
            let result = match &results {
                Outcome::Ok(ok) => Some(u64::from(ok.count.min(args.count))),
                Outcome::Fail(..) => None,
            };
            let (offset, length) = (Some(args.offset), Some(args.count.into()));
            let record = record(Kind::Write, names.path(args.file.as_ref()));
            with_status(Record { offset, length, result, ..record }, &results)
        }
        Proc::COMMIT => {
            let (args, results) = both::<CommitArgs, CommitOk>(call, reply)?;
            with_status(record(Kind::Sync, names.path(args.file.as_ref())), &results)
        }
        Proc::FSSTAT => {
            let (args, results) = both::<FsstatArgs, FsstatOk>(call, reply)?;
            with_status(record(Kind::Statfs, names.path(args.fsroot.as_ref())), &results)
        }
        Proc::READDIR | Proc::READDIRPLUS => return listing(procedure, call, reply, names, listings, client),
        _ => return change(procedure, call, reply, names),
    })
}

/// Operations that create, remove and rename.
fn change(
    procedure: u32,
    call: &mut Reader,
    reply: &mut Reader,
    names: &mut Names,
) -> Result<Vec<Record>, DecodeError> {
    Ok(match Proc(procedure) {
        Proc::CREATE => {
            let (args, results) = both::<CreateArgs, CreateOk>(call, reply)?;
            let record = record(Kind::Open, named(names, &args.where_));
            learn_created(names, record.path(), &results);
            let truncates = match &args.how {
                CreateHow::Unchecked(set) | CreateHow::Guarded(set) => set.size == Some(0),
                CreateHow::Exclusive(_) => false,
            };
            let how = Some(Flags(How { truncate: truncates, ..How::CREATE }));
            with_status(Record { how, ..record }, &results)
        }
        Proc::MKDIR => {
            let (args, results) = both::<MkdirArgs, CreateOk>(call, reply)?;
            let record = record(Kind::Mkdir, named(names, &args.where_));
            learn_created(names, record.path(), &results);
            if let Outcome::Ok(_) = &results {
                names.is_directory(record.path());
            }
            with_status(record, &results)
        }
        Proc::SYMLINK => {
            let (args, results) = both::<SymlinkArgs, CreateOk>(call, reply)?;
            let record = record(Kind::Symlink, named(names, &args.where_));
            learn_created(names, record.path(), &results);
            let to = String::from_utf8_lossy(args.symlink_data.as_ref()).into_owned();
            with_status(Record { to: Some(to), ..record }, &results)
        }
        Proc::REMOVE | Proc::RMDIR => {
            let (args, results) = both::<RemoveArgs, WccData>(call, reply)?;
            let op = if procedure == Proc::REMOVE.0 { Kind::Remove } else { Kind::Rmdir };
            with_status(record(op, named(names, &args.object)), &results)
        }
        Proc::RENAME => {
            let (args, results) = both::<RenameArgs, RenameWcc>(call, reply)?;
            let (from, to) = (named(names, &args.from), named(names, &args.to));
            if let Outcome::Ok(_) = &results {
                names.rename(&from, &to);
            }
            with_status(Record { to: Some(to), ..record(Kind::Rename, from) }, &results)
        }
        Proc::LINK => {
            let (args, results) = both::<LinkArgs, LinkWcc>(call, reply)?;
            let (from, to) = (names.path(args.file.as_ref()), named(names, &args.link));
            with_status(Record { to: Some(to), ..record(Kind::Link, from) }, &results)
        }
        // NULL, MKNOD, FSINFO and PATHCONF.
        _ => Vec::new(),
    })
}

fn learn_created(names: &mut Names, path: &str, results: &Results<CreateOk>) {
    if let Outcome::Ok(CreateOk { obj: Some(handle), .. }) = results {
        names.learn(handle.as_ref(), path);
    }
}

/// A listing is one operation, however many requests it needs: the last one makes it.
fn listing(
    procedure: u32,
    call: &mut Reader,
    reply: &mut Reader,
    names: &mut Names,
    listings: &mut Listings,
    client: IpAddr,
) -> Result<Vec<Record>, DecodeError> {
    let is_plus = procedure == Proc::READDIRPLUS.0;
    let (directory, is_first, status, count, eof);
    if is_plus {
        let (args, results) = both::<ReaddirplusArgs, ReaddirplusOk>(call, reply)?;
        (directory, is_first) = (args.dir, args.cookie == 0);
        let path = names.directory(directory.as_ref());
        match results {
            Outcome::Ok(ok) => {
                for entry in ok.reply.entries.iter().filter(|entry| is_entry(entry.name.as_ref())) {
                    if let Some(handle) = &entry.name_handle {
                        names.learn(handle.as_ref(), &child(&path, entry.name.as_ref()));
                    }
                }
                count = ok.reply.entries.iter().filter(|entry| is_entry(entry.name.as_ref())).count();
                (status, eof) = (None, ok.reply.eof);
            }
            Outcome::Fail(failed, _) => (status, count, eof) = (Some(failed), 0, true),
        }
    } else {
        let (args, results) = both::<ReaddirArgs, ReaddirOk>(call, reply)?;
        (directory, is_first) = (args.dir, args.cookie == 0);
        match results {
            Outcome::Ok(ok) => {
                count = ok.reply.entries.iter().filter(|entry| is_entry(entry.name.as_ref())).count();
                (status, eof) = (None, ok.reply.eof);
            }
            Outcome::Fail(failed, _) => (status, count, eof) = (Some(failed), 0, true),
        }
    }
    let key = (client, Bytes::copy_from_slice(directory.as_ref()));
    let before = listings.0.remove(&key).filter(|_| !is_first).unwrap_or(0);
    let all = before + count as u64;
    if !eof {
        listings.0.insert(key, all);
        return Ok(Vec::new());
    }
    let op = if is_plus { Kind::List } else { Kind::Names };
    let mut record = record(op, names.directory(directory.as_ref()));
    record.result = Some(all);
    Ok(match status.map(|status| errno(status.0)) {
        None => vec![record],
        Some(None) => Vec::new(),
        Some(error) => vec![Record { error, result: None, ..record }],
    })
}

fn is_entry(name: &[u8]) -> bool {
    name != b"." && name != b".."
}
