//! Whether a server executes compounds of several WRITEs correctly: [`super::super::write_start`] has the reason.

use std::cmp::Reverse;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::{HasStatus, SessionId, Stateid, Status};
use xdr::padding;

use super::super::Nfs4;
use super::super::batch::Item;
use super::super::session::Limits;
use super::super::wire::{OVERHEAD, Results, encode_compound, take};
use super::super::write_start::{SAFE, TRIAL, proven_limit};
use super::many::{REPLY, close, take_written_file};
use super::object::set_ops;
use crate::config::Caller;
use crate::error::OpError;
use crate::many::NewFile;
use crate::opens::OpenMode;
use crate::owner::Owner;
use crate::results::Object;

/// The permissions with which an owner can write a file again, and read it.
const REPEATABLE: u32 = 0o600;

/// Number of operations of a file, without those that set attributes.
const OPERATIONS: usize = 7;

impl Nfs4 {
    /// Writes some of `files` in one compound, unless that was tried before. Returns those that are written, by number; the others
    /// must be written, also if they were part of the compound.
    pub(super) async fn try_several_writes(
        &self,
        caller: &Caller,
        files: &[NewFile<'_>],
    ) -> Vec<(usize, Object)> {
        let Ok(session) = self.session().await else { return Vec::new() };
        let operations = self.compound_size.get(&session.limits);
        let Some(chosen) = choose(files, &session.limits, operations, self.write_start.limit()) else {
            return Vec::new();
        };
        if !self.write_start.starts_trial() {
            return Vec::new();
        }
        let owners: Vec<Owner> = chosen.iter().map(|_| self.opens.take_owner()).collect();
        let written = self.write_chosen(caller, files, &chosen, &owners).await;
        for owner in owners {
            self.opens.free_owner(owner);
        }
        written.unwrap_or_default()
    }

    /// Writes the chosen files in one compound, and reads the last one back.
    async fn write_chosen(
        &self,
        caller: &Caller,
        files: &[NewFile<'_>],
        chosen: &[usize],
        owners: &[Owner],
    ) -> Result<Vec<(usize, Object)>, OpError> {
        let items = self.trial_items(files, chosen, owners)?;
        let ops: Vec<Op> = items.iter().flat_map(|item| item.ops.iter().cloned()).collect();
        let mut results = self.compound(caller, &ops, false).await?;
        let mut written = Vec::with_capacity(chosen.len());
        let (mut read, mut failed) = (None, None);
        for (number, item) in chosen.iter().zip(&items) {
            let own: Vec<OpResult> = results.take_results(item.ops.len());
            let status = own.last().map_or(results.status(), HasStatus::status);
            let mut own = Results::new(status, own, results.is_repeated);
            if status != Status::OK {
                self.close_left_open(caller, &own).await;
                return Err(OpError::Status(status));
            }
            match take_written_file(&mut own, &files[*number]) {
                Ok(object) => written.push((*number, object)),
                Err(error) => failed = Some(error),
            }
            read = Some(take!(own, Read));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let (Some(Ok(read)), Some(last)) = (read, chosen.last()) else { return Ok(Vec::new()) };
        let data = &files[*last].data;
        if read.data.bytes() != data {
            self.write_start.note_wrong();
            return Ok(Vec::new());
        }
        let (record, start) = self.last_write(caller, &ops, data.len());
        match proven_limit(&record, start, data) {
            SAFE => Ok(Vec::new()),
            limit => {
                self.write_start.note_proven(limit);
                // Data that begin beyond the limit may be wrong.
                Ok(if start <= limit { written } else { Vec::new() })
            }
        }
    }

    /// Returns the items of the chosen files. The last one has a READ before its CLOSE.
    fn trial_items(
        &self,
        files: &[NewFile<'_>],
        chosen: &[usize],
        owners: &[Owner],
    ) -> Result<Vec<Item>, OpError> {
        let mut items = Vec::with_capacity(chosen.len());
        for (at, (number, owner)) in chosen.iter().zip(owners).enumerate() {
            let file = &files[*number];
            let is_last = at + 1 == chosen.len();
            let mode = if is_last { OpenMode::BOTH } else { OpenMode::WRITE };
            let mut item = self.write_item(file, owner.number(), mode)?;
            if is_last {
                let read = ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: file.data.len() as u32 };
                item.ops.pop();
                item.ops.extend([Op::Read(read), close()]);
            }
            items.push(item);
        }
        Ok(items)
    }

    /// Returns the record of a compound, and the offset of the data of its last WRITE, which are this long.
    fn last_write(&self, caller: &Caller, ops: &[Op], length: usize) -> (Vec<u8>, usize) {
        let sequence = SequenceArgs::in_first_slot(SessionId::default(), 0);
        let encode = |ops: &[Op]| {
            encode_compound(0, caller.credential(), self.minor_version, Some(sequence), ops).concat()
        };
        let last = ops.iter().rposition(|op| matches!(op, Op::Write(_))).unwrap_or(0);
        let end = encode(&ops[..=last]).len();
        (encode(ops), end - length - padding(length))
    }
}

/// Returns the numbers of files that together make a trial: the data of the last one begin late enough in the request.
fn choose(files: &[NewFile<'_>], limits: &Limits, operations: usize, proven: usize) -> Option<Vec<usize>> {
    // READ is one more.
    let (mut chosen, mut left) = (Vec::new(), operations.saturating_sub(1));
    let (mut request, mut reply, mut data) = (OVERHEAD, OVERHEAD, 0);
    // The largest files first: the number of operations is limited.
    let mut numbers: Vec<usize> = (0..files.len()).collect();
    numbers.sort_by_key(|number| Reverse(files[*number].data.len()));
    for number in numbers {
        let file = &files[number];
        let mode = file.set.mode.unwrap_or(file.mode) & file.mode;
        let fits = request + Nfs4::write_request(file) <= limits.request as usize
            && reply + REPLY + file.data.len() <= limits.response as usize;
        if file.data.is_empty() || mode & REPEATABLE != REPEATABLE || !fits {
            continue;
        }
        let sets = if file.set.is_empty() { 0 } else { set_ops(Stateid::ANONYMOUS, &file.set).count() };
        let Some(rest) = left.checked_sub(OPERATIONS + sets) else { break };
        left = rest;
        chosen.push(number);
        if data >= TRIAL {
            return Some(chosen);
        }
        reply += REPLY;
        request += Nfs4::write_request(file);
        data += file.data.len();
    }
    let last = files[*chosen.last()?].data.len();
    // With less before the last one, a trial proves nothing new.
    (data - last >= proven).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protocol::nfs4::types::Handle;

    use super::*;
    use crate::attributes::SetAttributes;

    const LIMITS: Limits = Limits { request: 1 << 20, response: 1 << 20, operations: 128, in_flight: 4 };

    fn file(length: usize, mode: u32) -> NewFile<'static> {
        let (directory, set) = (Handle::default(), SetAttributes::default());
        NewFile { directory, name: b"name", mode, data: Bytes::from(vec![1; length]), set }
    }

    #[test]
    fn files_of_a_trial_can_be_written_again_and_fill_some_pages() {
        let files = [file(4096, 0o444), file(0, 0o644), file(4096, 0o644), file(4096, 0o600)];
        assert_eq!(choose(&files, &LIMITS, 128, SAFE), Some(vec![2, 3]));
        assert_eq!(choose(&files[..3], &LIMITS, 128, SAFE), None, "one file");
        assert_eq!(choose(&vec![file(100, 0o644); 10], &LIMITS, 128, SAFE), None, "less than a page");
        assert_eq!(choose(&vec![file(4096, 0o644); 100], &LIMITS, 128, SAFE).map(|all| all.len()), Some(5));
        assert_eq!(choose(&vec![file(4096, 0o644); 100], &LIMITS, 22, SAFE).map(|all| all.len()), Some(3));
        let small = Limits { request: 12_000, ..LIMITS };
        assert_eq!(choose(&vec![file(4096, 0o644); 100], &small, 128, SAFE).map(|all| all.len()), Some(2));
        assert_eq!(choose(&files, &LIMITS, 128, 16 << 10), None, "less than was proven before");
    }
}
