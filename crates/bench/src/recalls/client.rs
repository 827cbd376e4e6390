//! A client of version 4.1 with a back channel and one request at a time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
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
use rpc::record::{RecordDecoder, finish_record, start_record};
use xdr::{Decode, Encode, List, Opaque, Reader, Writer};

/// Maximum bytes of a record.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Time for the server's probe of the back channel; servers without a probe never send one.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client with a session over one connection, which carries its back channel too.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    /// Bytes of an incomplete record.
    incoming: BytesMut,
    records: RecordDecoder,
    /// Transaction ID of the last call.
    xid: u32,
    session: SessionId,
    sequence: u32,
    /// Recalled delegations that were not returned yet.
    pub(super) recalled: VecDeque<(Handle, Stateid)>,
    /// A callback has arrived, so the server knows that the back channel works.
    is_called: bool,
}

impl Client {
    /// Connects, and creates a session.
    pub(super) fn connect(server: SocketAddr, name: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(server).map_err(|error| format!("connect to {server}: {error}"))?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(TIMEOUT)));
        set.map_err(|error| error.to_string())?;
        let mut client = Self {
            stream,
            incoming: BytesMut::new(),
            records: RecordDecoder::new(RECORD_BYTES_MAX),
            xid: 0,
            session: SessionId::default(),
            sequence: 0,
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

    /// Returns the connection, for closing it.
    pub(super) fn stream(&self) -> Result<TcpStream, String> {
        self.stream.try_clone().map_err(|error| error.to_string())
    }

    /// Answers callbacks until the server has probed the back channel, or sends no probe in time.
    pub(super) fn await_trial(&mut self) -> Result<(), String> {
        self.stream.set_read_timeout(Some(TRIAL_TIMEOUT)).map_err(|error| error.to_string())?;
        while !self.is_called {
            match self.read() {
                Ok(record) => self.answer_callback(record)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("no callback: {error}")),
            }
        }
        self.stream.set_read_timeout(Some(TIMEOUT)).map_err(|error| error.to_string())
    }

    /// Sends operations in the session; returns the results after SEQUENCE's, and the overall status.
    pub(super) fn call(&mut self, operations: Vec<Op>) -> Result<(Status, Vec<OpResult>), String> {
        self.send(operations)?;
        let record = self.await_reply()?;
        self.reply(record)
    }

    /// Sends operations in the session. Await the [reply](Self::reply) before the next request.
    pub(super) fn send(&mut self, operations: Vec<Op>) -> Result<(), String> {
        self.sequence += 1;
        let sequence = Op::Sequence(SequenceArgs::in_first_slot(self.session, self.sequence));
        self.send_compound(std::iter::once(sequence).chain(operations).collect())
    }

    /// Returns the reply to [`Self::send`]: the results after SEQUENCE's, and the overall status.
    pub(super) fn reply(&self, record: Bytes) -> Result<(Status, Vec<OpResult>), String> {
        let result = self.compound_reply(record)?;
        let mut results = result.results.into_vec();
        match results.first() {
            Some(OpResult::Sequence(Outcome::Ok(_))) => results.remove(0),
            other => return Err(format!("SEQUENCE: {other:?}")),
        };
        Ok((result.status, results))
    }

    fn compound(&mut self, operations: Vec<Op>) -> Result<CompoundResult, String> {
        self.send_compound(operations)?;
        let record = self.await_reply()?;
        self.compound_reply(record)
    }

    fn send_compound(&mut self, operations: Vec<Op>) -> Result<(), String> {
        let ops = List::new(operations).map_err(|_| "too many operations")?;
        let args = CompoundArgs { tag: Utf8::default(), minor_version: 1, ops };
        self.xid += 1;
        // This process owns the files, and the server is configured not to squash.
        let credential = OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"enfys-bench"),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            gids: GroupList::default(),
        });
        let header = CallHeader { credential, ..CallHeader::new(self.xid, PROGRAM, VERSION, PROC_COMPOUND) };
        self.write(|record| encode_call(record, &header, &args))
    }

    /// Returns the next reply; answers callbacks that arrive before it.
    fn await_reply(&mut self) -> Result<Bytes, String> {
        loop {
            let record = self.read().map_err(|error| format!("no answer: {error}"))?;
            if !is_call(&record)? {
                return Ok(record);
            }
            self.answer_callback(record)?;
        }
    }

    fn compound_reply(&self, record: Bytes) -> Result<CompoundResult, String> {
        match peek(&record).map_err(|error| error.to_string())? {
            (xid, _) if xid == self.xid => parse_reply(record).map_err(|error| error.to_string()),
            (xid, _) => Err(format!("an answer to {xid}, which was not asked")),
        }
    }

    /// Answers a callback.
    pub(super) fn answer_callback(&mut self, record: Bytes) -> Result<(), String> {
        self.is_called = true;
        let mut reader = Reader::new(record);
        let header = CallHeader::parse(&mut reader).map_err(|error| format!("{error:?}"))?;
        let mut result = None;
        if header.procedure == callback::PROC_COMPOUND {
            let args = CbCompoundArgs::decode(&mut reader).map_err(|error| error.to_string())?;
            result = Some(self.execute(&args)?);
        }
        self.write(|reply| {
            encode_success(reply, header.xid);
            result.iter().for_each(|result| result.encode(reply));
        })
    }

    fn execute(&mut self, args: &CbCompoundArgs) -> Result<CbCompoundResult, String> {
        let [CbOp::Sequence(sequence), CbOp::Recall(recall)] = &args.ops[..] else {
            return Err(format!("a callback that is not a recall: {args:?}"));
        };
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

    /// Sends a record.
    fn write(&mut self, encode: impl FnOnce(&mut Writer)) -> Result<(), String> {
        let mut writer = Writer::new();
        let start = start_record(&mut writer);
        encode(&mut writer);
        finish_record(&mut writer, start);
        self.stream.write_all(&writer.into_bytes()).map_err(|error| error.to_string())
    }

    /// Waits for a record.
    fn read(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(record) = self.next_record()? {
                return Ok(record);
            }
            if !self.receive()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns a record that has arrived.
    pub(super) fn next_record(&mut self) -> io::Result<Option<Bytes>> {
        self.records.decode(&mut self.incoming).map_err(io::Error::other)
    }

    /// Reads available bytes, or waits for some. Returns false at the end of the connection.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        let length = self.stream.read(&mut bytes)?;
        self.incoming.extend_from_slice(&bytes[..length]);
        Ok(length > 0)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether a record is a call, not a reply.
pub(super) fn is_call(record: &[u8]) -> Result<bool, String> {
    match peek(record).map_err(|error| error.to_string())? {
        (_, MessageType::CALL) => Ok(true),
        _ => Ok(false),
    }
}
