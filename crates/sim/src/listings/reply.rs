//! Requests for listings, and their replies.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::nfs3::{self, DirOpArgs, FileHandle, Filename, Proc, Sattr};
use protocol::nfs4::attributes::{Attributes as Told4, number as n};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::types::{Bitmap, Outcome};
use rpc::message::parse_reply;
use server::ExportId;
use vfs::{Attributes, Handle, Timestamp};
use xdr::Opaque;

use super::{KEY, NAMES};
use crate::client::{at_export, call_v3, compound};
use crate::rng::Rng;

/// By name.
pub(super) type Entries<T> = BTreeMap<Vec<u8>, T>;

/// An actual entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActualEntry {
    pub(super) handle: Handle,
    pub(super) attributes: Attributes,
}

/// An entry of a reply; attributes that it lacks are `None`.
#[derive(Debug)]
pub(super) struct ReplyEntry {
    fileid: u64,
    size: Option<u64>,
    mode: Option<u32>,
    modified: Option<Timestamp>,
    accessed: Option<Timestamp>,
    change: Option<u64>,
}

/// The kind of listing.
#[derive(Debug, Clone, Copy)]
pub(super) enum ListingKind {
    Nfs3,
    Nfs3Plus,
    Nfs4,
}

/// Bytes of a listing; more than the directory takes.
const ROOM: u32 = 16_384;

impl ListingKind {
    pub(super) fn any(rng: &mut Rng) -> Self {
        [Self::Nfs3, Self::Nfs3Plus, Self::Nfs4][rng.below(3) as usize]
    }

    pub(super) fn call(self, xid: u32, directory: &Handle) -> Bytes {
        let dir = wire(directory);
        match self {
            Self::Nfs3 => {
                let args = nfs3::ReaddirArgs { dir, cookie: 0, cookieverf: [0; 8], count: ROOM };
                call_v3(xid, of(Proc::READDIR), &args)
            }
            Self::Nfs3Plus => {
                let (dircount, maxcount) = (ROOM, ROOM);
                let args = nfs3::ReaddirplusArgs { dir, cookie: 0, cookieverf: [0; 8], dircount, maxcount };
                call_v3(xid, of(Proc::READDIRPLUS), &args)
            }
            Self::Nfs4 => {
                let asked = [n::CHANGE, n::SIZE, n::FILEID, n::MODE, n::TIME_ACCESS, n::TIME_MODIFY];
                let list = Op::ReadDir(ReadDirArgs {
                    cookie: 0,
                    cookie_verifier: [0; 8],
                    dircount: ROOM,
                    maxcount: ROOM,
                    attributes: Bitmap::of(&asked),
                });
                let mut ops = at_export("d");
                ops.push(list);
                compound(xid, 0, ops)
            }
        }
    }

    /// Returns the entries of a reply.
    ///
    /// # Errors
    /// It is not a listing, or incomplete.
    pub(super) fn entries(self, reply: Bytes) -> Result<Entries<ReplyEntry>, String> {
        let wrong = |error: rpc::message::RpcError| format!("{self:?}: {error}");
        let (entries, is_whole): (Vec<_>, bool) = match self {
            Self::Nfs3 => match parse_reply::<nfs3::ReaddirResult>(reply).map_err(wrong)? {
                nfs3::Outcome::Ok(ok) => {
                    let listed = |entry: &nfs3::Entry| (entry.name.to_vec(), ReplyEntry::name(entry.fileid));
                    (ok.reply.entries.iter().map(listed).collect(), ok.reply.eof)
                }
                other => return Err(format!("READDIR: {:?}", other.status())),
            },
            Self::Nfs3Plus => match parse_reply::<nfs3::ReaddirplusResult>(reply).map_err(wrong)? {
                nfs3::Outcome::Ok(ok) => {
                    let listed = |entry: &nfs3::EntryPlus| (entry.name.to_vec(), ReplyEntry::nfs3(entry));
                    (ok.reply.entries.iter().map(listed).collect(), ok.reply.eof)
                }
                other => return Err(format!("READDIRPLUS: {:?}", other.status())),
            },
            Self::Nfs4 => {
                let result: CompoundResult = parse_reply(reply).map_err(wrong)?;
                let Some(OpResult::ReadDir(Outcome::Ok(ok))) = result.results.last() else {
                    return Err(format!("READDIR: {:?}", result.status));
                };
                let listed = ok.entries.iter().map(|entry| {
                    let seen = Told4::from_file_attributes(&entry.attributes).unwrap_or_default();
                    (entry.name.to_vec(), ReplyEntry::nfs4(&seen))
                });
                (listed.collect(), ok.eof)
            }
        };
        let are_real = entries.into_iter().filter(|(name, _)| name != b"." && name != b"..");
        if is_whole { Ok(are_real.collect()) } else { Err(format!("{self:?} is incomplete")) }
    }
}

