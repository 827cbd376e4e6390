//! NFSv4.1: a session for each connection, and requests that use all its slots.

use bytes::Bytes;
use tokio::net::TcpStream;
use xdr::{DecodeError, Reader, Writer};

use super::LoadPlan;
use super::caller::Caller;
use super::replies::Reply;
use super::template::{Program, Raw, Template, patch};
use super::workload::{Outcome, Workload, Xids};
use crate::error::LoadError;
use crate::layout;
use crate::operation::{LARGE_BYTES, Operation};

const NFS4: Program = Program { number: 100_003, version: 4 };
const NFSPROC4_COMPOUND: u32 = 1;

const OP_GETATTR: u32 = 9;
const OP_GETFH: u32 = 10;
const OP_LOOKUP: u32 = 15;
const OP_PUTFH: u32 = 22;
const OP_PUTROOTFH: u32 = 24;
const OP_EXCHANGE_ID: u32 = 42;
const OP_CREATE_SESSION: u32 = 43;
const OP_DESTROY_SESSION: u32 = 44;
const OP_SEQUENCE: u32 = 53;
const OP_DESTROY_CLIENTID: u32 = 57;
const OP_RECLAIM_COMPLETE: u32 = 58;

const EXCHGID4_FLAG_USE_NON_PNFS: u32 = 0x0001_0000;
/// RFC 8881 §3.1: NFS4_FHSIZE, NFS4_OPAQUE_LIMIT.
const NFS4_FHSIZE: usize = 128;
const NFS4_OPAQUE_LIMIT: usize = 1024;
/// Room for a compound's other operations around a large payload.
const COMPOUND_SLACK_BYTES: u32 = 4 << 10;
/// Most operations of one compound that this generator sends.
const OPERATIONS_MAX: u32 = 16;

/// What a Linux client asks for to fill a stat: the same facts as a fattr3, and the change attribute.
/// type, change, size, fsid, fileid | mode, numlinks, owner, owner_group, rawdev, space_used, time_access,
/// time_metadata, time_modify, mounted_on_fileid.
const ATTRIBUTES: [u32; 2] = [0x0010_011a, 0x00b0_a23a];

/// Operations of one compound, put together one after the other.
#[derive(Default)]
struct Compound {
    body: Writer,
    operations: u32,
}

impl Compound {
    fn operation(mut self, number: u32, arguments: impl FnOnce(&mut Writer)) -> Self {
        self.body.u32(number);
        arguments(&mut self.body);
        self.operations += 1;
        self
    }

    fn sequence(self, session: &[u8; 16], slot: u32, sequence: u32, highest: u32) -> Self {
        self.operation(OP_SEQUENCE, |w| {
            w.raw(session);
            w.u32(sequence);
            w.u32(slot);
            w.u32(highest);
            w.bool(false); // sa_cachethis
        })
    }

    fn into_arguments(self) -> Bytes {
        let mut w = Writer::default();
        w.opaque(b""); // tag
        w.u32(1); // minorversion
        w.u32(self.operations);
        w.raw(self.body.inline());
        w.into_bytes()
    }

    /// Sends it; the answer is a reader that stands at the first operation's result.
    async fn call(self, caller: &mut Caller, what: &str, xids: &Xids) -> Result<Reader, LoadError> {
        let arguments = self.into_arguments();
        let results = caller.call(what, xids.take(0), NFS4, NFSPROC4_COMPOUND, &Raw(&arguments)).await?;
        begin_results(results).map_err(|why| LoadError::wrong(what, why))
    }
}

/// Checks that a compound ended well.
fn begin_results(results: Bytes) -> Result<Reader, String> {
    let mut reader = Reader::new(results);
    let mut head = || Ok::<_, DecodeError>((reader.u32()?, reader.opaque(NFS4_OPAQUE_LIMIT)?, reader.u32()?));
    match head().map_err(|error| error.to_string())? {
        (0, _, _) => Ok(reader),
        (status, _, count) => Err(format!("nfsstat4 {status} at operation {count}")),
    }
}

/// Checks operation number and status of the next result.
fn expect(reader: &mut Reader, number: u32) -> Result<(), DecodeError> {
    // A compound that ended well holds each operation that was sent, with status NFS4_OK.
    let (found, status) = (reader.u32()?, reader.u32()?);
    if (found, status) == (number, 0) {
        Ok(())
    } else {
        Err(DecodeError::InvalidDiscriminant { type_name: "expected operation", value: found })
    }
}

