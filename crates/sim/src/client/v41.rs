use std::collections::VecDeque;
use std::time::Duration;

use ::client::config::{Caller, Config};
use ::client::raw;
use bytes::{Bytes, BytesMut};
use protocol::nfs4::attributes::{Attributes, FileAttributes};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs};
use protocol::nfs4::ops::xattr::{RemoveXattrArgs, SetXattrArgs, SetXattrOption};
use protocol::nfs4::types::{
    ClientId, Component, HasStatus, Mode, SessionId, StateOwner, Stateid, Status, Utf8,
};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM, VERSION};
use rpc::message::{CallHeader, encode_call, parse_reply, peek};
use xdr::{List, Opaque, Writer};

use super::{Client, Locks, Step, superuser};
use crate::rng::Rng;
use crate::world::Received;

/// A caller for a client with one session and one slot.
#[derive(Debug, Clone)]
pub struct SessionCalls {
    name: String,
    client_id: ClientId,
    create_sequence: u32,
    session: Option<SessionId>,
    /// Sequence number of the slot.
    sequence: u32,
    xid: u32,
    minor: u32,
    /// Flags of CREATE_SESSION.
    flags: CreateSessionFlags,
}

impl SessionCalls {
    /// Creates a client that the server does not know.
    #[must_use]
    pub fn new(name: &str, first_xid: u32) -> Self {
        let name = name.to_owned();
        let (client_id, create_sequence, sequence) = (0, 0, 0);
        let (session, flags) = (None, CreateSessionFlags::empty());
        Self { name, client_id, create_sequence, session, sequence, xid: first_xid, minor: 1, flags }
    }

    /// Makes it request persistent sessions.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { flags: CreateSessionFlags::PERSIST, ..self }
    }

    /// Makes it use version 4.2.
    #[must_use]
    pub fn newer(self) -> Self {
        Self { minor: 2, ..self }
    }

    /// Makes it accept callbacks over the connection of CREATE_SESSION.
    #[must_use]
    pub fn reachable(self) -> Self {
        Self { flags: CreateSessionFlags::CONN_BACK_CHAN, ..self }
    }

    /// Returns EXCHANGE_ID.
    pub fn exchange_id(&mut self) -> Bytes {
        let op = exchange_id(&self.name);
        self.compound(vec![op])
    }

    /// Returns CREATE_SESSION.
    pub fn create_session(&mut self) -> Bytes {
        let op = create_session(self.client_id, self.create_sequence, self.flags);
        self.compound(vec![op])
    }

    /// Returns a compound with the slot's next sequence number.
    pub fn in_session(&mut self, ops: Vec<Op>) -> Bytes {
        self.sequence += 1;
        let plain = SequenceArgs::in_first_slot(self.session.expect("a session"), self.sequence);
        let sequence = Op::Sequence(SequenceArgs { cache_this: true, ..plain });
        self.compound(std::iter::once(sequence).chain(ops).collect())
    }

    /// Reuses the sequence number of the last request, which the server did not execute.
    pub fn take_back(&mut self) {
        self.sequence -= 1;
    }

    /// Returns the client's open-owner.
    #[must_use]
    pub fn owner(&self) -> StateOwner {
        let owner = Opaque::new(self.name.clone().into_bytes()).expect("a short name");
        StateOwner { client_id: self.client_id, owner }
    }

    /// Handles the results of EXCHANGE_ID and CREATE_SESSION.
    ///
    /// # Errors
    /// Returns the results if they failed.
    pub fn learn(&mut self, result: &CompoundResult) -> Result<(), String> {
        match result.results.first() {
            Some(OpResult::ExchangeId(result)) => {
                let ok = result.clone().into_result().map_err(|status| format!("EXCHANGE_ID: {status:?}"))?;
                (self.client_id, self.create_sequence) = (ok.client_id, ok.sequence_id);
                Ok(())
            }
            Some(OpResult::CreateSession(result)) => {
                let ok =
                    result.clone().into_result().map_err(|status| format!("CREATE_SESSION: {status:?}"))?;
                (self.session, self.sequence) = (Some(ok.session_id), 0);
                Ok(())
            }
            other => Err(format!("expected EXCHANGE_ID or CREATE_SESSION: {other:?}")),
        }
    }

    fn compound(&mut self, ops: Vec<Op>) -> Bytes {
        self.xid += 1;
        compound(self.xid, self.minor, ops)
    }

    /// Returns OPEN of a name in `/export`.
    #[must_use]
    pub fn open(&self, name: &str, access: ShareAccess, deny: ShareDeny, how: OpenHow) -> Vec<Op> {
        let open = OpenArgs {
            seqid: 0,
            share_access: access,
            share_deny: deny,
            owner: self.owner(),
            how,
            claim: OpenClaim::Null(component(name)),
        };
        let mut ops = export();
        ops.push(Op::Open(open));
        ops
    }
}

