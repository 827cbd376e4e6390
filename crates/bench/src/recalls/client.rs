//! A client of version 4.1 that can be called back, one request at a time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::sequence::CbSequenceOk;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::backchannel::{CallbackSecParms, SecParmsList};
use protocol::nfs4::ops::exchange_id::{ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs};
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs,
};
use protocol::nfs4::types::{ClientOwner, Handle, Outcome, SessionId, Stateid, Status, Utf8};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM, VERSION};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, MessageType, encode_call, encode_success, parse_reply, peek};
use rpc::record::LAST_FRAGMENT;
use xdr::{Decode, Encode, List, Opaque, Reader, Writer};

/// Bytes of a record at most: nothing here is long.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// How long a server may keep this client waiting.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client with a session over one connection, which is its back channel too.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    xid: u32,
    session: SessionId,
    sequence: u32,
    /// How long it takes before it answers a callback.
    delay: Duration,
    /// What was recalled, to be given back.
    pub(super) recalled: VecDeque<(Handle, Stateid)>,
    /// A callback has come: the server knows that the way is open.
    is_called: bool,
}

impl Client {
    /// Connects, and makes a session.
    pub(super) fn connect(server: SocketAddr, name: &str, delay: Duration) -> Result<Self, String> {
        let stream = TcpStream::connect(server).map_err(|error| format!("connect to {server}: {error}"))?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(TIMEOUT)));
        set.map_err(|error| error.to_string())?;
        let mut client = Self {
            stream,
            xid: 0,
            session: SessionId::default(),
            sequence: 0,
            delay,
            recalled: VecDeque::new(),
            is_called: false,
        };
        let owner = format!("enfys-bench-{}-{name}", std::process::id());
        let exchange = ExchangeIdArgs {
            client_owner: ClientOwner {
                verifier: [0; 8],
                owner_id: Opaque::new(owner.into_bytes()).map_err(|_| "a long name")?,
            },
            flags: ExchangeIdFlags::USE_NON_PNFS,
            state_protect: StateProtectArgs::None,
            implementation: List::default(),
        };
        let made = match &client.compound(vec![Op::ExchangeId(exchange)])?.results[..] {
            [OpResult::ExchangeId(Outcome::Ok(made))] => (made.client_id, made.sequence_id),
            other => return Err(format!("EXCHANGE_ID: {other:?}")),
        };
        client.create_session(made)?;
        let complete = ReclaimCompleteArgs { one_fs: false };
        client.call(vec![Op::ReclaimComplete(complete)])?;
        Ok(client)
    }

    fn create_session(&mut self, (client_id, sequence): (u64, u32)) -> Result<(), String> {
        let channel = ChannelAttributes {
            header_pad_size: 0,
            max_request_size: 1 << 16,
            max_response_size: 1 << 16,
            max_response_size_cached: 4 << 10,
            max_operations: 16,
            max_requests: 16,
            rdma_ird: List::default(),
        };
        let create = CreateSessionArgs {
            client_id,
            sequence,
            flags: CreateSessionFlags::CONN_BACK_CHAN,
            fore_channel: channel.clone(),
            back_channel: channel,
            callback_program: 0x4000_0000,
            sec_parms: SecParmsList::new(vec![CallbackSecParms::None]).map_err(|_| "too many")?,
        };
        match &self.compound(vec![Op::CreateSession(create)])?.results[..] {
            [OpResult::CreateSession(Outcome::Ok(made))] => self.session = made.session_id,
            other => return Err(format!("CREATE_SESSION: {other:?}")),
        }
        Ok(())
    }

    /// The connection, to end it by.
    pub(super) fn stream(&self) -> Result<TcpStream, String> {
        self.stream.try_clone().map_err(|error| error.to_string())
    }

    /// Takes callbacks until the server has tried the way to this client.
    pub(super) fn await_trial(&mut self) -> Result<(), String> {
        while !self.is_called {
            let record = self.read().map_err(|error| format!("no callback: {error}"))?;
            self.called(record)?;
        }
        Ok(())
    }

    /// Takes one record, which is a callback; false when the connection has ended.
    pub(super) fn take_callback(&mut self) -> Result<bool, String> {
        match self.read() {
            Ok(record) => self.called(record).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Sends operations in the session; the results behind SEQUENCE's, and the status of all.
    pub(super) fn call(&mut self, operations: Vec<Op>) -> Result<(Status, Vec<OpResult>), String> {
        self.sequence += 1;
        let sequence = Op::Sequence(SequenceArgs::in_first_slot(self.session, self.sequence));
        let result = self.compound(std::iter::once(sequence).chain(operations).collect())?;
        let mut results = result.results.into_vec();
        match results.first() {
            Some(OpResult::Sequence(Outcome::Ok(_))) => results.remove(0),
            other => return Err(format!("SEQUENCE: {other:?}")),
        };
        Ok((result.status, results))
    }

    fn compound(&mut self, operations: Vec<Op>) -> Result<CompoundResult, String> {
        let ops = List::new(operations).map_err(|_| "too many operations")?;
        let args = CompoundArgs { tag: Utf8::default(), minor_version: 1, ops };
        self.xid += 1;
        let mut record = Writer::new();
        // The files are this process's, and the server is told not to squash.
        let credential = OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"enfys-bench"),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            gids: GroupList::default(),
        });
        let header = CallHeader { credential, ..CallHeader::new(self.xid, PROGRAM, VERSION, PROC_COMPOUND) };
        encode_call(&mut record, &header, &args);
        self.write(&record.into_bytes()).map_err(|error| error.to_string())?;
        loop {
            let record = self.read().map_err(|error| format!("no answer: {error}"))?;
            match peek(&record).map_err(|error| error.to_string())? {
                (_, MessageType::CALL) => self.called(record)?,
                (xid, _) if xid == self.xid => return parse_reply(record).map_err(|error| error.to_string()),
                (xid, _) => return Err(format!("an answer to {xid}, which was not asked")),
            }
        }
    }

    /// Answers a call of the server's.
    fn called(&mut self, record: Bytes) -> Result<(), String> {
        self.is_called = true;
        let mut reader = Reader::new(record);
        let header = CallHeader::parse(&mut reader).map_err(|error| format!("{error:?}"))?;
        let mut reply = Writer::new();
        encode_success(&mut reply, header.xid);
        if header.procedure == callback::PROC_COMPOUND {
            let args = CbCompoundArgs::decode(&mut reader).map_err(|error| error.to_string())?;
            self.execute(&args)?.encode(&mut reply);
        }
        self.write(&reply.into_bytes()).map_err(|error| error.to_string())
    }

    fn execute(&mut self, args: &CbCompoundArgs) -> Result<CbCompoundResult, String> {
        let [CbOp::Sequence(sequence), CbOp::Recall(recall)] = &args.ops[..] else {
            return Err(format!("a callback that is no recall: {args:?}"));
        };
        thread::sleep(self.delay);
        self.recalled.push_back((recall.handle, recall.stateid));
        let sequence = CbSequenceOk {
            session_id: sequence.session_id,
            sequence_id: sequence.sequence_id,
            slot_id: sequence.slot_id,
            highest_slot_id: sequence.highest_slot_id,
            target_highest_slot_id: sequence.highest_slot_id,
        };
        let results = vec![CbOpResult::Sequence(Outcome::Ok(sequence)), CbOpResult::Recall(Outcome::Ok(()))];
        let results = List::new(results).map_err(|_| "too many results")?;
        Ok(CbCompoundResult { status: Status::OK, tag: Utf8::default(), results })
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let mut record = (LAST_FRAGMENT | message.len() as u32).to_be_bytes().to_vec();
        record.extend_from_slice(message);
        self.stream.write_all(&record)
    }

    fn read(&mut self) -> io::Result<Bytes> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let (start, length) = (record.len(), (mark & !LAST_FRAGMENT) as usize);
            if start + length > RECORD_BYTES_MAX {
                return Err(io::Error::other("a record longer than any that was asked for"));
            }
            record.resize(start + length, 0);
            self.stream.read_exact(&mut record[start..])?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(record.into());
            }
        }
    }
}
