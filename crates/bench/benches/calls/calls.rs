//! The calls, built once and sent many times with other transaction and sequence IDs.

use bench::load::requests::{
    ATTRIBUTES, NFS3, NFS4, Template, arguments, component, open, patch, session_config,
};
use bytes::{Bytes, BytesMut};
use client::raw::{create_session, exchange_id};
use protocol::nfs3::{self, Proc};
use protocol::nfs4;
use protocol::nfs4::attributes::SetAttributes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenHow, ShareAccess};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs};
use protocol::nfs4::types::{Handle, Mode, SessionId, Stateid};
use rpc::record::HEADER_LENGTH;
use xdr::{Encode, Opaque};

use crate::BATCH;
use crate::world::World;

/// Bytes of a small READ or WRITE.
const BLOCK: u32 = 4096;
/// A request that is sent many times.
struct Request {
    template: Template,
    /// Offset of the sequence ID, in version 4.1.
    sequence_at: Option<usize>,
}

/// The operation that a row measures.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// By slot; calls with several requests have these one after the other.
    requests: Vec<Vec<Request>>,
    xid: u32,
    sequence: u32,
}

impl Call {
    /// Returns the next `count` calls (each with all of its requests), on as many slots.
    pub(crate) fn records(&mut self, count: usize) -> Vec<Bytes> {
        let (mut all, mut record) = (BytesMut::new(), Vec::new());
        let mut records = Vec::with_capacity(count * self.requests[0].len());
        for number in 0..self.requests[0].len() {
            self.sequence += 1;
            for slot in 0..count {
                let Request { template, sequence_at } = &self.requests[slot % self.requests.len()][number];
                self.xid += 1;
                record.clear();
                template.append(self.xid, &mut record);
                if let Some(at) = sequence_at {
                    patch(&mut record, *at, &self.sequence.to_be_bytes());
                }
                // The server takes the bytes after the record mark.
                all.extend_from_slice(&record[HEADER_LENGTH..]);
                records.push(all.split().freeze());
            }
        }
        records
    }
}

/// Returns all calls that can be measured. Names of version 4.1's end in 41.
pub(crate) fn calls(world: &mut World) -> Vec<Call> {
    let (file, root) = (world.handle(Some("file")), world.handle(None));
    let mut calls = version3(&file, &root);
    calls.extend(version41(world, &file, &root));
    calls
}

fn version3(file: &[u8], root: &[u8]) -> Vec<Call> {
    let handle = |bytes: &[u8]| nfs3::FileHandle::new(bytes).expect("a handle of version 3");
    let (file, dir) = (handle(file), handle(root));
    let name = |name: &str| nfs3::Filename::new(name.to_owned().into_bytes()).expect("a short name");
    let of_file = |name| nfs3::DirOpArgs { dir, name };
    let create = |slot: usize| nfs3::CreateArgs {
        where_: of_file(name(&format!("file-{slot}"))),
        how: nfs3::CreateHow::Guarded(nfs3::Sattr { mode: Some(0o644), ..nfs3::Sattr::default() }),
    };
    let write = nfs3::WriteArgs {
        file,
        offset: 0,
        count: BLOCK,
        stable: nfs3::StableHow::Unstable,
        data: Opaque::new(vec![2; BLOCK as usize]).expect("a block"),
    };
    let one = |name, request: &dyn Fn() -> Request| row(name, 1, &|_| vec![request()]);
    let lookup = nfs3::LookupArgs { what: of_file(name("file")) };
    vec![
        one("getattr", &|| call3(Proc::GETATTR, &nfs3::GetattrArgs { object: file })),
        one("lookup", &|| call3(Proc::LOOKUP, &lookup)),
        one("access", &|| {
            call3(Proc::ACCESS, &nfs3::AccessArgs { object: file, access: nfs3::Access::READ })
        }),
        one("read4k", &|| call3(Proc::READ, &nfs3::ReadArgs { file, offset: 0, count: BLOCK })),
        one("write4k", &|| call3(Proc::WRITE, &write)),
        row("create-remove", BATCH, &|slot| {
            let remove = nfs3::RemoveArgs { object: of_file(name(&format!("file-{slot}"))) };
            vec![call3(Proc::CREATE, &create(slot)), call3(Proc::REMOVE, &remove)]
        }),
    ]
}

