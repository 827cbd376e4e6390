use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use protocol::nfs4::attributes::SetAttributes;
use protocol::nfs4::callback::offload::{CbOffloadArgs, OffloadInfo};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::copy::{CopyArgs, CopyResult, OffloadArgs};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Handle, Outcome, SessionId, StableHow, Stateid, Status};
use server::Connection;
use xdr::{List, Opaque};

use super::World;
use crate::backchannel::BackChannel;
use crate::client::{compound, create_session, exchange_id};
use crate::copy_ops::{bind, called, open, opened, putfh, succeeded};

const MIB: u64 = 1 << 20;
/// Longer than a synchronous copy.
const LENGTH: u64 = 20 * MIB;
/// Content at the start of each MiB of the source.
const MARK: &[u8] = b"a mark";
/// Maximum number of copies that a client waits for.
const RUNNING_MAX: usize = 3;

/// A copy that a client waits for, or has cancelled.
#[derive(Debug, Clone, Copy)]
struct Copy {
    stateid: Stateid,
    to: Handle,
}

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    /// Number of its incarnation.
    start: u64,
    connection: Arc<Connection>,
    session: SessionId,
    client_id: u64,
    sequence: u32,
    files: usize,
    running: Vec<Copy>,
    /// Content at the marks of each cancelled copy's file, at the cancellation.
    cancelled: Vec<(Handle, Vec<u8>)>,
    back: BackChannel,
}

impl Client {
    pub(super) fn new(index: usize, world: &mut World) -> Self {
        let connection = world.connect(index);
        let mut client = Self {
            index,
            start: 0,
            connection,
            session: SessionId::default(),
            client_id: 0,
            sequence: 0,
            files: 0,
            running: Vec::new(),
            cancelled: Vec::new(),
            back: BackChannel::default(),
        };
        client.introduce(world).expect("a server that has just started accepts every client");
        client
    }