/// Returns the configuration of a client with few slots and small messages.
pub(super) fn config(name: &str) -> Config {
    Config {
        slots: 4,
        read_size: 60 << 10,
        write_size: 60 << 10,
        ..Config::new("the server", name.as_bytes(), [1; 8], Caller::anonymous())
    }
}

/// Returns EXCHANGE_ID of a client.
pub(crate) fn exchange_id(name: &str) -> Op {
    raw::exchange_id(&config(name)).expect("a short name")
}

/// Returns CREATE_SESSION of a client.
pub(crate) fn create_session(client_id: ClientId, sequence: u32, flags: CreateSessionFlags) -> Op {
    raw::create_session(&config("any"), flags, client_id, sequence)
}

/// Returns the operations that look up a name in `/export`.
#[must_use]
pub fn at_export(name: &str) -> Vec<Op> {
    let mut ops = export();
    ops.push(Op::Lookup(LookupArgs { name: component(name) }));
    ops
}

/// Returns the operations that look up `/export`.
#[must_use]
pub fn export() -> Vec<Op> {
    vec![Op::PutRootFh, Op::Lookup(LookupArgs { name: component("export") })]
}

pub(crate) fn component(name: &str) -> Component {
    Component::new(name.to_owned().into_bytes()).expect("short names")
}

/// Returns a call with another transaction number.
pub(super) fn renumbered(record: &[u8], xid: u32) -> Bytes {
    let mut renumbered = BytesMut::from(record);
    renumbered[..4].copy_from_slice(&xid.to_be_bytes());
    renumbered.freeze()
}

/// Returns the record of a COMPOUND by the superuser.
pub(crate) fn compound(xid: u32, minor_version: u32, ops: Vec<Op>) -> Bytes {
    let header =
        CallHeader { credential: superuser(), ..CallHeader::new(xid, PROGRAM, VERSION, PROC_COMPOUND) };
    let ops = List::new(ops).expect("few operations");
    let mut writer = Writer::new();
    encode_call(&mut writer, &header, &CompoundArgs { tag: Utf8::default(), minor_version, ops });
    writer.into_bytes()
}

/// A client of NFS version 4.1 or 4.2 with one slot.
#[derive(Debug)]
pub struct ClientV41 {
    calls: SessionCalls,
    script: VecDeque<Step>,
    is_settled: bool,
    /// The last created file.
    file: String,
    locks: Locks,
}

impl ClientV41 {
    /// Creates a client that runs `script`.
    #[must_use]
    pub fn new(name: &str, script: Vec<Step>, first_xid: u32) -> Self {
        let calls = SessionCalls::new(name, first_xid);
        Self { calls, script: script.into(), is_settled: false, file: String::new(), locks: Locks::default() }
    }

    /// Records the locks that it obtains.
    #[must_use]
    pub fn with_locks(self, locks: Locks) -> Self {
        Self { locks, ..self }
    }

    /// Makes it use version 4.2.
    #[must_use]
    pub fn newer(self) -> Self {
        Self { calls: self.calls.newer(), ..self }
    }

    /// Makes it request persistent sessions.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { calls: self.calls.lasting(), ..self }
    }

    fn encode_step(&mut self, step: &Step) -> Vec<Op> {
        let Some((name, how)) = step.created() else { return change(step, &self.file) };
        // RFC 8881 §18.16.3: "With persistent sessions, exclusive create semantics are fully achievable via GUARDED4, and so
        // EXCLUSIVE4 or EXCLUSIVE4_1 MUST NOT be used."
        let is_lasting = self.calls.flags.contains(CreateSessionFlags::PERSIST);
        let how = if is_lasting { Step::guarded() } else { how };
        name.clone_into(&mut self.file);
        let mut ops = self.calls.open(name, ShareAccess::BOTH, ShareDeny::empty(), how);
        ops.push(Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }));
        ops
    }
}

