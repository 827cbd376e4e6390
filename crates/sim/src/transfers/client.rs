use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::offload::{CbOffloadArgs, OffloadInfo};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::copy::{CopyArgs, CopyNotifyArgs, CopyNotifyOk, CopyResult, OffloadArgs};
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs, SequenceStatus};
use protocol::nfs4::types::{Handle, NetAddress, NetLocation, Outcome, SessionId, Stateid, Status, Utf8};
use rpc::address::{NetId, UniversalAddress};
use server::{Connection, Server};
use xdr::Writer;

use super::{DESTINATION, LEASE, LENGTH, SOURCE, World};
use crate::backchannel::BackChannel;
use crate::client::{compound, create_session, exchange_id};
use crate::copy_ops::{bind, called, open, opened, putfh, succeeded};

/// Maximum number of copies that a client waits for.
const RUNNING_MAX: usize = 3;
/// The slots of COPYs; the first is for other requests.
const SLOTS: usize = 1 + RUNNING_MAX;

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Source,
    Destination,
}

/// A client's session at a server.
#[derive(Debug)]
struct ServerSession {
    role: Role,
    name: String,
    connection: Arc<Connection>,
    session: SessionId,
    client_id: u64,
    sequences: [u32; SLOTS],
    /// Whether callbacks do not reach it.
    is_unreachable: bool,
}

impl ServerSession {
    fn new(role: Role, index: usize, world: &mut World) -> Result<Self, String> {
        let mut session_at = Self {
            role,
            name: format!("client-{index}"),
            connection: connect(role, index, world),
            session: SessionId::default(),
            client_id: 0,
            sequences: [0; SLOTS],
            is_unreachable: false,
        };
        session_at.introduce(world)?;
        Ok(session_at)
    }

    fn server(&self, world: &World) -> Arc<Server> {
        let side = if self.role == Role::Source { &world.source } else { &world.destination };
        Arc::clone(&side.server)
    }

    fn introduce(&mut self, world: &mut World) -> Result<(), String> {
        let OpResult::ExchangeId(Outcome::Ok(known)) = self.ask_alone(world, exchange_id(&self.name))? else {
            return Err("EXCHANGE_ID".into());
        };
        let create = create_session(known.client_id, known.sequence_id, CreateSessionFlags::CONN_BACK_CHAN);
        let OpResult::CreateSession(Outcome::Ok(made)) = self.ask_alone(world, create)? else {
            return Err("CREATE_SESSION".into());
        };
        (self.client_id, self.session, self.sequences) = (known.client_id, made.session_id, [0; SLOTS]);
        match self.ask(world, vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })])? {
            (_, Status::OK | Status::COMPLETE_ALREADY) => Ok(()),
            (_, status) => Err(format!("RECLAIM_COMPLETE: {status:?}")),
        }
    }

    fn ask_alone(&self, world: &mut World, op: Op) -> Result<OpResult, String> {
        world.messages += 1;
        let reply =
            super::deliver(&self.server(world), &self.connection, world.time(), compound(1, 2, vec![op]));
        super::parse(reply)?.0.into_iter().next().ok_or_else(|| "no result".into())
    }

    /// Returns a call in a slot.
    fn call(&mut self, slot: usize, ops: Vec<Op>) -> Bytes {
        self.sequences[slot] += 1;
        let sequence = Op::Sequence(SequenceArgs {
            session_id: self.session,
            sequence_id: self.sequences[slot],
            slot_id: slot as u32,
            highest_slot_id: SLOTS as u32 - 1,
            cache_this: false,
        });
        compound(self.sequences[slot], 2, std::iter::once(sequence).chain(ops).collect())
    }

    /// Returns the results of operations in the session, without SEQUENCE.
    fn ask(&mut self, world: &mut World, ops: Vec<Op>) -> Result<(Vec<OpResult>, Status), String> {
        world.messages += 1;
        let call = self.call(0, ops);
        let reply = super::deliver(&self.server(world), &self.connection, world.time(), call);
        let (mut results, status) = super::parse(reply)?;
        let sequence = results.remove(0);
        if let OpResult::Sequence(Outcome::Ok(ok)) = sequence {
            let down = SequenceStatus::CB_PATH_DOWN | SequenceStatus::CB_PATH_DOWN_SESSION;
            self.is_unreachable = ok.status_flags.intersects(down);
        }
        Ok((results, status))
    }

    fn ok(&mut self, world: &mut World, ops: Vec<Op>) -> Result<Vec<OpResult>, String> {
        succeeded(self.ask(world, ops)?).map_err(|why| format!("{:?}: {why}", self.role))
    }

    /// Opens a file, which is created if needed; returns its handle and the stateid.
    fn open(&mut self, world: &mut World, name: &str) -> Result<(Handle, Stateid), String> {
        opened(&self.ok(world, open(self.client_id, name))?)
    }

    /// Breaks the connection, and opens a new one.
    fn move_on(&mut self, index: usize, world: &mut World) {
        self.connection.outbox.close();
        self.server(world).connection_closed(self.connection.id);
        self.connection = connect(self.role, index, world);
    }
}