fn version41(world: &mut World, file: &[u8], root: &[u8]) -> Vec<Call> {
    // A session each: every row counts its own requests.
    let [getattrs, opens, changes] = ["getattr", "open", "change"].map(|name| open_session(world, name));
    let handle = |bytes: &[u8]| Op::PutFh(PutFhArgs { handle: Handle::new(bytes).expect("a handle") });
    let (file, root) = (handle(file), handle(root));
    let getattr = Op::GetAttr(GetAttrArgs { attributes: ATTRIBUTES });
    let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
    let open_read_close = |slot| {
        vec![
            root.clone(),
            Op::Open(open(slot, ShareAccess::READ, OpenHow::NoCreate, component("file"))),
            getattr.clone(),
            Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: BLOCK }),
            close.clone(),
        ]
    };
    let create = |slot: usize| {
        let attributes =
            SetAttributes { mode: Some(Mode::from_bits_retain(0o644)), ..SetAttributes::default() };
        let how = OpenHow::Create(CreateHow::Guarded((&attributes).into()));
        let open = open(slot, ShareAccess::BOTH, how, component(&format!("file-{slot}")));
        vec![root.clone(), Op::Open(open), Op::GetFh, getattr.clone(), close.clone()]
    };
    let remove = |slot: usize| {
        vec![root.clone(), Op::Remove(RemoveArgs { target: component(&format!("file-{slot}")) })]
    };
    let keep = |slot, operations| in_session(changes, slot, true, operations);
    vec![
        row("getattr41", BATCH, &|slot| {
            vec![in_session(getattrs, slot, false, vec![file.clone(), getattr.clone()])]
        }),
        row("open-read-close41", BATCH, &|slot| vec![in_session(opens, slot, false, open_read_close(slot))]),
        row("create-remove41", BATCH, &|slot| vec![keep(slot, create(slot)), keep(slot, remove(slot))]),
    ]
}

/// Returns a row with these `requests` of each slot.
fn row(name: &'static str, slots: usize, requests: &dyn Fn(usize) -> Vec<Request>) -> Call {
    Call { name, requests: (0..slots).map(requests).collect(), xid: 0, sequence: 0 }
}

fn call3(procedure: Proc, arguments: &impl Encode) -> Request {
    Request { template: Template::call(NFS3, procedure.0, arguments), sequence_at: None }
}

/// Returns a compound of version 4.1 without a session, for the server.
pub(crate) fn compound(operations: Vec<Op>) -> Bytes {
    let mut record = Vec::new();
    Template::call(NFS4, nfs4::PROC_COMPOUND, &arguments(1, operations)).append(0, &mut record);
    Bytes::from(record).slice(HEADER_LENGTH..)
}

/// Returns a compound on a slot of a session.
fn in_session(session: SessionId, slot: usize, keep: bool, operations: Vec<Op>) -> Request {
    let render = |sequence_id| {
        let sequence = Op::Sequence(SequenceArgs {
            session_id: session,
            sequence_id,
            slot_id: slot as u32,
            highest_slot_id: BATCH as u32,
            cache_this: keep,
        });
        let operations = [&[sequence], &operations[..]].concat();
        Template::call(NFS4, nfs4::PROC_COMPOUND, &arguments(1, operations))
    };
    let template = render(0);
    let sequence_at = Some(Template::field(&template, &render(u32::MAX)));
    Request { template, sequence_at }
}

/// Returns a client and its session, of as many slots as a batch has calls.
fn open_session(world: &mut World, owner: &'static str) -> SessionId {
    let config = session_config(owner, 1, BATCH as u32 + 1);
    let results = world.ask(vec![exchange_id(&config).expect("a short name")]);
    let [OpResult::ExchangeId(made)] = &results[..] else { panic!("{results:?}") };
    let made = made.as_result().expect("a client");
    let flags = CreateSessionFlags::empty();
    let create = create_session(&config, flags, made.client_id, made.sequence_id);
    let results = world.ask(vec![create]);
    let [OpResult::CreateSession(made)] = &results[..] else { panic!("{results:?}") };
    let session_id = made.as_result().expect("a session").session_id;
    // On the slot that no batch uses.
    let last = BATCH as u32;
    let sequence =
        SequenceArgs { session_id, sequence_id: 1, slot_id: last, highest_slot_id: last, cache_this: false };
    world.ask(vec![Op::Sequence(sequence), Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })]);
    session_id
}
