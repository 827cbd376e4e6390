//! Client IDs of version 4.0, which has no sessions: SETCLIENTID creates one, RENEW renews its lease (RFC 7530 §9.1.1, §9.5).

use core::net::SocketAddr;
use std::sync::Arc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::ops::setclientid::{
    CallbackClient, RenewArgs, SetClientIdArgs, SetClientIdConfirmArgs, SetClientIdOk, SetClientIdResult,
};
use protocol::nfs4::types::{ClientId, ClientOwner, NetAddress, SessionId, Status, Utf8};
use protocol::nfs4::{PROC_NULL, PROGRAM, VERSION};
use rpc::address::{NetId, UniversalAddress};
use rpc::message::{CallHeader, encode_call, parse_reply};
use xdr::Writer;

use super::callback::CALLBACK_PROGRAM;
use super::callback_v40::callback_ident;
use super::establish::{OVERHEAD, Registration, Setup, owner_id};
use super::sequencer::Sequencer;
use super::session::{Limits, NewSession, Session};
use crate::config::{CallbackAddress, Config, SLOTS_MAX};
use crate::engine::ConnectionId;
use crate::error::OpError;

/// Number of times that SETCLIENTID is repeated if its confirmation failed because the server restarted in between.
const REGISTRATIONS_MAX: u32 = 3;
/// Maximum number of operations in a compound. 4.0 has no way to ask: Linux takes 50, NFS-Ganesha 100.
const OPERATIONS_MAX: u32 = 50;

/// The state of the lease after RENEW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It is renewed.
    Renewed,
    /// It is renewed. The server cannot recall delegations.
    NoCallbacks,
    /// It has expired, with all state.
    Lost,
    /// Unknown.
    Unknown,
}

/// Each status of RENEW that tells the state of the lease (RFC 7530 §16.28).
pub(super) const RENEWALS: &[(Status, Renewal)] = &[
    (Status::OK, Renewal::Renewed),
    (Status::CB_PATH_DOWN, Renewal::NoCallbacks),
    // §13.5: the lease is renewed for file systems that have not moved. Operations on moved ones get MOVED.
    (Status::LEASE_MOVED, Renewal::Renewed),
    (Status::STALE_CLIENTID, Renewal::Lost),
    (Status::EXPIRED, Renewal::Lost),
];

fn renewal(status: Status) -> Renewal {
    RENEWALS.iter().find(|(listed, _)| *listed == status).map_or(Renewal::Unknown, |(_, renewal)| *renewal)
}

