//! The calls, made once and sent again and again with other transaction and sequence IDs.

use bytes::{Bytes, BytesMut};
use protocol::nfs3::{self, Proc};
use protocol::nfs4;
use protocol::nfs4::attributes::{SetAttributes, number as n};
use protocol::nfs4::compound::{CompoundArgs, Op, OpResult};
use protocol::nfs4::ops::backchannel::{CallbackSecParms, SecParmsList};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::exchange_id::{ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::open::{
    CreateHow, DelegationWant, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs,
};
use protocol::nfs4::types::{
    Bitmap, ClientOwner, Component, Handle, Mode, SessionId, StateOwner, Stateid, Utf8,
};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{self, CallHeader};
use xdr::{Encode, List, Opaque, Writer};

use crate::BATCH;
use crate::world::World;

const NFS: u32 = 100_003;
/// Bytes of a small READ or WRITE.
const BLOCK: u32 = 4096;
/// What a client asks of a file to keep its cache true.
const ATTRIBUTES: Bitmap = Bitmap::of(&[
    n::TYPE,
    n::CHANGE,
    n::SIZE,
    n::FSID,
    n::FILEID,
    n::MODE,
    n::NUMLINKS,
    n::OWNER,
    n::OWNER_GROUP,
    n::RAWDEV,
    n::SPACE_USED,
    n::TIME_ACCESS,
    n::TIME_METADATA,
    n::TIME_MODIFY,
    n::MOUNTED_ON_FILEID,
]);

/// A request that is sent many times.
struct Template {
    record: Vec<u8>,
    /// Where the sequence ID stands, in version 4.1.
    sequence_at: Option<usize>,
}

/// What a row measures.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// By slot; of what takes several requests, these one after the other.
    templates: Vec<Vec<Template>>,
    xid: u32,
    sequence: u32,
}

impl Call {
    /// The next `count` calls (each of them all of its requests), on as many slots.
    pub(crate) fn records(&mut self, count: usize) -> Vec<Bytes> {
        let requests = self.templates[0].len();
        let mut all = BytesMut::new();
        let mut ends = Vec::with_capacity(count * requests);
        for request in 0..requests {
            self.sequence += 1;
            for slot in 0..count {
                let template = &self.templates[slot % self.templates.len()][request];
                let start = all.len();
                all.extend_from_slice(&template.record);
                self.xid += 1;
                all[start..start + 4].copy_from_slice(&self.xid.to_be_bytes());
                if let Some(at) = template.sequence_at {
                    all[start + at..start + at + 4].copy_from_slice(&self.sequence.to_be_bytes());
                }
                ends.push(template.record.len());
            }
        }
        ends.into_iter().map(|length| all.split_to(length).freeze()).collect()
    }
}

/// All that can be measured. Names of version 4.1's end in 41.
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
    let one = |name, procedure, arguments: &dyn Fn(&mut Writer)| {
        row(name, 1, &|_| vec![call3(procedure, arguments)])
    };
    vec![
        one("getattr", Proc::GETATTR, &|out| nfs3::GetattrArgs { object: file }.encode(out)),
        one("lookup", Proc::LOOKUP, &|out| nfs3::LookupArgs { what: of_file(name("file")) }.encode(out)),
        one("access", Proc::ACCESS, &|out| {
            nfs3::AccessArgs { object: file, access: nfs3::Access::READ }.encode(out);
        }),
        one("read4k", Proc::READ, &|out| nfs3::ReadArgs { file, offset: 0, count: BLOCK }.encode(out)),
        one("write4k", Proc::WRITE, &|out| write.encode(out)),
        row("create-remove", BATCH, &|slot| {
            let remove = nfs3::RemoveArgs { object: of_file(name(&format!("file-{slot}"))) };
            vec![
                call3(Proc::CREATE, &|out| create(slot).encode(out)),
                call3(Proc::REMOVE, &|out| remove.encode(out)),
            ]
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
            Op::Open(open(slot, ShareAccess::READ, OpenHow::NoCreate, "file")),
            getattr.clone(),
            Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: BLOCK }),
            close.clone(),
        ]
    };
    let create = |slot: usize| {
        let attributes =
            SetAttributes { mode: Some(Mode::from_bits_retain(0o644)), ..SetAttributes::default() };
        let how = OpenHow::Create(CreateHow::Guarded((&attributes).into()));
        let open = open(slot, ShareAccess::BOTH, how, &format!("file-{slot}"));
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

/// A row whose `requests` of each slot are these.
fn row(name: &'static str, slots: usize, requests: &dyn Fn(usize) -> Vec<Template>) -> Call {
    Call { name, templates: (0..slots).map(requests).collect(), xid: 0, sequence: 0 }
}

/// A call of user 0.
fn call(version: u32, procedure: u32, arguments: &dyn Fn(&mut Writer)) -> Vec<u8> {
    let credential = AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"enfys-bench"),
        uid: 0,
        gid: 0,
        gids: GroupList::new(&[0]).expect("one group is not too many"),
    };
    let header = CallHeader {
        credential: OpaqueAuth::sys(&credential),
        ..CallHeader::new(0, NFS, version, procedure)
    };
    let mut writer = Writer::new();
    message::encode_call(&mut writer, &header, &());
    arguments(&mut writer);
    writer.into_bytes().to_vec()
}

