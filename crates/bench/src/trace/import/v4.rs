//! Operations of NFS version 4: each operation of a compound that a program could have done.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::create::CreateType;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, ShareAccess};
use protocol::nfs4::ops::read_plus::ReadPlusContent;
use protocol::nfs4::types::{FileType, HasStatus as _, Outcome, Stateid, Status};

use super::errno;
use super::names::{Names, child};
use crate::targets::How;
use crate::trace::format::{Flags, Kind, Record};

/// Identifies a state of a client at a server; without its sequence number, which changes.
type StateKey = (IpAddr, SocketAddr, [u8; 12]);

/// The open files of all clients, and their listings that need several requests.
#[derive(Default)]
pub(super) struct State {
    files: u64,
    open: HashMap<StateKey, u64>,
    listings: HashMap<(IpAddr, String), u64>,
}

/// What the operations of one compound refer to.
struct Compound<'s> {
    state: &'s mut State,
    names: &'s mut Names,
    client: IpAddr,
    server: SocketAddr,
    current: String,
    saved: String,
    records: Vec<Record>,
    /// The operation of a compound that only looks at something.
    looked: Option<Record>,
}

impl State {
    /// Returns the operations of a compound.
    pub(super) fn compound(
        &mut self,
        call: &CompoundArgs,
        reply: &CompoundResult,
        names: &mut Names,
        (client, server): (IpAddr, SocketAddr),
    ) -> Vec<Record> {
        let (current, saved) = (String::new(), String::new());
        let (records, looked) = (Vec::new(), None);
        let mut compound = Compound { state: self, names, client, server, current, saved, records, looked };
        for (op, result) in call.ops.iter().zip(reply.results.iter()) {
            compound.operation(op, result);
        }
        if compound.records.is_empty() {
            return compound.looked.into_iter().collect();
        }
        compound.records
    }
}