/// A copy that a client waits for.
#[derive(Debug, Clone)]
struct Copy {
    stateid: Stateid,
    to: Handle,
    name: String,
}

/// A pending COPY.
struct Asking {
    slot: usize,
    to: Handle,
    name: String,
    /// When COPY_NOTIFY was sent to the source.
    promised: Duration,
    running: Pin<Box<dyn Future<Output = Option<Bytes>>>>,
}

/// A client of the scenario.
pub(super) struct Client {
    index: usize,
    there: ServerSession,
    here: ServerSession,
    files: usize,
    /// Copies that were reported as complete.
    whole: usize,
    asking: Vec<Asking>,
    running: Vec<Copy>,
    /// Content of each cancelled copy's file, at the cancellation.
    cancelled: Vec<(Copy, Vec<u8>)>,
    back: BackChannel,
}

impl Client {
    pub(super) fn new(index: usize, world: &mut World) -> Result<Self, String> {
        let mut client = Self {
            index,
            there: ServerSession::new(Role::Source, index, world)?,
            here: ServerSession::new(Role::Destination, index, world)?,
            files: 0,
            whole: 0,
            asking: Vec::new(),
            running: Vec::new(),
            cancelled: Vec::new(),
            back: BackChannel::default(),
        };
        // The server tests the back channel first.
        client.receive(world, false)?;
        Ok(client)
    }

    pub(super) fn waits(&self) -> bool {
        self.asks() || !self.running.is_empty()
    }

