use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::mount::{self, DirPath, MountResult};
use protocol::nfs3::*;
use rpc::message::{CallHeader, encode_call, parse_reply, peek};
use xdr::{Encode, Opaque, Writer};

use super::{Client, Locks, Step, VERIFIER, superuser};
use crate::world::Received;

/// A client of MOUNT and NFS version 3.
#[derive(Debug)]
pub struct ClientV3 {
    script: VecDeque<Step>,
    xid: u32,
    root: Option<FileHandle>,
    /// The last created file, and its change time.
    file: FileHandle,
    ctime: NfsTime,
    locks: Locks,
}

impl ClientV3 {
    /// Creates a client that runs `script`.
    #[must_use]
    pub fn new(script: Vec<Step>, first_xid: u32) -> Self {
        Self {
            script: script.into(),
            xid: first_xid,
            root: None,
            file: FileHandle::default(),
            ctime: NfsTime::default(),
            locks: Locks::default(),
        }
    }

    /// Records the locks that it obtains.
    #[must_use]
    pub fn with_locks(self, locks: Locks) -> Self {
        Self { locks, ..self }
    }

    fn call(&mut self, program: u32, version: u32, procedure: u32, args: &impl Encode) -> Bytes {
        self.xid += 1;
        call_v3(self.xid, (program, version, procedure), args)
    }

    fn nfs(&mut self, procedure: Proc, args: &impl Encode) -> Bytes {
        self.call(PROGRAM, VERSION, procedure.0, args)
    }

    fn at(&self, name: &str) -> DirOpArgs {
        let name = Filename::new(name.to_owned().into_bytes()).expect("short names");
        DirOpArgs { dir: self.root.expect("mounted first"), name }
    }

    fn encode_step(&mut self, step: &Step) -> Bytes {
        let sattr = Sattr::default();
        match step {
            Step::Create(name) => {
                let args = CreateArgs { where_: self.at(name), how: CreateHow::Guarded(sattr) };
                self.nfs(Proc::CREATE, &args)
            }
            Step::CreateExclusive(name) => {
                let args = CreateArgs { where_: self.at(name), how: CreateHow::Exclusive(VERIFIER) };
                self.nfs(Proc::CREATE, &args)
            }
            Step::SetAttr(mode) => {
                let new_attributes = Sattr { mode: Some(*mode), ..sattr };
                let args = SetattrArgs { object: self.file, new_attributes, guard: Some(self.ctime) };
                self.nfs(Proc::SETATTR, &args)
            }
            Step::Write(offset) => {
                let data = Opaque::from_static(b"data");
                let args = WriteArgs {
                    file: self.file,
                    offset: *offset,
                    count: 4,
                    stable: StableHow::FileSync,
                    data,
                };
                self.nfs(Proc::WRITE, &args)
            }
            Step::Link(_, to) => {
                let args = LinkArgs { file: self.file, link: self.at(to) };
                self.nfs(Proc::LINK, &args)
            }
            Step::Rename(from, to) => {
                let args = RenameArgs { from: self.at(from), to: self.at(to) };
                self.nfs(Proc::RENAME, &args)
            }
            Step::Remove(name) => {
                let args = RemoveArgs { object: self.at(name) };
                self.nfs(Proc::REMOVE, &args)
            }
            Step::Rmdir(name) => {
                let args = RemoveArgs { object: self.at(name) };
                self.nfs(Proc::RMDIR, &args)
            }
            Step::Mkdir(name) | Step::Lock(name) => {
                let args = MkdirArgs { where_: self.at(name), attributes: sattr };
                self.nfs(Proc::MKDIR, &args)
            }
            Step::Symlink(name) => {
                let symlink_data = NfsPath::from_static(b"target");
                let args = SymlinkArgs { where_: self.at(name), symlink_attributes: sattr, symlink_data };
                self.nfs(Proc::SYMLINK, &args)
            }
            Step::Mkfifo(name) => {
                let args = MknodArgs { where_: self.at(name), what: MknodData::Fifo(sattr) };
                self.nfs(Proc::MKNOD, &args)
            }
            Step::SetXattr(_) | Step::RemoveXattr(_) => unreachable!("not in version 3"),
        }
    }