/// A client and its session, made for one connection.
#[derive(Debug)]
pub(crate) struct Session {
    client: u64,
    id: [u8; 16],
    slots: u32,
    /// Sequence id last used on slot 0, while it is used for single calls.
    sequence: u32,
    read_file: Vec<u8>,
}

impl Session {
    /// Makes a session with as many slots as the plan's depth on a connection of its own, and finds the files.
    pub(crate) async fn open(plan: &LoadPlan, xids: &Xids) -> Result<(Caller, Self), LoadError> {
        let mut caller = Caller::connect(plan.server).await?;
        let owner = format!("enfys-bench-{}-{}", std::process::id(), xids.take(0));
        let (client, first) = exchange_id(&mut caller, &owner, xids).await?;
        let (id, slots) = create_session(&mut caller, client, first, plan.shape.depth, xids).await?;
        let mut session = Self { client, id, slots, sequence: 0, read_file: Vec::new() };
        let complete = session.compound().operation(OP_RECLAIM_COMPLETE, |w| w.bool(false));
        complete.call(&mut caller, "RECLAIM_COMPLETE", xids).await?;
        session.read_file = session.find(&mut caller, &plan.export, layout::READ_FILE, xids).await?;
        Ok((caller, session))
    }

    /// Slots that the server granted.
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

    /// Begins a single call on slot 0.
    fn compound(&mut self) -> Compound {
        self.sequence += 1;
        Compound::default().sequence(&self.id, 0, self.sequence, 0)
    }

    async fn find(
        &mut self,
        caller: &mut Caller,
        export: &str,
        name: &str,
        xids: &Xids,
    ) -> Result<Vec<u8>, LoadError> {
        let path: Vec<&str> =
            export.split('/').filter(|part| !part.is_empty()).chain([layout::DIRECTORY, name]).collect();
        let mut compound = self.compound().operation(OP_PUTROOTFH, |_| ());
        for part in &path {
            compound = compound.operation(OP_LOOKUP, |w| w.opaque(part.as_bytes()));
        }
        let mut reader = compound.operation(OP_GETFH, |_| ()).call(caller, "LOOKUP", xids).await?;
        let mut handle = || {
            skip_sequence(&mut reader)?;
            expect(&mut reader, OP_PUTROOTFH)?;
            for _ in &path {
                expect(&mut reader, OP_LOOKUP)?;
            }
            expect(&mut reader, OP_GETFH)?;
            reader.opaque(NFS4_FHSIZE)
        };
        Ok(handle().map_err(|why| LoadError::wrong("GETFH", why))?.to_vec())
    }