impl ReplyEntry {
    fn name(fileid: u64) -> Self {
        Self { fileid, size: None, mode: None, modified: None, accessed: None, change: None }
    }

    fn nfs3(entry: &nfs3::EntryPlus) -> Self {
        let Some(seen) = &entry.name_attributes else { return Self::name(entry.fileid) };
        let time =
            |time: nfs3::NfsTime| Timestamp { seconds: i64::from(time.seconds), nanoseconds: time.nseconds };
        Self {
            fileid: entry.fileid,
            size: Some(seen.size),
            mode: Some(seen.mode),
            modified: Some(time(seen.mtime)),
            accessed: Some(time(seen.atime)),
            change: None,
        }
    }

    fn nfs4(seen: &Told4) -> Self {
        let time = |time: protocol::nfs4::types::Time| Timestamp {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        };
        Self {
            fileid: seen.fileid.unwrap_or(0),
            size: seen.size,
            mode: seen.mode.map(|mode| mode.bits()),
            modified: seen.time_modify.map(time),
            accessed: seen.time_access.map(time),
            change: seen.change,
        }
    }

    /// Returns whether it agrees with the actual entry.
    fn shows(&self, is: &Attributes, with_access: bool) -> bool {
        self.fileid == is.fileid
            && self.size.is_none_or(|size| size == is.size)
            && self.mode.is_none_or(|mode| mode == is.mode)
            && self.modified.is_none_or(|time| time == is.modified)
            && self.change.is_none_or(|change| change == is.change)
            && (!with_access || self.accessed.is_none_or(|time| time == is.accessed))
    }
}

/// Returns whether a listing agrees with the directory's content.
pub(super) fn shows(listed: &Entries<ReplyEntry>, is: &Entries<ActualEntry>, with_access: bool) -> bool {
    listed.len() == is.len()
        && listed
            .iter()
            .all(|(name, listed)| is.get(name).is_some_and(|is| listed.shows(&is.attributes, with_access)))
}

/// Returns a random name.
pub(super) fn name(rng: &mut Rng) -> Vec<u8> {
    format!("entry-{}", rng.below(NAMES)).into_bytes()
}

/// Returns a call of version 3 that changes the directory, or this entry.
pub(super) fn change(xid: u32, directory: &Handle, entry: Option<Handle>, rng: &mut Rng) -> Bytes {
    let at = |name| DirOpArgs { dir: wire(directory), name: Filename::new(name).expect("a short name") };
    match (rng.below(5), entry) {
        (0, Some(file)) => {
            let new_attributes = Sattr { mode: Some(rng.below(512) as u32), ..Sattr::default() };
            let args = nfs3::SetattrArgs { object: wire(&file), new_attributes, guard: None };
            call_v3(xid, of(Proc::SETATTR), &args)
        }
        (1, Some(file)) => {
            let (offset, data) = (rng.below(100), Opaque::from_static(b"data"));
            let stable = nfs3::StableHow::FileSync;
            let args = nfs3::WriteArgs { file: wire(&file), offset, count: 4, stable, data };
            call_v3(xid, of(Proc::WRITE), &args)
        }
        (2, _) => call_v3(xid, of(Proc::REMOVE), &at(name(rng))),
        (3, _) => {
            let args = nfs3::RenameArgs { from: at(name(rng)), to: at(name(rng)) };
            call_v3(xid, of(Proc::RENAME), &args)
        }
        _ => {
            let how = nfs3::CreateHow::Unchecked(Sattr::default());
            call_v3(xid, of(Proc::CREATE), &nfs3::CreateArgs { where_: at(name(rng)), how })
        }
    }
}

fn of(procedure: Proc) -> (u32, u32, u32) {
    (nfs3::PROGRAM, nfs3::VERSION, procedure.0)
}

fn wire(handle: &Handle) -> FileHandle {
    FileHandle::new(&KEY.seal(ExportId(1), handle)).expect("it fits")
}