/// Returns the operations of a step other than the creation of a file; `file` is the last created one.
pub(crate) fn change(step: &Step, file: &str) -> Vec<Op> {
    let mut ops = export();
    let at_file = |file: &str| Op::Lookup(LookupArgs { name: component(file) });
    match step {
        Step::Create(_) | Step::CreateExclusive(_) => unreachable!("created by OPEN"),
        Step::SetAttr(mode) => {
            let attributes = FileAttributes::from(&Attributes {
                mode: Some(Mode::from_bits_retain(*mode)),
                ..Attributes::default()
            });
            let set = protocol::nfs4::ops::setattr::SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes };
            ops.extend([at_file(file), Op::SetAttr(set)]);
        }
        Step::Write(offset) => {
            let write = protocol::nfs4::ops::write::WriteArgs {
                stateid: Stateid::ANONYMOUS,
                offset: *offset,
                stable: protocol::nfs4::types::StableHow::FileSync,
                data: Opaque::from_static(b"data"),
            };
            ops.extend([at_file(file), Op::Write(write)]);
        }
        Step::Link(from, to) => {
            ops.extend([at_file(from), Op::SaveFh]);
            ops.extend(export());
            ops.push(Op::Link(LinkArgs { new_name: component(to) }));
        }
        Step::Rename(from, to) => {
            ops.push(Op::SaveFh);
            ops.push(Op::Rename(RenameArgs { old_name: component(from), new_name: component(to) }));
        }
        Step::Remove(name) | Step::Rmdir(name) => {
            ops.push(Op::Remove(RemoveArgs { target: component(name) }));
        }
        Step::Mkdir(name) | Step::Lock(name) => ops.push(create(name, CreateType::DIRECTORY)),
        Step::Symlink(name) => ops.push(create(name, CreateType::Link(Opaque::from_static(b"target")))),
        Step::Mkfifo(name) => ops.push(create(name, CreateType::FIFO)),
        Step::SetXattr(name) => {
            let (option, key) = (SetXattrOption::CREATE, component(name));
            let set = SetXattrArgs { option, key, value: Opaque::from_static(b"value") };
            ops.extend([at_file(file), Op::SetXattr(set)]);
        }
        Step::RemoveXattr(name) => {
            ops.extend([at_file(file), Op::RemoveXattr(RemoveXattrArgs { name: component(name) })]);
        }
    }
    ops
}

fn create(name: &str, object_type: CreateType) -> Op {
    Op::Create(CreateArgs { object_type, name: component(name), attributes: FileAttributes::default() })
}

impl Client for ClientV41 {
    fn next_call(&mut self, _: Duration) -> Option<Bytes> {
        if self.calls.client_id == 0 {
            return Some(self.calls.exchange_id());
        }
        if self.calls.session.is_none() {
            return Some(self.calls.create_session());
        }
        if !self.is_settled {
            let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
            return Some(self.calls.in_session(vec![complete]));
        }
        let step = self.script.front()?.clone();
        let ops = self.encode_step(&step);
        Some(self.calls.in_session(ops))
    }

    fn receive(&mut self, bytes: Bytes) -> Result<Received, String> {
        let (xid, _) = peek(&bytes).map_err(|error| error.to_string())?;
        if xid != self.calls.xid {
            return Ok(Received::NotMine);
        }
        let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
        let step = self.script.front().cloned();
        match result.status {
            Status::OK => {
                if let (true, Some(Step::Lock(name))) = (self.is_settled, &step) {
                    self.locks.lock().push(name.clone());
                }
            }
            Status::EXIST if matches!(step, Some(Step::Lock(_))) && self.is_settled => {}
            // RFC 8881 §18.46.3: the server was restarted. Get a new client ID and session, and repeat the call.
            Status::BADSESSION | Status::DEADSESSION => {
                (self.calls.client_id, self.calls.session, self.is_settled) = (0, None, false);
                return Ok(Received::Answered);
            }
            // RFC 8881 §2.10.6.2: the request still runs; its reply will be in the slot.
            Status::DELAY => return Ok(Received::Later),
            // RFC 8881 §8.4.2.1: the grace period still runs.
            Status::GRACE => return Ok(Received::Answered),
            // RFC 8881 §18.35.4: a late copy of EXCHANGE_ID replaced the unconfirmed record. Start over.
            Status::STALE_CLIENTID if self.calls.session.is_none() => {
                self.calls.client_id = 0;
                return Ok(Received::Answered);
            }
            status => {
                let failed = result.results.last().map(HasStatus::status);
                return Err(format!("{step:?}: {status:?} ({failed:?}), as if it were executed twice"));
            }
        }
        if self.calls.session.is_none() {
            self.calls.learn(&result)?;
        } else if !self.is_settled {
            self.is_settled = true;
        } else {
            self.script.pop_front();
        }
        Ok(Received::Answered)
    }

    /// Sometimes uses a new transaction number, like a client after a reconnect: the slot identifies the request, not the number.
    fn retransmit(&mut self, bytes: Bytes, rng: &mut Rng) -> Bytes {
        if !rng.chance(50) {
            return bytes;
        }
        self.calls.xid += 1;
        renumbered(&bytes, self.calls.xid)
    }

    fn is_done(&self) -> bool {
        self.is_settled && self.script.is_empty()
    }
}