    /// Takes the session and its client down again.
    async fn end(self, caller: &mut Caller, xids: &Xids) -> Result<(), LoadError> {
        let session = Compound::default().operation(OP_DESTROY_SESSION, |w| w.raw(&self.id));
        session.call(caller, "DESTROY_SESSION", xids).await?;
        let client = Compound::default().operation(OP_DESTROY_CLIENTID, |w| w.u64(self.client));
        client.call(caller, "DESTROY_CLIENTID", xids).await?;
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

async fn exchange_id(caller: &mut Caller, owner: &str, xids: &Xids) -> Result<(u64, u32), LoadError> {
    let compound = Compound::default().operation(OP_EXCHANGE_ID, |w| {
        w.raw(&[0; 8]); // verifier: the owner's name is new on every run
        w.opaque(owner.as_bytes());
        w.u32(EXCHGID4_FLAG_USE_NON_PNFS);
        w.u32(0); // SP4_NONE
        w.u32(0); // no nfs_impl_id4
    });
    let mut reader = compound.call(caller, "EXCHANGE_ID", xids).await?;
    let mut result = || {
        expect(&mut reader, OP_EXCHANGE_ID)?;
        Ok::<_, DecodeError>((reader.u64()?, reader.u32()?))
    };
    result().map_err(|why| LoadError::wrong("EXCHANGE_ID", why))
}

async fn create_session(
    caller: &mut Caller,
    client: u64,
    sequence: u32,
    slots: u32,
    xids: &Xids,
) -> Result<([u8; 16], u32), LoadError> {
    let large = LARGE_BYTES + COMPOUND_SLACK_BYTES;
    let channel = |w: &mut Writer, bytes: u32, slots: u32| {
        // headerpadsize, maxrequestsize, maxresponsesize, maxresponsesize_cached, maxoperations, maxrequests
        for word in [0, bytes, bytes, COMPOUND_SLACK_BYTES, OPERATIONS_MAX, slots] {
            w.u32(word);
        }
        w.u32(0); // no rdma_ird
    };
    let compound = Compound::default().operation(OP_CREATE_SESSION, |w| {
        w.u64(client);
        w.u32(sequence);
        w.u32(0); // neither persistent nor with a back channel
        channel(w, large, slots);
        channel(w, COMPOUND_SLACK_BYTES, 1);
        w.u32(0x4000_0000); // cb_program, never called
        w.u32(1); // one callback_sec_parms4: AUTH_NONE
        w.u32(0);
    });
    let mut reader = compound.call(caller, "CREATE_SESSION", xids).await?;
    let mut result = || {
        expect(&mut reader, OP_CREATE_SESSION)?;
        let id = reader.opaque_fixed::<16>()?;
        // csr_sequence, csr_flags, then the fore channel's six numbers, of which the last is maxrequests.
        for _ in 0..7 {
            reader.u32()?;
        }
        Ok::<_, DecodeError>((id, reader.u32()?))
    };
    let (id, granted) = result().map_err(|why| LoadError::wrong("CREATE_SESSION", why))?;
    Ok((id, granted.min(slots)))
}

/// Steps over a SEQUENCE result: session id, sequence id, slot id, two highest slot ids, flags.
fn skip_sequence(reader: &mut Reader) -> Result<(), DecodeError> {
    expect(reader, OP_SEQUENCE)?;
    reader.opaque_fixed::<16>()?;
    for _ in 0..5 {
        reader.u32()?;
    }
    Ok(())
}

/// SEQUENCE + PUTFH + GETATTR of the prepared file: the price of a session beside version 3's GETATTR.
struct SequenceGetattr {
    template: Template,
    slot_at: usize,
    sequence_at: usize,
    session: [u8; 16],
    /// Sequence id last used, by slot.
    sequences: Vec<u32>,
    /// Length of a right reply, learnt from the first.
    length: Option<usize>,
}

impl SequenceGetattr {
    fn new(session: &Session) -> Self {
        let highest = session.slots - 1;
        let render = |slot, sequence| {
            let compound = Compound::default()
                .sequence(&session.id, slot, sequence, highest)
                .operation(OP_PUTFH, |w| w.opaque(&session.read_file))
                .operation(OP_GETATTR, |w| {
                    w.u32(ATTRIBUTES.len() as u32);
                    ATTRIBUTES.iter().for_each(|word| w.u32(*word));
                });
            let arguments = compound.into_arguments();
            Template::call(NFS4, NFSPROC4_COMPOUND, &Raw(&arguments), 0)
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
            length: None,
        }
    }

    /// Checks what the fixed part of the reply says; returns where the attributes' bitmap stands.
    fn check_operations(&self, slot: usize, reply: &Reply<'_>) -> Result<usize, String> {
        let at = reply.results()?;
        // status, an empty tag (the server repeats ours), three results.
        if (reply.word(at)?, reply.word(at + 4)?, reply.word(at + 8)?) != (0, 0, 3) {
            return Err(format!("nfsstat4 {} after {} operations", reply.word(at)?, reply.word(at + 8)?));
        }
        let sequence = at + 12;
        let expected = [OP_SEQUENCE, 0];
        if [reply.word(sequence)?, reply.word(sequence + 4)?] != expected
            || reply.head.get(sequence + 8..sequence + 24) != Some(&self.session)
            || reply.word(sequence + 24)? != self.sequences[slot]
            || reply.word(sequence + 28)? != slot as u32
        {
            return Err("a SEQUENCE result of another request".into());
        }
        let rest = sequence + 44;
        let operations = [0, 4, 8, 12].map(|skip| reply.word(rest + skip));
        if operations != [Ok(OP_PUTFH), Ok(0), Ok(OP_GETATTR), Ok(0)] {
            return Err(format!("PUTFH, GETATTR: {operations:?}"));
        }
        Ok(rest + 16)
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
        let at = self.check_operations(slot, reply)?;
        let bitmap = [0, 4, 8].map(|skip| reply.word(at + skip));
        if bitmap != [Ok(2), Ok(ATTRIBUTES[0]), Ok(ATTRIBUTES[1])] {
            return Err(format!("attributes {bitmap:x?} instead of {ATTRIBUTES:x?}"));
        }
        let end = at + 16 + reply.word(at + 12)? as usize;
        // The first attributes are type (NF4REG = 1), change, size.
        let size = u64::from(reply.word(at + 28)?) << 32 | u64::from(reply.word(at + 32)?);
        if reply.word(at + 16)? != 1 || size != layout::FILE_BYTES {
            return Err("attributes of another file".into());
        }
        if reply.length != end || *self.length.get_or_insert(end) != end {
            return Err(format!("{} bytes instead of {end}", reply.length));
        }
        Ok(Outcome::Finished)
    }
}
