//! Sequences of NFSv2 calls from arbitrary bytes, for fuzzing: a server in memory, handles that it has returned and altered ones, and
//! repeated transaction numbers.

use core::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs2::{
    AttrStat, DirOpRes, FileHandle, PROGRAM, Proc, ReadRes, ReaddirRes, ReadlinkRes, Stat, StatfsRes, VERSION,
};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport, Versions,
};
use vfs::{Backend, MemFs, MemOptions, Timestamp};
use xdr::{Opaque, Writer};

use crate::raw_xdr::{Raw, Rest, decoded};

/// Maximum number of calls.
const MAX_CALLS: usize = 256;
/// Maximum number of known handles.
const MAX_HANDLES: usize = 64;
/// Set in a procedure's byte if the call has the transaction number of the one before.
const REPEATED: u8 = 0x80;
/// Procedures to choose from: all, and two that do not exist.
const PROCEDURES: u8 = 20;

/// Counts of the calls' outcomes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// Calls whose status was OK.
    pub succeeded: usize,
    /// Calls with another status.
    pub failed: usize,
    /// Calls whose arguments could not be decoded, or without such a procedure.
    pub rejected: usize,
    /// Handles that the server returned.
    pub handles: usize,
}

/// Runs calls. Each is a byte for the procedure, one for the handle, one for a length, and that many bytes of arguments after the handle.
///
/// # Panics
/// Panics if a reply does not decode as the procedure's results.
pub fn play(data: &[u8]) -> Played {
    let mut client = Client::new();
    let mut rest = data;
    for _ in 0..MAX_CALLS {
        let [procedure, handle, length, tail @ ..] = rest else { break };
        let (arguments, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        client.call(*procedure, *handle, arguments);
    }
    client.played
}

/// A client, and the server that it calls.
struct Client {
    server: Server,
    connection: Arc<Connection>,
    handles: Vec<FileHandle>,
    xid: u32,
    played: Played,
}

impl Client {
    fn new() -> Self {
        let key = HandleKey([9; 16]);
        let backend = Arc::new(MemFs::new(&MemOptions::default()));
        let (id, path, fsid) = (ExportId(1), "/export".into(), (7, 0));
        let root = key.seal_short(id, &backend.root()).expect("a short handle");
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let export = Export { id, path, backend, options, fsid, counts: Arc::default() };
        let versions = Versions::IMPLEMENTED;
        let settings = Settings { versions, ..Settings::new(key, 1, [3; 16], b"fuzz".to_vec()) };
        let exports = ExportTable::new(vec![export]).expect("a valid export");
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
        Self {
            server: Server::new(settings, exports),
            connection: Arc::new(connection),
            handles: vec![root],
            xid: 1,
            played: Played::default(),
        }
    }

    fn call(&mut self, procedure: u8, handle: u8, arguments: &[u8]) {
        if procedure & REPEATED == 0 {
            self.xid += 1;
        }
        let procedure = Proc(u32::from(procedure & !REPEATED) % u32::from(PROCEDURES));
        let mut file = self.handles[usize::from(handle) % self.handles.len()];
        if handle == u8::MAX {
            file[31] ^= 1;
        }
        let Some(reply) = self.send(procedure, &[&file[..], arguments].concat()) else { return };
        match parse_reply::<Rest>(reply) {
            Ok(Rest(results)) => self.check(procedure, results),
            Err(RpcError::NotExecuted(
                AcceptStatus::GarbageArguments | AcceptStatus::ProcedureUnavailable,
            )) => self.played.rejected += 1,
            Err(error) => panic!("{procedure:?}: {error}"),
        }
    }

    /// Returns the reply, if there is one.
    fn send(&self, procedure: Proc, arguments: &[u8]) -> Option<Bytes> {
        let machine_name = Opaque::from_static(b"client");
        let sys = AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids: GroupList::default() };
        let credential = OpaqueAuth::sys(&sys);
        let header = CallHeader { credential, ..CallHeader::new(self.xid, PROGRAM, VERSION, procedure.0) };
        let mut call = Writer::new();
        encode_call(&mut call, &header, &Raw(arguments));
        let wall = Timestamp { seconds: 1000 + i64::from(self.xid), nanoseconds: 5 };
        let now = Now { monotonic: Duration::from_secs(1), wall };
        let mut reply = Writer::new();
        let outcome = {
            let handled = pin!(self.server.handle(&self.connection, now, call.into_bytes(), &mut reply));
            match handled.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("memory answers at once"),
            }
        };
        assert_ne!(outcome.disposition, Disposition::Close, "{procedure:?}");
        (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
    }

    /// Decodes the results; a successful call may return another handle.
    fn check(&mut self, procedure: Proc, results: Bytes) {
        let status = match procedure {
            Proc::NULL | Proc::ROOT | Proc::WRITECACHE => {
                assert!(results.is_empty(), "{procedure:?} has no results");
                Stat::OK
            }
            Proc::GETATTR | Proc::SETATTR | Proc::WRITE => decoded::<AttrStat>(results).status(),
            Proc::LOOKUP | Proc::CREATE | Proc::MKDIR => {
                let result = decoded::<DirOpRes>(results);
                if let DirOpRes::Ok(ok) = &result {
                    self.played.handles += 1;
                    if self.handles.len() < MAX_HANDLES && !self.handles.contains(&ok.file) {
                        self.handles.push(ok.file);
                    }
                }
                result.status()
            }
            Proc::READLINK => decoded::<ReadlinkRes>(results).status(),
            Proc::READ => decoded::<ReadRes>(results).status(),
            Proc::READDIR => decoded::<ReaddirRes>(results).status(),
            Proc::STATFS => decoded::<StatfsRes>(results).status(),
            Proc::REMOVE | Proc::RENAME | Proc::LINK | Proc::SYMLINK | Proc::RMDIR => {
                decoded::<Stat>(results)
            }
            _ => panic!("{procedure:?} does not exist"),
        };
        assert!(status.name().is_some(), "{procedure:?}: {status:?} is not in RFC 1094");
        if status == Stat::OK { self.played.succeeded += 1 } else { self.played.failed += 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(procedure: Proc, handle: u8, arguments: &[u8]) -> Vec<u8> {
        [&[procedure.0 as u8, handle, arguments.len() as u8][..], arguments].concat()
    }

    fn named(name: &[u8; 4], after: &[u8]) -> Vec<u8> {
        [&4_u32.to_be_bytes()[..], name, after].concat()
    }

    #[test]
    fn calls_use_the_handles_that_earlier_ones_returned() {
        let create = named(b"file", &[0xff; 32]);
        let data = [&[0; 12][..], &5_u32.to_be_bytes(), b"hello\0\0\0"].concat();
        let calls = [
            step(Proc::CREATE, 0, &create),
            step(Proc::WRITE, 1, &data),
            step(Proc::READDIR, 0, &[0, 0, 0, 0, 0, 0, 4, 0]),
            step(Proc::GETATTR, u8::MAX, &[]),
            step(Proc::LOOKUP, 0, &[0xff]),
        ];
        let played = play(&calls.concat());
        assert_eq!(played, Played { succeeded: 3, failed: 1, rejected: 1, handles: 1 });
    }
}