    /// Returns whether a COPY is pending.
    pub(super) fn asks(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Describes the event that it waits for.
    pub(super) fn describe(&self) -> String {
        let asked: Vec<_> = self.asking.iter().map(|asking| &asking.name).collect();
        let running: Vec<_> = self.running.iter().map(|copy| &copy.name).collect();
        format!("asked {asked:?}, running {running:?}")
    }

    pub(super) fn whole(&self) -> usize {
        self.whole
    }

    /// Starts a copy.
    pub(super) fn copy(&mut self, world: &mut World) -> Result<(), String> {
        if self.running.len() + self.asking.len() >= RUNNING_MAX {
            return Ok(());
        }
        self.files += 1;
        let name = format!("file-{}-{}", self.index, self.files);
        let (from, source_stateid) = self.there.open(world, "source")?;
        let destination_server = location();
        let notify = Op::CopyNotify(CopyNotifyArgs { source_stateid, destination_server });
        let promised = match self.there.ask(world, vec![putfh(from), notify])? {
            (results, Status::OK) => promise(results)?,
            // The source has reached its limit of COPY_NOTIFY stateids.
            (_, Status::DELAY) => return Ok(()),
            (_, status) => return Err(format!("COPY_NOTIFY: {status:?}")),
        };
        let (to, destination_stateid) = self.here.open(world, &name)?;
        let copy = Op::Copy(CopyArgs {
            source_stateid: promised.stateid,
            destination_stateid,
            source_offset: 0,
            destination_offset: 0,
            count: 0,
            consecutive: true,
            synchronous: world.rng.chance(30),
            source_servers: promised.source_servers,
        });
        let is_free = |slot: &usize| self.asking.iter().all(|asking| asking.slot != *slot);
        let slot = (1..SLOTS).find(is_free).ok_or("no slot")?;
        let call = self.here.call(slot, vec![putfh(from), Op::SaveFh, putfh(to), copy]);
        world.messages += 1;
        let (server, connection, now) =
            (self.here.server(world), Arc::clone(&self.here.connection), world.time());
        let running = Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, call, &mut reply).await;
            (outcome.disposition == server::Disposition::Reply).then(|| reply.into_bytes())
        });
        self.asking.push(Asking { slot, to, name, promised: world.now, running });
        Ok(())
    }

    /// Handles replies to COPYs.
    pub(super) fn poll(&mut self, world: &mut World) -> Result<(), String> {
        let mut context = Context::from_waker(Waker::noop());
        for mut asking in std::mem::take(&mut self.asking) {
            match asking.running.as_mut().poll(&mut context) {
                Poll::Pending => self.asking.push(asking),
                Poll::Ready(reply) => {
                    let (results, status) = super::parse(reply)?;
                    // RFC 7862 §15.3.3: the COPY_NOTIFY stateid may expire before the transfer starts.
                    if status == Status::PARTNER_NO_AUTH && asking.promised + LEASE <= world.now {
                        continue;
                    }
                    self.answered(world, (asking.to, asking.name), results.last(), status)?;
                }
            }
        }
        Ok(())
    }

    fn answered(
        &mut self,
        world: &World,
        (to, name): (Handle, String),
        result: Option<&OpResult>,
        status: Status,
    ) -> Result<(), String> {
        match (result, status) {
            (Some(OpResult::Copy(CopyResult::Ok(done))), _) => match done.response.callback_id.first() {
                Some(stateid) => self.running.push(Copy { stateid: *stateid, to, name }),
                None => self.is_there(world, &name, done.response.count)?,
            },
            // RFC 7862 §11.1.2.1: the client "should fall back to the normal copy semantics"; or retry; or start over.
            (_, Status::OFFLOAD_DENIED | Status::DELAY | Status::BADSESSION) => {}
            // Its lease has expired.
            (_, Status::BAD_STATEID | Status::EXPIRED) => {}
            (_, status) => return Err(format!("COPY: {status:?}")),
        }
        Ok(())
    }

    /// Checks that the reported bytes were copied.
    fn is_there(&mut self, world: &World, name: &str, count: u64) -> Result<(), String> {
        let (found, expected) = (world.content(name), &world.expected);
        let count = usize::try_from(count).map_err(|error| error.to_string())?;
        if count > LENGTH || found.get(..count) != expected.get(..count) {
            return Err(format!("{count} bytes of {name} are reported, but {} exist", found.len()));
        }
        self.whole += usize::from(count == LENGTH);
        Ok(())
    }

    /// Renews both leases; starts over if one was lost.
    pub(super) fn renew(&mut self, world: &mut World) -> Result<(), String> {
        match self.there.ask(world, Vec::new()) {
            Ok((_, Status::OK)) => {}
            _ => self.there.introduce(world)?,
        }
        match self.here.ask(world, Vec::new()) {
            // A callback was not answered in time.
            Ok((_, Status::OK)) if self.here.is_unreachable => self.reconnect(world)?,
            Ok((_, Status::OK)) => {}
            _ => {
                self.here.introduce(world)?;
                self.running.clear();
                self.back.clear();
                self.receive(world, false)?;
            }
        }
        Ok(())
    }

    /// Checks that the server knows a copy that this client waits for.
    pub(super) fn ask_status(&mut self, world: &mut World) -> Result<(), String> {
        let Some(copy) = self.choose(world) else { return Ok(()) };
        let op = Op::OffloadStatus(OffloadArgs { stateid: copy.stateid });
        match &self.here.ok(world, vec![putfh(copy.to), op])?[..] {
            [_, OpResult::OffloadStatus(Outcome::Ok(status))] => {
                let whole = self.whole;
                self.is_there(world, &copy.name, status.count)?;
                self.whole = whole;
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    pub(super) fn cancel(&mut self, world: &mut World) -> Result<(), String> {
        let Some(copy) = self.choose(world) else { return Ok(()) };
        let op = Op::OffloadCancel(OffloadArgs { stateid: copy.stateid });
        let call = self.here.call(0, vec![putfh(copy.to), op]);
        let (server, connection, now) =
            (self.here.server(world), Arc::clone(&self.here.connection), world.time());
        let mut reply = Writer::new();
        let mut cancelled = Box::pin(server.handle(&connection, now, call, &mut reply));
        let mut context = Context::from_waker(Waker::noop());
        // It waits for the running step, which does not wait for the source.
        for _ in 0..2 {
            if let Poll::Ready(outcome) = cancelled.as_mut().poll(&mut context) {
                drop(cancelled);
                let is_reply = outcome.disposition == server::Disposition::Reply;
                let (_, status) = super::parse(is_reply.then(|| reply.into_bytes()))?;
                if status != Status::OK {
                    return Err(format!("OFFLOAD_CANCEL: {status:?}"));
                }
                self.running.retain(|other| other.stateid != copy.stateid);
                let found = world.content(&copy.name);
                self.cancelled.push((copy, found));
                return Ok(());
            }
            world.drive();
        }
        Err("OFFLOAD_CANCEL is not answered although nothing is written".into())
    }

    fn choose(&self, world: &mut World) -> Option<Copy> {
        let count = self.running.len() as u64;
        (count > 0).then(|| self.running[world.rng.below(count) as usize].clone())
    }

    /// Handles pending callbacks. Sometimes one is lost, or its reply, with the connection.
    pub(super) fn receive(&mut self, world: &mut World, is_wild: bool) -> Result<(), String> {
        let context = Context::from_waker(Waker::noop());
        while let Poll::Ready(call) = self.here.connection.outbox.poll_record(&context) {
            world.messages += 1;
            if is_wild && world.rng.chance(20) {
                return self.reconnect(world);
            }
            let Some(answer) = self.called(world, call)? else { continue };
            if is_wild && world.rng.chance(20) {
                return self.reconnect(world);
            }
            super::deliver(&self.here.server(world), &self.here.connection, world.time(), answer);
        }
        Ok(())
    }

    /// Reconnects. Replies to pending COPYs go to the old connection and are lost.
    fn reconnect(&mut self, world: &mut World) -> Result<(), String> {
        self.here.move_on(self.index, world);
        match self.here.ask_alone(world, bind(self.here.session))? {
            OpResult::BindConnToSession(Outcome::Ok(_) | Outcome::Error(Status::BADSESSION)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Returns the reply to a callback.
    fn called(&mut self, world: &World, bytes: Bytes) -> Result<Option<Bytes>, String> {
        let mut back = std::mem::take(&mut self.back);
        let answer = called(&mut back, bytes, |offload| self.copy_ended(world, offload));
        self.back = back;
        answer
    }

    /// Checks that a copy that has ended is pending, and that the reported bytes exist.
    fn copy_ended(&mut self, world: &World, offload: &CbOffloadArgs) -> Result<(), String> {
        let is_it = |copy: &Copy| (copy.stateid, copy.to) == (offload.stateid, offload.handle);
        let Some(role) = self.running.iter().position(is_it) else {
            // The copy was cancelled meanwhile.
            let was_cancelled = self.cancelled.iter().any(|(copy, _)| is_it(copy));
            return if was_cancelled { Ok(()) } else { Err(format!("unexpected CB_OFFLOAD: {offload:?}")) };
        };
        let copy = self.running.swap_remove(role);
        match &offload.info {
            OffloadInfo::Ok(response) if response.count == LENGTH as u64 => {
                self.is_there(world, &copy.name, response.count)
            }
            // The source was silent for too long, or has dropped the COPY_NOTIFY stateid.
            OffloadInfo::Error(Status::OFFLOAD_DENIED | Status::PARTNER_NO_AUTH, count)
                if *count < LENGTH as u64 =>
            {
                self.is_there(world, &copy.name, *count)
            }
            other => Err(format!("{other:?}")),
        }
    }

    pub(super) fn handle_source_restart(&mut self, world: &mut World) -> Result<(), String> {
        self.there.connection = connect(Role::Source, self.index, world);
        self.there.introduce(world)
    }

    /// Handles a restart of the destination, which knows no copies.
    pub(super) fn handle_destination_restart(&mut self, world: &mut World) -> Result<(), String> {
        self.asking.clear();
        self.here.connection = connect(Role::Destination, self.index, world);
        self.here.introduce(world)?;
        self.back.clear();
        self.receive(world, false)?;
        for Copy { stateid, to, .. } in std::mem::take(&mut self.running) {
            let op = Op::OffloadStatus(OffloadArgs { stateid });
            match self.here.ask(world, vec![putfh(to), op])? {
                (_, Status::BAD_STATEID) => {}
                other => return Err(format!("{other:?} for a copy of an earlier server")),
            }
        }
        Ok(())
    }

    /// Checks the invariants at the end.
    pub(super) fn check(&mut self, world: &World) -> Result<(), String> {
        for (copy, then) in &self.cancelled {
            if world.content(&copy.name) != *then {
                return Err(format!("{} continued after its cancellation", copy.name));
            }
        }
        Ok(())
    }
}

fn promise(results: Vec<OpResult>) -> Result<CopyNotifyOk, String> {
    match results.into_iter().last() {
        Some(OpResult::CopyNotify(Outcome::Ok(promised))) => Ok(promised),
        other => Err(format!("{other:?}")),
    }
}

fn connect(role: Role, index: usize, world: &mut World) -> Arc<Connection> {
    let address = if role == Role::Source { SOURCE } else { DESTINATION };
    world.connect(index, address.into())
}

/// Returns the destination's address for COPY_NOTIFY.
fn location() -> NetLocation {
    let address = DESTINATION.into();
    let text = |text: String| Utf8::new(text.into_bytes()).expect("a short text");
    NetLocation::Address(NetAddress {
        netid: text(NetId::tcp(&address).as_str().to_owned()),
        address: text(UniversalAddress(address).to_string()),
    })
}