    pub(super) fn waits(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn asked(&self) -> usize {
        self.files
    }

    fn introduce(&mut self, world: &mut World) -> Result<(), String> {
        let name = format!("client-{}-{}", self.index, self.start);
        let OpResult::ExchangeId(Outcome::Ok(known)) =
            world.ask_alone(&self.connection, exchange_id(&name))?
        else {
            return Err("EXCHANGE_ID".into());
        };
        let flags = CreateSessionFlags::CONN_BACK_CHAN;
        let create = create_session(known.client_id, known.sequence_id, flags);
        let OpResult::CreateSession(Outcome::Ok(made)) = world.ask_alone(&self.connection, create)? else {
            return Err("CREATE_SESSION".into());
        };
        (self.client_id, self.session, self.sequence) = (known.client_id, made.session_id, 0);
        self.back.clear();
        self.ask(world, vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })])?;
        // The server tests the back channel first.
        self.receive(world, false)
    }

    /// Returns the results of operations in the session, without SEQUENCE.
    fn ask(&mut self, world: &mut World, ops: Vec<Op>) -> Result<(Vec<OpResult>, Status), String> {
        self.sequence += 1;
        let sequence = Op::Sequence(SequenceArgs::in_first_slot(self.session, self.sequence));
        let call = compound(self.sequence, 2, std::iter::once(sequence).chain(ops).collect());
        let (mut results, status) = world.ask(&self.connection, call)?;
        results.remove(0);
        Ok((results, status))
    }

    fn ok(&mut self, world: &mut World, ops: Vec<Op>) -> Result<Vec<OpResult>, String> {
        succeeded(self.ask(world, ops)?)
    }

    /// Opens a file, which is created if needed; returns its handle and the stateid.
    fn open(&mut self, world: &mut World, name: &str) -> Result<(Handle, Stateid), String> {
        opened(&self.ok(world, open(self.client_id, name))?)
    }

    /// Creates a source with a mark in each MiB, and holes between.
    pub(super) fn make_source(&mut self, world: &mut World) -> Result<(), String> {
        let (handle, stateid) = self.open(world, "source")?;
        let size = SetAttributes { size: Some(LENGTH), ..SetAttributes::default() }.to_file_attributes();
        let set = Op::SetAttr(SetAttrArgs { stateid, attributes: size });
        self.ok(world, vec![putfh(handle), set])?;
        for offset in marks() {
            let (stable, data) = (StableHow::FileSync, Opaque::from_static(MARK));
            let write = Op::Write(WriteArgs { stateid, offset, stable, data });
            self.ok(world, vec![putfh(handle), write])?;
        }
        Ok(())
    }

    /// Starts a copy.
    pub(super) fn copy(&mut self, world: &mut World) -> Result<(), String> {
        if self.running.len() >= RUNNING_MAX {
            return Ok(());
        }
        self.files += 1;
        let (from, source_stateid) = self.open(world, "source")?;
        let (to, destination_stateid) = self.open(world, &format!("file-{}-{}", self.index, self.files))?;
        let copy = Op::Copy(CopyArgs {
            source_stateid,
            destination_stateid,
            source_offset: 0,
            destination_offset: 0,
            count: 0,
            consecutive: true,
            synchronous: false,
            source_servers: List::default(),
        });
        let results = self.ok(world, vec![putfh(from), Op::SaveFh, putfh(to), copy])?;
        let Some(OpResult::Copy(CopyResult::Ok(done))) = results.last() else {
            return Err(format!("{results:?}"));
        };
        match done.response.callback_id.first() {
            Some(stateid) => self.running.push(Copy { stateid: *stateid, to }),
            None if done.response.count == LENGTH => self.is_whole(world, to)?,
            None => return Err(format!("{done:?}")),
        }
        Ok(())
    }

    pub(super) fn renew(&mut self, world: &mut World) -> Result<(), String> {
        self.ok(world, Vec::new()).map(drop)
    }

    /// Checks that the server knows a copy that this client waits for.
    pub(super) fn ask_status(&mut self, world: &mut World) -> Result<(), String> {
        let Some(copy) = self.choose(world) else { return Ok(()) };
        let op = Op::OffloadStatus(OffloadArgs { stateid: copy.stateid });
        match &self.ok(world, vec![putfh(copy.to), op])?[..] {
            [_, OpResult::OffloadStatus(Outcome::Ok(status))] if status.count <= LENGTH => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    pub(super) fn cancel(&mut self, world: &mut World) -> Result<(), String> {
        let Some(copy) = self.choose(world) else { return Ok(()) };
        let op = Op::OffloadCancel(OffloadArgs { stateid: copy.stateid });
        self.ok(world, vec![putfh(copy.to), op])?;
        self.running.retain(|other| other.stateid != copy.stateid);
        let found = self.read_marks(world, copy.to)?;
        self.cancelled.push((copy.to, found));
        Ok(())
    }

    fn choose(&self, world: &mut World) -> Option<Copy> {
        let count = self.running.len() as u64;
        (count > 0).then(|| self.running[world.rng.below(count) as usize])
    }

    /// Handles pending callbacks. Sometimes one is lost, or its reply, with the connection.
    pub(super) fn receive(&mut self, world: &mut World, is_wild: bool) -> Result<(), String> {
        let context = Context::from_waker(Waker::noop());
        while let Poll::Ready(call) = self.connection.outbox.poll_record(&context) {
            world.messages += 1;
            if is_wild && world.rng.chance(20) {
                return self.reconnect(world);
            }
            let Some(answer) = self.called(world, call)? else { continue };
            if is_wild && world.rng.chance(20) {
                return self.reconnect(world);
            }
            world.deliver(&Arc::clone(&self.connection), answer);
        }
        Ok(())
    }

    fn reconnect(&mut self, world: &mut World) -> Result<(), String> {
        self.move_on(world);
        match world.ask_alone(&self.connection, bind(self.session))? {
            OpResult::BindConnToSession(Outcome::Ok(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Breaks the connection, and opens a new one.
    fn move_on(&mut self, world: &mut World) {
        self.connection.outbox.close();
        world.server.connection_closed(self.connection.id);
        self.connection = world.connect(self.index);
    }

    /// Returns the reply to a callback.
    fn called(&mut self, world: &mut World, bytes: Bytes) -> Result<Option<Bytes>, String> {
        let mut back = std::mem::take(&mut self.back);
        let answer = called(&mut back, bytes, |offload| self.copy_ended(world, offload));
        self.back = back;
        answer
    }

    /// Checks that a copy that has ended is pending and complete.
    fn copy_ended(&mut self, world: &mut World, offload: &CbOffloadArgs) -> Result<(), String> {
        let is_it = |copy: &Copy| (copy.stateid, copy.to) == (offload.stateid, offload.handle);
        let Some(place) = self.running.iter().position(is_it) else {
            // The copy was cancelled meanwhile.
            let was_cancelled = self.cancelled.iter().any(|(to, _)| *to == offload.handle);
            return if was_cancelled { Ok(()) } else { Err(format!("unexpected CB_OFFLOAD: {offload:?}")) };
        };
        let copy = self.running.swap_remove(place);
        match &offload.info {
            OffloadInfo::Ok(response) if response.count == LENGTH => self.is_whole(world, copy.to),
            other => Err(format!("{other:?}")),
        }
    }

    fn is_whole(&mut self, world: &mut World, file: Handle) -> Result<(), String> {
        let found = self.read_marks(world, file)?;
        let expected = MARK.repeat(marks().count());
        if found == expected { Ok(()) } else { Err("a copy that has ended is not complete".into()) }
    }

    /// Reads the content at the source's marks.
    fn read_marks(&mut self, world: &mut World, file: Handle) -> Result<Vec<u8>, String> {
        let mut found = Vec::new();
        for offset in marks() {
            let (stateid, count) = (Stateid::ANONYMOUS, MARK.len() as u32);
            let read = Op::Read(ReadArgs { stateid, offset, count });
            match &self.ok(world, vec![putfh(file), read])?[..] {
                [_, OpResult::Read(Outcome::Ok(read))] => found.extend_from_slice(&read.data),
                other => return Err(format!("{other:?}")),
            }
        }
        Ok(found)
    }

    /// Handles a restart of the server, which knows no copies.
    pub(super) fn handle_restart(&mut self, world: &mut World) -> Result<(), String> {
        self.connection = world.connect(self.index);
        self.introduce(world)?;
        for Copy { stateid, to } in std::mem::take(&mut self.running) {
            for op in [Op::OffloadStatus(OffloadArgs { stateid }), Op::OffloadCancel(OffloadArgs { stateid })]
            {
                match self.ask(world, vec![putfh(to), op])? {
                    (_, Status::BAD_STATEID) => {}
                    other => return Err(format!("{other:?} for a copy of an earlier server")),
                }
            }
        }
        Ok(())
    }

    /// Evicts the client, and starts a new incarnation.
    pub(super) fn start_over(&mut self, world: &mut World) -> Result<(), String> {
        let name = format!("client-{}-{}", self.index, self.start);
        world.server.evict(world.time(), &name).map_err(|error| format!("{error:?}"))?;
        let left = std::mem::take(&mut self.running);
        self.start += 1;
        self.move_on(world);
        self.introduce(world)?;
        for Copy { to, .. } in left {
            let found = self.read_marks(world, to)?;
            self.cancelled.push((to, found));
        }
        Ok(())
    }

    /// Checks the invariants at the end.
    pub(super) fn check(&mut self, world: &mut World) -> Result<(), String> {
        for (file, then) in std::mem::take(&mut self.cancelled) {
            if self.read_marks(world, file)? != then {
                return Err("a copy continued after its cancellation".into());
            }
        }
        Ok(())
    }
}

fn marks() -> impl Iterator<Item = u64> {
    (0..LENGTH / MIB).map(|number| number * MIB)
}
