//! NFSv4.1: a session for each connection, and requests that use all its slots.

use bytes::Bytes;
use protocol::nfs4;
use protocol::nfs4::attributes::number;
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::backchannel::{CallbackSecParms, SecParmsList};
use protocol::nfs4::ops::exchange_id::{
    DestroyClientIdArgs, ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs,
};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, DestroySessionArgs, ReclaimCompleteArgs,
    SequenceArgs,
};
use protocol::nfs4::types::{
    Bitmap, ClientId, ClientOwner, FileType, Handle, Outcome as Answer, SessionId, Status, Utf8,
};
use tokio::net::TcpStream;
use xdr::{Decode, DecodeError, List, Opaque};

use super::LoadPlan;
use super::caller::Caller;
use super::replies::Reply;
use super::template::{Program, Template, patch};
use super::workload::{Outcome, Workload, Xids};
use crate::error::LoadError;
use crate::layout;
use crate::operation::{LARGE_BYTES, Operation};

const NFS4: Program = Program { number: nfs4::PROGRAM, version: nfs4::VERSION };
const MINOR_VERSION: u32 = 1;

/// Room for a compound's other operations around a large payload.
const COMPOUND_SLACK_BYTES: u32 = 4 << 10;
/// Most operations of one compound that this generator sends.
const OPERATIONS_MAX: u32 = 16;
/// A program number for call-backs, which are never sent: the session has no back channel.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// What a Linux client asks for to fill a stat: the facts of a fattr3, the change attribute, the mounted-on file id.
const ATTRIBUTES: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::MOUNTED_ON_FILEID,
]);

fn arguments(operations: Vec<Op>) -> CompoundArgs {
    let tag = Utf8::from_static(b"");
    let ops = List::new(operations).expect("few operations");
    CompoundArgs { tag, minor_version: MINOR_VERSION, ops }
}

/// The operations' results, if all ended well.
fn all_well(result: CompoundResult) -> Result<Vec<OpResult>, String> {
    if result.status == Status::OK {
        Ok(result.results.into_vec())
    } else {
        Err(format!("{:?} from operation {}", result.status, result.results.len()))
    }
}

/// Sends a compound outside the measured window.
async fn call(
    caller: &mut Caller,
    what: &str,
    operations: Vec<Op>,
    xids: &Xids,
) -> Result<Vec<OpResult>, LoadError> {
    let compound = arguments(operations);
    let result = caller.call(what, xids.take(0), NFS4, nfs4::PROC_COMPOUND, &compound).await?;
    all_well(result).map_err(|why| LoadError::wrong(what, why))
}

fn unexpected(what: &str, results: &[OpResult]) -> LoadError {
    LoadError::wrong(what, format!("results {results:?}"))
}

/// A client and its session, made for one connection.
#[derive(Debug)]
pub(crate) struct Session {
    client: ClientId,
    id: SessionId,
    slots: u32,
    /// Sequence id last used on slot 0, while it is used for single calls.
    sequence: u32,
    read_file: Handle,
}

impl Session {
    /// Makes a session with as many slots as the plan's depth on a connection of its own, and finds the files.
    pub(crate) async fn open(plan: &LoadPlan, xids: &Xids) -> Result<(Caller, Self), LoadError> {
        let mut caller = Caller::connect(plan.server).await?;
        let owner = format!("enfys-bench-{}-{}", std::process::id(), xids.take(0));
        let (client, first) = exchange_id(&mut caller, owner, xids).await?;
        let (id, slots) = create_session(&mut caller, client, first, plan.shape.depth, xids).await?;
        let mut session = Self { client, id, slots, sequence: 0, read_file: Handle::default() };
        let complete =
            vec![session.next_sequence(), Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })];
        call(&mut caller, "RECLAIM_COMPLETE", complete, xids).await?;
        session.read_file = session.find(&mut caller, &plan.export, layout::READ_FILE, xids).await?;
        Ok((caller, session))
    }

    /// Slots that the server granted, or fewer if fewer were asked for.
    pub(crate) fn slots(&self) -> usize {
        self.slots as usize
    }

    /// The workload of `operation` on this session.
    pub(crate) fn workload(&self, operation: Operation) -> Box<dyn Workload> {
        match operation {
            Operation::SequenceGetattr41 => Box::new(SequenceGetattr::new(self)),
            other => unreachable!("{other} is not an operation of version 4.1"),
        }
    }

    /// The SEQUENCE of a single call on slot 0.
    fn next_sequence(&mut self) -> Op {
        self.sequence += 1;
        self.sequence_on(0, self.sequence, 0)
    }

    fn sequence_on(&self, slot_id: u32, sequence_id: u32, highest_slot_id: u32) -> Op {
        let session_id = self.id;
        Op::Sequence(SequenceArgs { session_id, sequence_id, slot_id, highest_slot_id, cache_this: false })
    }

    async fn find(
        &mut self,
        caller: &mut Caller,
        export: &str,
        name: &str,
        xids: &Xids,
    ) -> Result<Handle, LoadError> {
        let mut operations = vec![self.next_sequence(), Op::PutRootFh];
        let path = export.split('/').filter(|part| !part.is_empty()).chain([layout::DIRECTORY, name]);
        for part in path {
            let name = Opaque::new(Bytes::copy_from_slice(part.as_bytes()))
                .map_err(|why| LoadError::wrong("LOOKUP", why))?;
            operations.push(Op::Lookup(LookupArgs { name }));
        }
        operations.push(Op::GetFh);
        let results = call(caller, "LOOKUP", operations, xids).await?;
        match results.last() {
            Some(OpResult::GetFh(Answer::Ok(handle))) => Ok(*handle),
            _ => Err(unexpected("GETFH", &results)),
        }
    }

    /// Takes the session and its client down again.
    async fn end(self, caller: &mut Caller, xids: &Xids) -> Result<(), LoadError> {
        let session = Op::DestroySession(DestroySessionArgs { session_id: self.id });
        call(caller, "DESTROY_SESSION", vec![session], xids).await?;
        let client = Op::DestroyClientId(DestroyClientIdArgs { client_id: self.client });
        call(caller, "DESTROY_CLIENTID", vec![client], xids).await?;
        Ok(())
    }
}

