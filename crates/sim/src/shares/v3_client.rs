//! A client of version 3 that reads and writes files that others may deny.

use std::time::Duration;

use bytes::Bytes;
use protocol::mount::{self, DirPath, MountResult};
use protocol::nfs3::{
    CreateArgs, CreateHow, CreateResult, DirOpArgs, FileHandle, Filename, NfsStat, Outcome, PROGRAM, Proc,
    ReadArgs, ReadResult, Sattr, StableHow, VERSION, WriteArgs, WriteResult,
};
use rpc::message::parse_reply;
use xdr::Opaque;

use super::FILES;
use super::share_model::ShareModel;
use crate::call_slot::CallSlot;
use crate::client::call_v3;
use crate::rng::Rng;

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Mount,
    Create,
    Read(u64),
    Write(u64),
}

/// The client.
#[derive(Debug)]
pub(super) struct V3Client {
    slot: CallSlot<Purpose>,
    root: Option<FileHandle>,
    files: Vec<FileHandle>,
    left: u32,
}

impl V3Client {
    pub(super) fn new(left: u32, rng: &mut Rng) -> Self {
        Self { slot: CallSlot::new(rng.next_u64() as u32), root: None, files: Vec::new(), left }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.slot.is_free()
    }

    pub(super) fn retransmit(&mut self, now: Duration) -> Option<Bytes> {
        self.slot.retransmit(now)
    }

    /// Returns the next call, if none is pending.
    pub(super) fn next_call(
        &mut self,
        now: Duration,
        model: &mut ShareModel,
        rng: &mut Rng,
    ) -> Option<Bytes> {
        if !self.slot.is_free() || self.left == 0 {
            return None;
        }
        let Some(root) = self.root else {
            let path = DirPath::from_static(b"/export");
            let program = (mount::PROGRAM, mount::VERSION_3, mount::Proc::MNT.0);
            return Some(self.slot.send(Purpose::Mount, now, |xid| call_v3(xid, program, &path)));
        };
        let call = |proc: Proc| (PROGRAM, VERSION, proc.0);
        if self.files.len() < FILES as usize {
            let name = super::name(self.files.len() as u64).into_bytes();
            let where_ = DirOpArgs { dir: root, name: Filename::new(name).expect("a short name") };
            let args = CreateArgs { where_, how: CreateHow::Unchecked(Sattr::default()) };
            return Some(self.slot.send(Purpose::Create, now, |xid| call_v3(xid, call(Proc::CREATE), &args)));
        }
        self.left -= 1;
        if self.left == 0 {
            model.running -= 1;
            return None;
        }
        let number = rng.below(FILES);
        let file = self.files[number as usize];
        Some(if rng.chance(50) {
            let args = ReadArgs { file, offset: 0, count: 4 };
            self.slot.send(Purpose::Read(number), now, |xid| call_v3(xid, call(Proc::READ), &args))
        } else {
            let (stable, data) = (StableHow::FileSync, Opaque::from_static(b"data"));
            let args = WriteArgs { file, offset: 0, count: 4, stable, data };
            self.slot.send(Purpose::Write(number), now, |xid| call_v3(xid, call(Proc::WRITE), &args))
        })
    }

    /// Handles a message.
    ///
    /// # Errors
    /// Returns the error in it.
    pub(super) fn receive(&mut self, bytes: Bytes, model: &mut ShareModel) -> Result<(), String> {
        let Some((purpose, asked)) = self.slot.match_reply(&bytes) else { return Ok(()) };
        self.slot.free();
        let wrong = |error: rpc::message::RpcError| format!("{purpose:?}: {error}");
        let (status, access) = match purpose {
            Purpose::Mount => match parse_reply::<MountResult>(bytes).map_err(wrong)? {
                MountResult::Ok(ok) => {
                    self.root = Some(ok.fhandle);
                    return Ok(());
                }
                MountResult::Fail(status) => return Err(format!("MNT: {status:?}")),
            },
            Purpose::Create => match parse_reply::<CreateResult>(bytes).map_err(wrong)? {
                Outcome::Ok(ok) => {
                    self.files.push(ok.obj.ok_or("CREATE returned no handle")?);
                    return Ok(());
                }
                other => (other.status(), 0),
            },
            Purpose::Read(_) => (parse_reply::<ReadResult>(bytes).map_err(wrong)?.status(), 1),
            Purpose::Write(_) => (parse_reply::<WriteResult>(bytes).map_err(wrong)?.status(), 2),
        };
        match (purpose, status) {
            (Purpose::Read(file) | Purpose::Write(file), NfsStat::OK) => model.done(file, access, asked),
            (_, NfsStat::JUKEBOX) => {
                model.refused += 1;
                Ok(())
            }
            (purpose, status) => Err(format!("version 3: {purpose:?}: {status:?}")),
        }
    }
}