    /// Returns the status of a step's results, and keeps data that later steps need.
    fn decode_step(&mut self, step: &Step, bytes: Bytes) -> Result<NfsStat, String> {
        let wrong = |error: rpc::message::RpcError| format!("{step:?}: {error}");
        Ok(match step {
            Step::Create(_) | Step::CreateExclusive(_) => {
                let result: CreateResult = parse_reply(bytes).map_err(wrong)?;
                if let Outcome::Ok(ok) = &result {
                    self.file = ok.obj.ok_or("CREATE returned no handle")?;
                    self.ctime = ok.obj_attributes.ok_or("CREATE returned no attributes")?.ctime;
                }
                result.status()
            }
            Step::Mkdir(_) | Step::Symlink(_) | Step::Mkfifo(_) | Step::Lock(_) => {
                parse_reply::<CreateResult>(bytes).map_err(wrong)?.status()
            }
            Step::SetAttr(_) => parse_reply::<SetattrResult>(bytes).map_err(wrong)?.status(),
            Step::Write(_) => parse_reply::<WriteResult>(bytes).map_err(wrong)?.status(),
            Step::Link(..) => parse_reply::<LinkResult>(bytes).map_err(wrong)?.status(),
            Step::Rename(..) => parse_reply::<RenameResult>(bytes).map_err(wrong)?.status(),
            Step::Remove(_) | Step::Rmdir(_) => parse_reply::<RemoveResult>(bytes).map_err(wrong)?.status(),
            Step::SetXattr(_) | Step::RemoveXattr(_) => unreachable!("not in version 3"),
        })
    }
}

/// Returns the record of a call by the superuser.
pub(crate) fn call_v3(xid: u32, (program, version, procedure): (u32, u32, u32), args: &impl Encode) -> Bytes {
    let header = CallHeader { credential: superuser(), ..CallHeader::new(xid, program, version, procedure) };
    let mut writer = Writer::new();
    encode_call(&mut writer, &header, args);
    writer.into_bytes()
}

impl Client for ClientV3 {
    fn next_call(&mut self, _: Duration) -> Option<Bytes> {
        if self.root.is_none() {
            let path = DirPath::from_static(b"/export");
            return Some(self.call(mount::PROGRAM, mount::VERSION_3, mount::Proc::MNT.0, &path));
        }
        let step = self.script.front()?.clone();
        Some(self.encode_step(&step))
    }

    fn receive(&mut self, bytes: Bytes) -> Result<Received, String> {
        let (xid, _) = peek(&bytes).map_err(|error| error.to_string())?;
        if xid != self.xid {
            return Ok(Received::NotMine);
        }
        if self.root.is_none() {
            match parse_reply::<MountResult>(bytes).map_err(|error| error.to_string())? {
                MountResult::Ok(ok) => self.root = Some(ok.fhandle),
                MountResult::Fail(status) => return Err(format!("MNT: {status:?}")),
            }
            return Ok(Received::Answered);
        }
        let step = self.script.front().cloned().ok_or("an answer without a call")?;
        match (self.decode_step(&step, bytes)?, &step) {
            (NfsStat::OK, Step::Lock(name)) => self.locks.lock().push(name.clone()),
            (NfsStat::OK, _) | (NfsStat::EXIST, Step::Lock(_)) => {}
            (NfsStat::JUKEBOX, _) => return Ok(Received::Later),
            (status, _) => return Err(format!("{step:?}: {status:?}, as if it were executed twice")),
        }
        self.script.pop_front();
        Ok(Received::Answered)
    }

    fn is_done(&self) -> bool {
        self.root.is_some() && self.script.is_empty()
    }
}