impl Setup<'_> {
    /// SETCLIENTID and SETCLIENTID_CONFIRM.
    pub(super) async fn set_client_id(&self) -> Result<Registration, OpError> {
        let mut outcome = Err(OpError::Status(Status::STALE_CLIENTID));
        for _ in 0..REGISTRATIONS_MAX {
            let SetClientIdOk { client_id, confirm } = self.ask_client_id().await?;
            if self.is_taking_over && self.config.continues != Some(client_id) {
                break;
            }
            let confirm = Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm });
            outcome = self.call(confirm).await?.skip();
            match outcome {
                Err(OpError::Status(Status::STALE_CLIENTID)) => {}
                // The same client ID as before says that the server still knows the client.
                Ok(()) => return Ok(Registration { client_id, sequence: 0, is_confirmed: true }),
                Err(_) => break,
            }
        }
        Err(outcome.err().unwrap_or(OpError::Status(Status::STALE_CLIENTID)))
    }

    async fn ask_client_id(&self) -> Result<SetClientIdOk, OpError> {
        let location = self.callback_location().await?.unwrap_or_else(|| NetAddress {
            // No address, as clients behind firewalls send it. Servers then grant no delegations (RFC 7530 §10.4).
            netid: Utf8::from_static(b"tcp"),
            address: Utf8::from_static(b"0.0.0.0.0.0"),
        });
        let ask = set_client_id(self.config, location, callback_ident(self.config))?;
        self.call(ask).await?.next(|result| match result {
            OpResult::SetClientId(SetClientIdResult::Ok(ok)) => Some(ok),
            _ => None,
        })
    }

    /// Returns where the server can call this client; `None` if it needs not, because delegations are not used, or cannot.
    ///
    /// # Errors
    /// The server cannot be reached.
    async fn callback_location(&self) -> Result<Option<NetAddress>, OpError> {
        let CallbackAddress { accepts, address, port } = self.config.callbacks;
        // nfs(5) on `clientaddr=0.0.0.0`: it tells the server "that this NFS client does not want delegations".
        let wants = accepts && self.config.caches.delegations;
        if !wants || address.is_some_and(|address| address.is_unspecified()) {
            return Ok(None);
        }
        // The connection tells this machine's address.
        let null = |xid| {
            let mut call = Writer::new();
            let credential = self.config.machine.credential().clone();
            let header = CallHeader { credential, ..CallHeader::new(xid, PROGRAM, VERSION, PROC_NULL) };
            encode_call(&mut call, &header, &());
            vec![call.into_bytes()]
        };
        parse_reply::<()>(self.engine.call(self.connection, null).await?)?;
        let Some(local) = self.engine.listen(port).await else { return Ok(None) };
        let announced = SocketAddr::new(address.unwrap_or(local.ip()).to_canonical(), local.port());
        let text = UniversalAddress(announced).to_string();
        Ok(Some(NetAddress {
            netid: Utf8::from_static(NetId::tcp(&announced).as_str().as_bytes()),
            address: Utf8::new(text.into_bytes()).unwrap_or_default(),
        }))
    }

    /// Announces the callback address again: the server keeps the client ID and its state (RFC 7530 §16.33.5), and connects anew.
    ///
    /// # Errors
    /// STALE_CLIENTID if the server has given another client ID: it has forgotten the client.
    pub(super) async fn announce_callbacks(&self, client_id: ClientId) -> Result<(), OpError> {
        let registration = self.set_client_id().await?;
        match registration.client_id == client_id {
            true => Ok(()),
            false => Err(OpError::Status(Status::STALE_CLIENTID)),
        }
    }

    /// Begins the session of a client ID. This needs no request.
    pub(super) fn begin_v40_session(
        &self,
        registration: &Registration,
        connections: &[ConnectionId],
    ) -> Arc<Session> {
        let max = self.config.v3_calls.clamp(1, SLOTS_MAX);
        let limits = Limits {
            request: self.config.write_size + OVERHEAD,
            response: self.config.read_size + OVERHEAD,
            operations: OPERATIONS_MAX,
            in_flight: max,
        };
        let new = NewSession {
            id: SessionId::default(),
            client_id: registration.client_id,
            minor_version: 0,
            granted: CreateSessionFlags::empty(),
            limits,
            delay_limit: self.config.retry.delay_limit(),
            sequencer: Sequencer::Calls { in_use: 0, max },
            renewed_at: self.engine.now(),
        };
        Session::new(Arc::clone(self.engine), connections.to_vec(), new)
    }

    /// RENEW. The session is lost if the server no longer knows its client ID. Returns whether the server can recall delegations.
    ///
    /// # Errors
    /// [`Status::BADSESSION`] if the session is lost; why it is unknown whether the lease was renewed otherwise.
    pub(super) async fn renew(&self, session: &Session) -> Result<bool, OpError> {
        let renew = Op::Renew(RenewArgs { client_id: session.client_id });
        let sent_at = self.engine.now();
        let status = self.call(renew).await?.status();
        match renewal(status) {
            renewed @ (Renewal::Renewed | Renewal::NoCallbacks) => {
                let can_recall = renewed == Renewal::Renewed;
                session.renewed(sent_at, can_recall);
                Ok(can_recall)
            }
            Renewal::Lost => {
                session.lose(status);
                Err(OpError::Status(Status::BADSESSION))
            }
            Renewal::Unknown => Err(OpError::Status(status)),
        }
    }
}

/// Returns SETCLIENTID of the client, which accepts callbacks at this address.
pub(crate) fn set_client_id(
    config: &Config,
    location: NetAddress,
    callback_ident: u32,
) -> Result<Op, OpError> {
    Ok(Op::SetClientId(SetClientIdArgs {
        client: ClientOwner { verifier: config.verifier, owner_id: owner_id(config)? },
        callback: CallbackClient { program: CALLBACK_PROGRAM, location },
        callback_ident,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_renew_is_listed_once() {
        let mut seen = std::collections::HashSet::new();
        assert!(RENEWALS.iter().all(|(status, _)| seen.insert(status.0)));
        assert_eq!(renewal(Status::RESOURCE), Renewal::Unknown);
    }
}
