//! Operations on many files in few compounds, with the current stateid (RFC 8881 §16.2.3.1.2) if files are opened.

use bytes::Bytes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, ShareDeny};
use protocol::nfs4::ops::read::{ReadArgs, ReadOk};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Outcome, StableHow, Stateid, Status};
use xdr::Opaque;

use super::super::Nfs4;
use super::super::batch::{Item, ItemOutcome, SEPARATE, SPREAD, WIDE_SPREAD};
use super::super::convert::{component, set_attributes};
use super::super::getattr::{get_attributes, take_attributes, take_object};
use super::super::open_args::{Wanted, open_owner, share_access};
use super::super::wire::{Results, put, take};
use super::directory::{create_op, list_ops, take_page};
use super::object::set_ops;
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::many::{ListPart, NewDirectory, NewEntry, NewFile, NewKind, ReadFile, Whole};
use crate::opens::OpenMode;
use crate::owner::Owner;
use crate::repeated::find_created;
use crate::results::{DirPage, FileHandle, NewObject, Object};

/// Approximate bytes of an item's request, without names, attributes and data.
pub(super) const REQUEST: usize = 512;
/// Bytes of the results of an item with a handle and attributes, data not counted.
pub(super) const REPLY: usize = 768;

impl Nfs4 {
    /// Opens, reads from the start, and closes; or reads without an open, where the caller allows it, and always in version 4.0, in
    /// which the compound of an OPEN cannot use its stateid. Files longer than requested are not whole.
    pub(crate) async fn read_many(
        &self,
        caller: &Caller,
        files: &[ReadFile<'_>],
    ) -> Vec<Result<Whole, OpError>> {
        let is_unopened = |file: &ReadFile<'_>| file.without_open || !self.has_sessions();
        let opening = |file: &ReadFile<'_>, owner| {
            if is_unopened(file) {
                return unopened(file);
            }
            let open = self.open_op(file.name, owner, OpenMode::READ, OpenHow::NoCreate)?;
            let read = Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: file.count });
            let ops = vec![put(file.directory), open, Op::GetFh, read, get_attributes(), close()];
            Ok(Item { ops, request: REQUEST + file.name.len(), reply: REPLY + file.count as usize })
        };
        self.with_owners(caller, files, opening, |results, file| {
            let (read, attributes) = if is_unopened(file) {
                take_unopened(results, file)?
            } else {
                results.skip_many(3)?;
                (take!(results, Read)?, take_attributes(results)?)
            };
            let data = read.data.into_bytes();
            if data.len() > file.count as usize {
                return Err(OpError::BadReply("more data than requested"));
            }
            Ok(Whole { is_whole: read.eof, data, attributes })
        })
        .await
    }

    /// Creates files with all their data, which are stable afterwards.
    pub(crate) async fn write_many(
        &self,
        caller: &Caller,
        files: &[NewFile<'_>],
    ) -> Vec<Result<Object, OpError>> {
        let directories = files.iter().map(|file| file.directory);
        self.changing_behind_caches(directories, self.write_all(caller, files)).await
    }

    async fn write_all(&self, caller: &Caller, files: &[NewFile<'_>]) -> Vec<Result<Object, OpError>> {
        let written = self.try_several_writes(caller, files).await;
        let mut outcomes: Vec<Option<Result<Object, OpError>>> = files.iter().map(|_| None).collect();
        for (number, object) in written {
            outcomes[number] = Some(Ok(object));
        }
        let is_left = |(file, outcome): (_, &Option<_>)| outcome.is_none().then_some(file);
        let left: Vec<&NewFile<'_>> = files.iter().zip(&outcomes).filter_map(is_left).collect();
        let opening = |file: &&NewFile<'_>, owner| self.write_item(file, owner, OpenMode::WRITE);
        let take = |results: &mut Results, file: &&NewFile<'_>| take_written_file(results, file);
        let mut rest = self.with_owners(caller, &left, opening, take).await.into_iter();
        let mut next = || rest.next().unwrap_or(Err(OpError::BadReply("results are missing")));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(&mut next)).collect()
    }

    /// Returns the item that writes a file.
    pub(super) fn write_item(&self, file: &NewFile<'_>, owner: u32, mode: OpenMode) -> Result<Item, OpError> {
        let set = SetAttributes { size: Some(0), ..SetAttributes::with_mode(file.mode) };
        let how = OpenHow::Create(CreateHow::Unchecked(set_attributes(&set)));
        let mut ops = vec![put(file.directory), self.open_op(file.name, owner, mode, how)?, Op::GetFh];
        ops.extend(write_ops(Stateid::CURRENT, &file.data, &file.set)?);
        ops.extend([get_attributes(), close()]);
        Ok(Item { ops, request: Self::write_request(file), reply: REPLY })
    }

    /// Returns approximately the bytes of [`Self::write_item`] in a request.
    pub(super) fn write_request(file: &NewFile<'_>) -> usize {
        REQUEST + file.name.len() + file.data.len()
    }

    /// Creates empty files and other objects, whose names must be free.
    pub(crate) async fn create_many(
        &self,
        caller: &Caller,
        list: &[NewEntry<'_>],
    ) -> Vec<Result<Object, OpError>> {
        let item = |new: &NewEntry<'_>, owner| {
            let set = SetAttributes::with_mode(new.mode);
            let mut ops = vec![put(new.directory)];
            let mut request = REQUEST + new.name.len();
            match &new.kind {
                NewKind::File => {
                    let how = OpenHow::Create(CreateHow::Guarded(set_attributes(&set)));
                    let open = self.open_op(new.name, owner, OpenMode::WRITE, how)?;
                    ops.extend([open, Op::GetFh, get_attributes(), close()]);
                }
                NewKind::Object(kind) => {
                    if let NewObject::Symlink(target) = kind {
                        request += target.len();
                    }
                    ops.extend([create_op(new.name, kind, &set)?, Op::GetFh, get_attributes()]);
                }
            }
            Ok(Item { ops, request, reply: REPLY })
        };
        let created = self.with_owners(caller, list, item, |results, _| match results.skip_many(2) {
            // A session was lost after it had created the object: the reply to that is lost.
            Err(OpError::Status(Status::EXIST)) if results.is_repeated => Ok(None),
            created => created.and_then(|()| take_object(results)).map(Some),
        });
        let mut outcomes = Vec::with_capacity(list.len());
        let directories = list.iter().map(|new| new.directory);
        for (new, outcome) in list.iter().zip(self.changing_behind_caches(directories, created).await) {
            outcomes.push(match outcome {
                Ok(Some(object)) => Ok(object),
                Ok(None) => self.find_new(caller, new).await,
                Err(error) => Err(error),
            });
        }
        outcomes
    }

    /// Returns the object that a lost request has probably created. A file is not: exclusive creation is used to exclude others.
    async fn find_new(&self, caller: &Caller, new: &NewEntry<'_>) -> Result<Object, OpError> {
        let found = self.lookup(caller, new.directory, new.name).await;
        match &new.kind {
            NewKind::Object(kind) => {
                find_created(found, kind, async |link| self.read_link(caller, link).await).await
            }
            // Nothing tells whether another client has created it.
            NewKind::File => Err(OpError::Status(Status::EXIST)),
        }
    }

    /// Lists parts of directories, with handles and attributes; each in a compound of its own. Linux's servers 6.1 and before assume that
    /// the reply to a READDIR begins in the first page of the whole reply, and crash otherwise.
    pub(crate) async fn list_many(
        &self,
        caller: &Caller,
        parts: &[ListPart],
    ) -> Vec<Result<DirPage, OpError>> {
        let item = |part: &ListPart| {
            let ops = list_ops(part.directory, part.position, part.bytes, true).to_vec();
            Ok(Item { ops, request: REQUEST, reply: REPLY + part.bytes as usize })
        };
        let take = |results: &mut Results, part: &ListPart| take_page(results, part.position.0);
        self.run_many(caller, parts, SEPARATE, item, take).await
    }

    /// Looks up names and returns the existing objects.
    pub(crate) async fn stat_many(
        &self,
        caller: &Caller,
        names: &[(FileHandle, &[u8])],
    ) -> Vec<Result<Object, OpError>> {
        let item = |(directory, name): &(FileHandle, &[u8])| {
            let lookup = Op::Lookup(LookupArgs { name: component(name)? });
            let ops = vec![put(*directory), lookup, Op::GetFh, get_attributes()];
            Ok(Item { ops, request: REQUEST + name.len(), reply: REPLY })
        };
        let take = |results: &mut Results, _: &(FileHandle, &[u8])| {
            results.skip_many(2)?;
            take_object(results)
        };
        self.run_many(caller, names, 1, item, take).await
    }

    /// Creates directories.
    pub(crate) async fn create_directories(
        &self,
        caller: &Caller,
        directories: &[NewDirectory<'_>],
    ) -> Vec<Result<Object, OpError>> {
        let item = |new: &NewDirectory<'_>| {
            let create = CreateArgs {
                object_type: CreateType::DIRECTORY,
                name: component(new.name)?,
                attributes: set_attributes(&SetAttributes::with_mode(new.mode)),
            };
            let ops = vec![put(new.parent), Op::Create(create), Op::GetFh, get_attributes()];
            Ok(Item { ops, request: REQUEST + new.name.len(), reply: REPLY })
        };
        let take = |results: &mut Results, _: &NewDirectory<'_>| match results.skip_many(2) {
            // A session was lost after it had created the directory: the reply to that is lost.
            Err(OpError::Status(Status::EXIST)) if results.is_repeated => Ok(None),
            created => created.and_then(|()| take_object(results)).map(Some),
        };
        let mut outcomes = Vec::with_capacity(directories.len());
        let parents = directories.iter().map(|new| new.parent);
        let creation = self.run_many(caller, directories, WIDE_SPREAD, item, take);
        let created = self.changing_behind_caches(parents, creation).await;
        for (new, outcome) in directories.iter().zip(created) {
            outcomes.push(match outcome {
                Ok(Some(object)) => Ok(object),
                Ok(None) => self.lookup(caller, new.parent, new.name).await,
                Err(error) => Err(error),
            });
        }
        outcomes
    }

    /// Removes names of files or of empty directories.
    pub(crate) async fn remove_many(
        &self,
        caller: &Caller,
        names: &[(FileHandle, &[u8])],
    ) -> Vec<Result<(), OpError>> {
        let item = |(directory, name): &(FileHandle, &[u8])| {
            let remove = Op::Remove(RemoveArgs { target: component(name)? });
            Ok(Item { ops: vec![put(*directory), remove], request: REQUEST + name.len(), reply: 128 })
        };
        let take = |results: &mut Results, _: &(FileHandle, &[u8])| match results.skip_many(2) {
            // A session was lost after it had removed the name: the reply to that is lost.
            Err(OpError::Status(Status::NOENT)) if results.is_repeated => Ok(()),
            removed => removed,
        };
        let directories = names.iter().map(|(directory, _)| *directory);
        self.changing_behind_caches(directories, self.run_many(caller, names, WIDE_SPREAD, item, take)).await
    }

    /// Sets attributes of objects.
    pub(crate) async fn set_attributes_many(
        &self,
        caller: &Caller,
        objects: &[(FileHandle, SetAttributes)],
    ) -> Vec<Result<Attributes, OpError>> {
        let item = |(handle, set): &(FileHandle, SetAttributes)| {
            // No file is open here, so that there is no current stateid (RFC 8881 §8.2.3).
            let mut ops = vec![put(*handle)];
            ops.extend(set_ops(Stateid::ANONYMOUS, set));
            ops.push(get_attributes());
            Ok(Item { ops, request: REQUEST, reply: REPLY })
        };
        let take = |results: &mut Results, _: &(FileHandle, SetAttributes)| {
            // GETATTR is the last, after PUTFH and one or two SETATTRs.
            results.skip_many(results.len().saturating_sub(1).max(2))?;
            take_attributes(results)
        };
        let handles = objects.iter().map(|(handle, _)| *handle);
        self.changing_behind_caches(handles, self.run_many(caller, objects, WIDE_SPREAD, item, take)).await
    }

    /// Runs an item for each of `list`, spread over the given number of compounds; those that cannot be encoded fail at once.
    pub(super) async fn run_many<I, T>(
        &self,
        caller: &Caller,
        list: &[I],
        spread: usize,
        item: impl Fn(&I) -> Result<Item, OpError>,
        take: impl Fn(&mut Results, &I) -> Result<T, OpError>,
    ) -> Vec<Result<T, OpError>> {
        let made: Vec<Result<Item, OpError>> = list.iter().map(item).collect();
        let items = made.iter().filter_map(|made| made.as_ref().ok().cloned()).collect();
        let mut outcomes = self.batch(caller, items, spread).await.into_iter();
        let mut next = || outcomes.next().unwrap_or(Err(OpError::BadReply("results are missing")));
        let of = |(of, made): (&I, Result<Item, OpError>)| {
            made.and_then(|_| next()).and_then(|mut own| take(&mut own, of))
        };
        list.iter().zip(made).map(of).collect()
    }

    /// Runs an item with an open-owner for each of `list`, and closes the files that a failed item has left open.
    async fn with_owners<I, T>(
        &self,
        caller: &Caller,
        list: &[I],
        item: impl Fn(&I, u32) -> Result<Item, OpError>,
        take: impl Fn(&mut Results, &I) -> Result<T, OpError>,
    ) -> Vec<Result<T, OpError>> {
        if let Err(error) = self.session().await {
            return list.iter().map(|_| Err(error.clone())).collect();
        }
        let owners: Vec<Owner> = list.iter().map(|_| self.opens.take_owner()).collect();
        let made: Vec<_> = list.iter().zip(&owners).map(|(of, owner)| item(of, owner.number())).collect();
        let items = made.iter().filter_map(|made| made.as_ref().ok().cloned()).collect();
        let mut outcomes = self.batch(caller, items, SPREAD).await.into_iter();
        let mut taken = Vec::with_capacity(list.len());
        for (of, made) in list.iter().zip(made) {
            let outcome: ItemOutcome = match made {
                Ok(_) => outcomes.next().unwrap_or(Err(OpError::BadReply("results are missing"))),
                Err(error) => Err(error),
            };
            if let Ok(results) = &outcome {
                self.close_left_open(caller, results).await;
            }
            taken.push(outcome.and_then(|mut results| take(&mut results, of)));
        }
        for owner in owners {
            self.opens.free_owner(owner);
        }
        taken
    }

    /// Closes the file of an item that failed between OPEN and CLOSE.
    pub(super) async fn close_left_open(&self, caller: &Caller, results: &Results) {
        let (mut opened, mut handle) = (None, None);
        for result in results.all() {
            match result {
                OpResult::Open(Outcome::Ok(open)) => opened = Some(open.stateid),
                OpResult::GetFh(Outcome::Ok(of)) => handle = Some(*of),
                OpResult::Close(Outcome::Ok(_)) => return,
                _ => {}
            }
        }
        if let (Some(open_stateid), Some(handle)) = (opened, handle) {
            let close = Op::Close(CloseArgs { seqid: 0, open_stateid });
            // The item has failed already: the result of CLOSE does not matter.
            let _ = self.compound(caller, &[put(handle), close], true).await;
        }
    }

    fn open_op(&self, name: &[u8], owner: u32, mode: OpenMode, how: OpenHow) -> Result<Op, OpError> {
        Ok(Op::Open(OpenArgs {
            seqid: 0,
            share_access: share_access(mode, 1, Wanted::NONE),
            share_deny: ShareDeny::empty(),
            // RFC 8881 §18.16.3: the client ID here "MUST be ignored by the server".
            owner: open_owner(0, owner),
            how,
            claim: OpenClaim::Null(component(name)?),
        }))
    }
}