fn call3(procedure: Proc, arguments: &dyn Fn(&mut Writer)) -> Template {
    Template { record: call(3, procedure.0, arguments), sequence_at: None }
}

/// A compound of version 4.1.
pub(crate) fn compound(operations: &[Op]) -> Vec<u8> {
    let ops = List::new(operations.to_vec()).expect("few operations");
    let arguments = CompoundArgs { tag: Utf8::from_static(b""), minor_version: 1, ops };
    call(4, nfs4::PROC_COMPOUND, &|out| arguments.encode(out))
}

/// A compound on a slot of a session.
fn in_session(session: SessionId, slot: usize, keep: bool, operations: Vec<Op>) -> Template {
    let render = |sequence_id| {
        let sequence = Op::Sequence(SequenceArgs {
            session_id: session,
            sequence_id,
            slot_id: slot as u32,
            highest_slot_id: BATCH as u32,
            cache_this: keep,
        });
        compound(&[&[sequence], &operations[..]].concat())
    };
    let (record, other) = (render(0), render(u32::MAX));
    let sequence_at = record.iter().zip(&other).position(|(a, b)| a != b);
    Template { record, sequence_at }
}

fn component(name: &str) -> Component {
    Opaque::new(name.to_owned().into_bytes()).expect("a short name")
}

/// OPEN of a name in the current directory by an owner of the slot's own.
fn open(slot: usize, share_access: ShareAccess, how: OpenHow, name: &str) -> OpenArgs {
    let owner = Opaque::new((slot as u64).to_be_bytes().to_vec()).expect("eight bytes");
    OpenArgs {
        seqid: 0,
        share_access: share_access.with_want(DelegationWant::NO_DELEG),
        share_deny: ShareDeny::empty(),
        owner: StateOwner { client_id: 0, owner },
        how,
        claim: OpenClaim::Null(component(name)),
    }
}

/// A client and its session, of as many slots as a batch has calls.
fn open_session(world: &mut World, owner: &'static str) -> SessionId {
    let exchange = ExchangeIdArgs {
        client_owner: ClientOwner { verifier: [0; 8], owner_id: Opaque::from_static(owner.as_bytes()) },
        flags: ExchangeIdFlags::USE_NON_PNFS,
        state_protect: StateProtectArgs::None,
        implementation: List::default(),
    };
    let results = world.ask(vec![Op::ExchangeId(exchange)]);
    let [OpResult::ExchangeId(made)] = &results[..] else { panic!("{results:?}") };
    let made = made.as_result().expect("a client");
    let channel = |max_requests| ChannelAttributes {
        header_pad_size: 0,
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: BLOCK,
        max_operations: 16,
        max_requests,
        rdma_ird: List::default(),
    };
    let create = CreateSessionArgs {
        client_id: made.client_id,
        sequence: made.sequence_id,
        flags: CreateSessionFlags::empty(),
        fore_channel: channel(BATCH as u32 + 1),
        back_channel: channel(1),
        callback_program: 0x4000_0000,
        sec_parms: SecParmsList::new(vec![CallbackSecParms::None]).expect("one is not too many"),
    };
    let results = world.ask(vec![Op::CreateSession(create)]);
    let [OpResult::CreateSession(made)] = &results[..] else { panic!("{results:?}") };
    let session_id = made.as_result().expect("a session").session_id;
    // On the slot that no batch uses.
    let last = BATCH as u32;
    let sequence =
        SequenceArgs { session_id, sequence_id: 1, slot_id: last, highest_slot_id: last, cache_this: false };
    world.ask(vec![Op::Sequence(sequence), Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })]);
    session_id
}