impl Compound<'_> {
    fn operation(&mut self, op: &Op, result: &OpResult) {
        let status = result.status();
        match op {
            Op::PutFh(args) if status == Status::OK => self.current = self.names.path(args.handle.as_ref()),
            Op::PutRootFh | Op::PutPubFh => self.current = String::new(),
            Op::SaveFh => self.saved = self.current.clone(),
            Op::RestoreFh => self.current = self.saved.clone(),
            Op::Lookup(args) => {
                self.current = self.child(args.name.as_ref());
                self.look(status);
            }
            Op::LookupParent => {
                self.current = self.current.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
            }
            Op::GetFh => {
                if let OpResult::GetFh(Outcome::Ok(ok)) = result {
                    self.names.learn(ok.as_ref(), &self.current);
                }
            }
            Op::Access(_) => self.look(status),
            Op::GetAttr(_) => {
                self.look(status);
                if let OpResult::GetAttr(Outcome::Ok(ok)) = result {
                    self.attributes(ok);
                }
            }
            Op::Open(args) => self.open(args, result),
            Op::Close(args) => {
                if let Some(file) = self.state.open.remove(&self.key(&args.open_stateid)) {
                    self.add(Record { file: Some(file), ..self.record(Kind::Close) }, status);
                }
            }
            Op::Read(_) | Op::ReadPlus(_) | Op::Write(_) | Op::Commit(_) | Op::Lock(_) | Op::LockU(_) => {
                self.data(op, result);
            }
            _ => self.name(op, result),
        }
    }

    fn key(&self, stateid: &Stateid) -> StateKey {
        (self.client, self.server, stateid.other)
    }

    fn record(&self, op: Kind) -> Record {
        Record { path: Some(self.current.clone()), ..Record::new(op) }
    }

    /// Returns the path of a name in the current directory.
    fn child(&mut self, name: &[u8]) -> String {
        self.names.is_directory(&self.current);
        child(&self.current, name)
    }

    /// Adds an operation, unless its client repeats it.
    fn add(&mut self, mut record: Record, status: Status) {
        if status != Status::OK {
            let Some(error) = errno(status.0) else { return };
            record.error = Some(error);
            record.result = None;
        }
        self.records.push(record);
    }

    /// Remembers that the current object was looked at.
    fn look(&mut self, status: Status) {
        let error = if status == Status::OK { None } else { errno(status.0) };
        if status == Status::OK || error.is_some() {
            self.looked = Some(Record { error, ..self.record(Kind::Stat) });
        }
    }

    fn attributes(&mut self, attributes: &FileAttributes) {
        let Ok(attributes) = Attributes::from_file_attributes(attributes) else { return };
        let is_directory = attributes.file_type == Some(FileType::DIRECTORY);
        if is_directory {
            self.names.is_directory(&self.current);
        }
        let last = self.records.last_mut().filter(|record| record.op == Kind::Open);
        let Some(record) = last.or(self.looked.as_mut()) else { return };
        if record.path() == self.current {
            record.size = attributes.size.or(record.size);
            record.directory = is_directory && record.op == Kind::Stat;
        }
    }

    fn open(&mut self, args: &OpenArgs, result: &OpResult) {
        let OpResult::Open(result) = result else { return };
        if let Some(name) = args.claim.name() {
            self.current = self.child(name.as_ref());
        }
        if matches!(args.claim, OpenClaim::Previous(_)) {
            return;
        }
        let truncates = |set: &FileAttributes| {
            SetAttributes::from_file_attributes(set, SetAttributes::FIELDS)
                .is_ok_and(|set| set.size == Some(0))
        };
        let (create, truncate) = match &args.how {
            OpenHow::NoCreate => (false, false),
            OpenHow::Create(CreateHow::Unchecked(set) | CreateHow::Guarded(set)) => (true, truncates(set)),
            OpenHow::Create(_) => (true, false),
        };
        let access = args.share_access;
        let (read, write) = (access.contains(ShareAccess::READ), access.contains(ShareAccess::WRITE));
        let how = Some(Flags(How { read, write, create, truncate, sync: false }));
        let mut record = Record { how, ..self.record(Kind::Open) };
        if let Outcome::Ok(ok) = result {
            let key = self.key(&ok.stateid);
            if self.state.open.contains_key(&key) {
                // A further open of the same owner: the file has one state, and one close.
            } else {
                self.state.files += 1;
                record.file = Some(self.state.files);
                self.state.open.insert(key, self.state.files);
            }
        }
        self.add(record, result.status());
    }

    /// Operations on the data of the current file.
    fn data(&mut self, op: &Op, result: &OpResult) {
        let transfer = |offset, length: u32, result: Option<u64>| {
            let length = u64::from(length);
            (Some(offset), Some(length), result.map(|result| result.min(length)))
        };
        let none = (None, None, None);
        let (kind, stateid, (offset, length, moved)) = match (op, result) {
            (Op::Read(args), OpResult::Read(result)) => {
                let read = result.as_result().ok().map(|ok| ok.data.len() as u64);
                (Kind::Read, Some(args.stateid), transfer(args.offset, args.count, read))
            }
            (Op::ReadPlus(args), OpResult::ReadPlus(result)) => {
                let length = |content: &ReadPlusContent| match content {
                    ReadPlusContent::Data(data) => data.data.len() as u64,
                    ReadPlusContent::Hole(hole) => hole.length,
                    ReadPlusContent::Other(_) => 0,
                };
                let read = result.as_result().ok().map(|ok| ok.contents.iter().map(length).sum());
                (Kind::Read, Some(args.stateid), transfer(args.offset, args.count, read))
            }
            (Op::Write(args), OpResult::Write(result)) => {
                let written = result.as_result().ok().map(|ok| u64::from(ok.count));
                (Kind::Write, Some(args.stateid), transfer(args.offset, args.data.len() as u32, written))
            }
            (Op::Commit(_), _) => (Kind::Sync, None, none),
            (Op::Lock(_), _) => (Kind::Lock, None, none),
            (Op::LockU(_), _) => (Kind::Unlock, None, none),
            _ => return,
        };
        let file = stateid.and_then(|stateid| self.state.open.get(&self.key(&stateid))).copied();
        let record = Record { file, offset, length, result: moved, ..self.record(kind) };
        self.add(record, result.status());
    }

    /// Operations on names and attributes.
    fn name(&mut self, op: &Op, result: &OpResult) {
        let status = result.status();
        match op {
            Op::ReadLink => self.add(self.record(Kind::Readlink), status),
            Op::Remove(args) => {
                let path = self.child(args.target.as_ref());
                let kind = if self.names.knows_directory(&path) { Kind::Rmdir } else { Kind::Remove };
                self.add(Record { path: Some(path), ..Record::new(kind) }, status);
            }
            Op::Rename(args) => {
                let from = child(&self.saved, args.old_name.as_ref());
                let to = self.child(args.new_name.as_ref());
                if status == Status::OK {
                    self.names.rename(&from, &to);
                }
                let record = Record { path: Some(from), to: Some(to), ..Record::new(Kind::Rename) };
                self.add(record, status);
            }
            Op::Link(args) => {
                let to = self.child(args.new_name.as_ref());
                let record =
                    Record { path: Some(self.saved.clone()), to: Some(to), ..Record::new(Kind::Link) };
                self.add(record, status);
            }
            Op::Create(args) => {
                self.current = self.child(args.name.as_ref());
                let record = match &args.object_type {
                    CreateType::Link(text) => {
                        let to = String::from_utf8_lossy(text.as_ref()).into_owned();
                        Record { to: Some(to), ..self.record(Kind::Symlink) }
                    }
                    kind if kind.file_type() == FileType::DIRECTORY => {
                        self.names.is_directory(&self.current);
                        self.record(Kind::Mkdir)
                    }
                    _ => return,
                };
                self.add(record, status);
            }
            Op::SetAttr(args) => {
                let set = SetAttributes::from_file_attributes(&args.attributes, SetAttributes::FIELDS);
                let Ok(set) = set else { return };
                let record = match (set.size, set.mode) {
                    (Some(size), _) => Record { length: Some(size), ..self.record(Kind::SetSize) },
                    (None, Some(mode)) => Record { mode: Some(mode.bits()), ..self.record(Kind::Chmod) },
                    _ => self.record(Kind::Touch),
                };
                self.add(record, status);
            }
            Op::ReadDir(args) => self.listing(args.cookie == 0, result),
            // Sessions, leases, delegations, layouts, copies, extended attributes.
            _ => {}
        }
    }

    /// A listing is one operation, however many requests it needs: the last one makes it.
    fn listing(&mut self, is_first: bool, result: &OpResult) {
        let OpResult::ReadDir(result) = result else { return };
        self.names.is_directory(&self.current);
        let key = (self.client, self.current.clone());
        let before = self.state.listings.remove(&key).filter(|_| !is_first).unwrap_or(0);
        let mut all = before;
        if let Outcome::Ok(ok) = result {
            for entry in ok.entries.iter() {
                all += 1;
                let Ok(attributes) = Attributes::from_file_attributes(&entry.attributes) else { continue };
                let path = child(&self.current, entry.name.as_ref());
                if attributes.file_type == Some(FileType::DIRECTORY) {
                    self.names.is_directory(&path);
                }
                if let Some(handle) = &attributes.filehandle {
                    self.names.learn(handle.as_ref(), &path);
                }
            }
            if !ok.eof {
                self.state.listings.insert(key, all);
                return;
            }
        }
        self.add(Record { result: Some(all), ..self.record(Kind::List) }, result.status());
    }
}