/// CLOSE of the file that the compound has opened.
pub(super) fn close() -> Op {
    Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT })
}

/// Returns the operations that write all data of a file, and then set attributes.
pub(super) fn write_ops(stateid: Stateid, data: &Bytes, set: &SetAttributes) -> Result<Vec<Op>, OpError> {
    let mut ops = Vec::new();
    if !data.is_empty() {
        let data = Opaque::new(data.clone())
            .map_err(|_| OpError::Invalid(Errno::EINVAL, "more data than one WRITE can carry"))?;
        ops.push(Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::FileSync, data }));
    }
    if !set.is_empty() {
        ops.extend(set_ops(stateid, set));
    }
    Ok(ops)
}

/// Takes the results of [`Nfs4::write_item`] up to GETATTR.
pub(super) fn take_written_file(results: &mut Results, file: &NewFile<'_>) -> Result<Object, OpError> {
    results.skip_many(2)?;
    let handle = take!(results, GetFh)?;
    let attributes = take_written(results, file.data.len(), &file.set)?;
    Ok(Object { handle, attributes })
}

/// Takes the results of [`write_ops`] and of the GETATTR that follows, and returns the attributes.
pub(super) fn take_written(
    results: &mut Results,
    length: usize,
    set: &SetAttributes,
) -> Result<Attributes, OpError> {
    if length > 0 {
        let written = take!(results, Write)?;
        if written.count as usize != length || written.committed < StableHow::FileSync {
            return Err(OpError::Invalid(Errno::EIO, "the server wrote less than the file"));
        }
    }
    if !set.is_empty() {
        results.skip_many(set_ops(Stateid::ANONYMOUS, set).count())?;
    }
    let attributes = take_attributes(results)?;
    if attributes.size != set.size.unwrap_or(length as u64) {
        return Err(OpError::Invalid(Errno::EIO, "the server kept other content of the file"));
    }
    Ok(attributes)
}

/// Returns the operations that read a file by the anonymous stateid (RFC 8881 §8.2.3).
fn unopened(file: &ReadFile<'_>) -> Result<Item, OpError> {
    let mut ops = match file.handle {
        Some(handle) => vec![put(handle)],
        None => {
            vec![put(file.directory), Op::Lookup(LookupArgs { name: component(file.name)? })]
        }
    };
    let read = Op::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: file.count });
    // The attributes come first: those after the READ could be newer than its data.
    ops.extend([get_attributes(), read]);
    Ok(Item { ops, request: REQUEST + file.name.len(), reply: REPLY + file.count as usize })
}

/// Takes the results of [`unopened`].
fn take_unopened(results: &mut Results, file: &ReadFile<'_>) -> Result<(ReadOk, Attributes), OpError> {
    results.skip_many(if file.handle.is_some() { 1 } else { 2 })?;
    let attributes = take_attributes(results)?;
    match take!(results, Read) {
        // OPEN has a status of its own for symbolic links (RFC 8881 §18.16.3).
        Err(OpError::Status(_)) if attributes.kind == FileKind::Symlink => {
            Err(OpError::Status(Status::SYMLINK))
        }
        read => Ok((read?, attributes)),
    }
}
