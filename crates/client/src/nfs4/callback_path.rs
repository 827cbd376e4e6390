//! The way of the server's callbacks in version 4.0 (RFC 7530 §10.2.1, §16.28.5): RENEW says whether it works.
//!
//! A server that cannot call cannot recall, and revokes delegations. No flag tells: the client uses each delegation's stateid to find out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::types::{Handle, Stateid, Status};

use super::Nfs4;
use super::recovery::as_lost;
use super::session::Session;
use super::statuses::{Recovery, recovery};
use super::wire::put;
use crate::config::Caller;
use crate::error::OpError;

/// Delegations that are checked at a time.
const CHECKS_MAX: usize = 64;
/// RENEWs without a way for callbacks after each of which the callback address is announced again. Later this is done only after
/// each [`ANNOUNCE_INTERVAL`]th.
const ANNOUNCEMENTS: u32 = 3;
const ANNOUNCE_INTERVAL: u32 = 10;

impl Nfs4 {
    /// Handles the success of RENEW; `can_recall` is false for CB_PATH_DOWN. Then the server connects anew, and if that does not help
    /// until the next RENEW, delegations are returned: "the server SHOULD give the client a reasonable time to return its delegations"
    /// (§10.4.6).
    pub(super) async fn handle_renewed(&self, session: &Arc<Session>, can_recall: bool) {
        if can_recall {
            self.renewals_uncalled.store(0, Ordering::Relaxed);
        } else {
            let before = self.renewals_uncalled.fetch_add(1, Ordering::Relaxed);
            if before > 0 {
                self.delegations.give_back_all();
            }
            if before < ANNOUNCEMENTS || before.is_multiple_of(ANNOUNCE_INTERVAL) {
                self.announce_callbacks(session).await;
            }
        }
        if session.may_be_revoked() && self.check_delegations(session).await.is_ok() {
            session.searched(false);
        }
    }

    async fn announce_callbacks(&self, session: &Session) {
        let announced = self.setup().announce_callbacks(session.client_id).await;
        if announced == Err(OpError::Status(Status::STALE_CLIENTID)) {
            session.lose(Status::STALE_CLIENTID);
        }
    }

    /// Finds delegations that the server has revoked.
    ///
    /// # Errors
    /// If the session was lost.
    async fn check_delegations(&self, session: &Arc<Session>) -> Result<(), OpError> {
        let checks = self.delegations.held_by().into_iter();
        let checks = checks.map(|(handle, stateid, caller)| self.check(session, handle, stateid, caller));
        let mut running = stream::iter(checks).buffer_unordered(CHECKS_MAX);
        while let Some(checked) = running.next().await {
            checked?;
        }
        Ok(())
    }

    /// Uses the stateid of a delegation for a READ of no bytes.
    async fn check(
        &self,
        session: &Arc<Session>,
        handle: Handle,
        stateid: Stateid,
        caller: Caller,
    ) -> Result<(), OpError> {
        let read = Op::Read(ReadArgs { stateid, offset: 0, count: 0 });
        let results = session.compound(caller.credential(), &[put(handle), read], false).await;
        if recovery(results.map_err(as_lost)?.status()) == Recovery::Reopen {
            self.delegation_revoked(&handle, &stateid);
        }
        Ok(())
    }
}
