use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use server::{Connection, ConnectionId, Disposition, Outcome, Transport};
use tokio::task::JoinSet;
use tracing::{debug, error};
use xdr::Writer;

use crate::Call;
use crate::connection::Shared;
use crate::output::gather;

/// Bytes of the largest datagram that UDP over IPv4 carries.
const MAX_DATAGRAM: usize = 65_507;

/// Serves datagrams: each is a record without record mark, and so is its answer (RFC 5531 §11 is for streams only).
pub(crate) async fn serve(shared: Arc<Shared>, socket: UdpSocket, id: ConnectionId) {
    let opened = socket.local_addr().and_then(|local| Ok((tokio::net::UdpSocket::from_std(socket)?, local)));
    let (socket, local) = match opened {
        Ok((socket, local)) => (Arc::new(socket), local),
        Err(error) => return error!("cannot receive datagrams: {error}"),
    };
    let mut calls = JoinSet::new();
    let mut datagram = vec![0; MAX_DATAGRAM];
    loop {
        let (length, peer) = match socket.recv_from(&mut datagram).await {
            Ok(received) => received,
            Err(error) => {
                // The error of an earlier answer (nobody listens there any more), not of this socket.
                debug!("datagram lost: {error}");
                continue;
            }
        };
        while calls.try_join_next().is_some() {}
        if calls.len() >= shared.limits.max_waiting_calls {
            // The peer will ask again.
            continue;
        }
        let record = Bytes::copy_from_slice(&datagram[..length]);
        let connection = Arc::new(Connection::new(id, peer, local, Transport::Udp, false));
        let (shared, socket) = (Arc::clone(&shared), Arc::clone(&socket));
        calls.spawn_local(async move {
            let mut reply = Writer::new();
            let (began, received) = (Instant::now(), record.len());
            let outcome = shared.server.handle(&connection, shared.clock.now(), record, &mut reply).await;
            if let Some(observer) = &shared.observer {
                let (took, sent) = (began.elapsed(), reply.length());
                let Outcome { operation, is_error, .. } = outcome;
                observer.observe(Call { operation, took, is_error, received, sent });
            }
            if outcome.disposition == Disposition::Reply && reply.length() <= MAX_DATAGRAM {
                let mut bytes = Vec::new();
                gather(&reply, &mut bytes);
                if let Err(error) = socket.send_to(&bytes, peer).await {
                    debug!(%peer, "answer lost: {error}");
                }
            }
        });
    }
}