/// Takes down each session on the connection at the same place.
pub(crate) async fn end_all(
    sessions: Vec<Session>,
    streams: Vec<TcpStream>,
    xids: &Xids,
) -> Result<(), LoadError> {
    for (session, stream) in sessions.into_iter().zip(streams) {
        session.end(&mut Caller::from_stream(stream), xids).await?;
    }
    Ok(())
}

async fn exchange_id(caller: &mut Caller, owner: String, xids: &Xids) -> Result<(ClientId, u32), LoadError> {
    let owner_id = Opaque::new(owner.into_bytes()).expect("a short name");
    let exchange = ExchangeIdArgs {
        // The owner's name is new on every run, so that the verifier has nothing to tell apart.
        client_owner: ClientOwner { verifier: [0; 8], owner_id },
        flags: ExchangeIdFlags::USE_NON_PNFS,
        state_protect: StateProtectArgs::None,
        implementation: List::default(),
    };
    let results = call(caller, "EXCHANGE_ID", vec![Op::ExchangeId(exchange)], xids).await?;
    match &results[..] {
        [OpResult::ExchangeId(Answer::Ok(made))] => Ok((made.client_id, made.sequence_id)),
        _ => Err(unexpected("EXCHANGE_ID", &results)),
    }
}

async fn create_session(
    caller: &mut Caller,
    client_id: ClientId,
    sequence: u32,
    slots: u32,
    xids: &Xids,
) -> Result<(SessionId, u32), LoadError> {
    let channel = |bytes, max_requests| ChannelAttributes {
        header_pad_size: 0,
        max_request_size: bytes,
        max_response_size: bytes,
        max_response_size_cached: COMPOUND_SLACK_BYTES,
        max_operations: OPERATIONS_MAX,
        max_requests,
        rdma_ird: List::default(),
    };
    let create = CreateSessionArgs {
        client_id,
        sequence,
        flags: CreateSessionFlags::empty(),
        fore_channel: channel(LARGE_BYTES + COMPOUND_SLACK_BYTES, slots),
        back_channel: channel(COMPOUND_SLACK_BYTES, 1),
        callback_program: CALLBACK_PROGRAM,
        sec_parms: SecParmsList::new(vec![CallbackSecParms::None]).expect("one is not too many"),
    };
    let results = call(caller, "CREATE_SESSION", vec![Op::CreateSession(create)], xids).await?;
    match &results[..] {
        [OpResult::CreateSession(Answer::Ok(made))] if made.fore_channel.max_requests > 0 => {
            Ok((made.session_id, made.fore_channel.max_requests.min(slots)))
        }
        _ => Err(unexpected("CREATE_SESSION", &results)),
    }
}

/// SEQUENCE + PUTFH + GETATTR of the prepared file: the price of a session beside version 3's GETATTR.
struct SequenceGetattr {
    template: Template,
    slot_at: usize,
    sequence_at: usize,
    session: SessionId,
    /// Sequence id last used, by slot.
    sequences: Vec<u32>,
}

impl SequenceGetattr {
    fn new(session: &Session) -> Self {
        let highest = session.slots - 1;
        let render = |slot, sequence| {
            let compound = arguments(vec![
                session.sequence_on(slot, sequence, highest),
                Op::PutFh(PutFhArgs { handle: session.read_file }),
                Op::GetAttr(GetAttrArgs { attributes: ATTRIBUTES }),
            ]);
            Template::call(NFS4, nfs4::PROC_COMPOUND, &compound)
        };
        let template = render(0, 0);
        let mut sequences = vec![0; session.slots as usize];
        sequences[0] = session.sequence;
        Self {
            slot_at: Template::field(&template, &render(u32::MAX, 0)),
            sequence_at: Template::field(&template, &render(0, u32::MAX)),
            template,
            session: session.id,
            sequences,
        }
    }
}

impl Workload for SequenceGetattr {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let start = self.template.append(xid, out);
        self.sequences[slot] = self.sequences[slot].wrapping_add(1);
        patch(out, start + self.slot_at, &(slot as u32).to_be_bytes());
        patch(out, start + self.sequence_at, &self.sequences[slot].to_be_bytes());
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let results = all_well(reply.results::<CompoundResult>()?)?;
        let [
            OpResult::Sequence(Answer::Ok(sequence)),
            OpResult::PutFh(Answer::Ok(())),
            OpResult::GetAttr(Answer::Ok(attributes)),
        ] = &results[..]
        else {
            return Err(format!("results {results:?}"));
        };
        let sent = (self.session, slot as u32, self.sequences[slot]);
        if (sequence.session_id, sequence.slot_id, sequence.sequence_id) != sent {
            return Err(format!("{sequence:?} for another request"));
        }
        if attributes.mask != ATTRIBUTES {
            return Err(format!("attributes {:?} instead of {ATTRIBUTES:?}", attributes.mask));
        }
        // The values stand in the order of their numbers: type, change, size first.
        let mut reader = attributes.reader();
        let mut first =
            || Ok::<_, DecodeError>((FileType::decode(&mut reader)?, reader.u64()?, reader.u64()?));
        match first().map_err(|error| error.to_string())? {
            (FileType::REGULAR, _, layout::FILE_BYTES) => Ok(Outcome::Finished),
            other => Err(format!("attributes of another file: {other:?}")),
        }
    }
}
