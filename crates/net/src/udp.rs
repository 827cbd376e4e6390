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

/// Maximum bytes of a datagram of UDP over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// Serves datagrams. Each holds one call or reply without a record mark, which RFC 5531 §11 has for streams only.
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
                // An error of an earlier reply, to a port that is closed now; the socket works.
                debug!("datagram lost: {error}");
                continue;
            }
        };
        while calls.try_join_next().is_some() {}
        if calls.len() >= shared.limits.max_waiting_calls {
            // The peer retransmits.
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
                    debug!(%peer, "reply lost: {error}");
                }
            }
        });
    }
}
