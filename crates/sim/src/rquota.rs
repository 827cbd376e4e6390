//! Calls of RQUOTA from arbitrary bytes, for fuzzing: a server of file systems in memory, with and without quotas.

use core::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::rquota::{PROGRAM, Proc, QuotaResult, Rquota};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport,
};
use vfs::{MemFs, MemOptions, Timestamp};
use xdr::Writer;

use crate::raw_xdr::{Raw, Rest};

/// Maximum number of calls.
const MAX_CALLS: usize = 64;
/// Procedures to choose from: all, and one that does not exist.
const PROCEDURES: u8 = 6;

/// Runs calls. Each is a byte for version and caller, one for the procedure, one for a length, and that many bytes of arguments. Returns
/// the number of quotas in the replies.
///
/// # Panics
/// Panics if a reply does not decode, or if it has the quota of another user.
pub fn play(data: &[u8]) -> usize {
    let (server, mut told, mut rest) = (server(), 0, data);
    for _ in 0..MAX_CALLS {
        let [caller, procedure, length, tail @ ..] = rest else { break };
        let (arguments, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        let version = 1 + u32::from(caller & 1);
        told +=
            usize::from(call(&server, (version, *procedure % PROCEDURES), u32::from(caller >> 1), arguments));
    }
    told
}

fn server() -> Server {
    let export = |number: u32, path: &str, quota_bytes| {
        let backend = Arc::new(MemFs::new(&MemOptions { quota_bytes, ..MemOptions::default() }));
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let (id, fsid) = (ExportId(number), (u64::from(number), 0));
        Export { id, path: path.into(), backend, options, fsid, counts: Arc::default() }
    };
    let exports = vec![export(1, "/a", Some(1 << 20)), export(2, "/b", None)];
    let settings = Settings::new(HandleKey([9; 16]), 1, [3; 16], b"fuzz".to_vec());
    Server::new(settings, ExportTable::new(exports).expect("valid exports"))
}

/// Makes a call; returns whether its answer is a quota.
fn call(server: &Server, (version, procedure): (u32, u8), uid: u32, arguments: &[u8]) -> bool {
    let procedure = Proc(u32::from(procedure));
    let sys =
        AuthSys { stamp: 0, machine_name: Default::default(), uid, gid: uid, gids: GroupList::default() };
    let header =
        CallHeader { credential: OpaqueAuth::sys(&sys), ..CallHeader::new(1, PROGRAM, version, procedure.0) };
    let mut record = Writer::new();
    encode_call(&mut record, &header, &Raw(arguments));
    let reply = handle(server, record.into_bytes());
    let results = match parse_reply::<Rest>(reply) {
        Ok(Rest(results)) => results,
        Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments | AcceptStatus::ProcedureUnavailable)) => {
            return false;
        }
        Err(error) => panic!("{procedure:?}: {error}"),
    };
    if procedure == Proc::NULL {
        assert!(results.is_empty(), "NULL has no results");
        return false;
    }
    match xdr::from_bytes::<QuotaResult>(results).expect("results") {
        QuotaResult::Ok(Rquota { bsize, .. }) => {
            assert!(matches!(procedure, Proc::GETQUOTA | Proc::GETACTIVEQUOTA) && bsize >= 1024);
            let asked = asked_id(version, arguments);
            assert!(uid == 0 || asked == Some(uid), "{uid} got the quota of {asked:?}");
            true
        }
        QuotaResult::Fail(_) => false,
    }
}

/// Returns the ID that a call asks for: after the path, and in version 2 after the kind, which is that of users here.
fn asked_id(version: u32, arguments: &[u8]) -> Option<u32> {
    let length = u32::from_be_bytes(*arguments.first_chunk()?) as usize;
    let at = 4 + length.next_multiple_of(4) + if version == 1 { 0 } else { 4 };
    let id = arguments.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*id))
}

fn handle(server: &Server, record: Bytes) -> Bytes {
    let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
    let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
    let now = Now { monotonic: Duration::from_secs(1), wall: Timestamp { seconds: 1000, nanoseconds: 5 } };
    let (connection, mut reply) = (Arc::new(connection), Writer::new());
    let outcome = {
        let handled = pin!(server.handle(&connection, now, record, &mut reply));
        match handled.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("memory answers at once"),
        }
    };
    assert_eq!(outcome.disposition, Disposition::Reply);
    reply.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(caller: u8, procedure: Proc, arguments: &[u8]) -> Vec<u8> {
        [&[caller, procedure.0 as u8, arguments.len() as u8][..], arguments].concat()
    }

    #[test]
    fn only_root_and_the_user_itself_are_told() {
        let path = [0, 0, 0, 2, b'/', b'a', 0, 0];
        let first = |uid: u8| [&path[..], &[0, 0, 0, uid]].concat();
        let second = |uid: u8| [&path[..], &[0, 0, 0, 0, 0, 0, 0, uid]].concat();
        let calls = [
            step(5 << 1, Proc::GETQUOTA, &first(5)),
            step(5 << 1, Proc::GETQUOTA, &first(6)),
            step(0, Proc::GETACTIVEQUOTA, &first(6)),
            step(5 << 1 | 1, Proc::GETQUOTA, &second(5)),
            step(5 << 1, Proc::GETQUOTA, &[&first(5)[..], &[0; 4]].concat()),
            step(0, Proc::GETQUOTA, &path),
            step(0, Proc(5), &[]),
        ];
        assert_eq!(play(&calls.concat()), 4);
    }
}
