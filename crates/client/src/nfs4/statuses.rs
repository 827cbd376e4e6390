//! Statuses of lost sessions and stateids, and the client's reactions (RFC 8881 §8.4, §15.1; RFC 7530
//! §9.6, §13.1). [`crate::owner`] has their effects on seqids, [`super::v40`] those of RENEW.

use protocol::nfs4::types::Status;

/// The reaction to a status of an operation with a stateid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Open the file again, then repeat the operation. In 4.0 RENEW shows first whether all state is lost.
    Reopen,
    /// Repeat the operation: the stateid has been replaced meanwhile.
    Retry,
    /// Wait until the grace period is over, then repeat the operation.
    AwaitGrace,
    /// Make a new session. With it all state is reclaimed.
    NewSession,
    /// Make a new client ID and session, and reclaim all state.
    NewClient,
    /// Return the status to the caller.
    Fail,
}

/// Each status that concerns state, and the reaction to it. Other statuses fail the operation.
pub(crate) const TABLE: &[(Status, Recovery)] = &[
    (Status::BADSESSION, Recovery::NewSession),
    (Status::DEADSESSION, Recovery::NewSession),
    (Status::BADSLOT, Recovery::NewSession),
    (Status::SEQ_MISORDERED, Recovery::NewSession),
    (Status::SEQ_FALSE_RETRY, Recovery::NewSession),
    (Status::BAD_HIGH_SLOT, Recovery::NewSession),
    (Status::CONN_NOT_BOUND_TO_SESSION, Recovery::NewSession),
    (Status::STALE_CLIENTID, Recovery::NewClient),
    (Status::STALE_STATEID, Recovery::Reopen),
    (Status::BAD_STATEID, Recovery::Reopen),
    (Status::EXPIRED, Recovery::Reopen),
    (Status::ADMIN_REVOKED, Recovery::Reopen),
    (Status::DELEG_REVOKED, Recovery::Reopen),
    (Status::OPENMODE, Recovery::Fail),
    (Status::OLD_STATEID, Recovery::Retry),
    (Status::GRACE, Recovery::AwaitGrace),
];

/// Returns the reaction to a status.
pub(crate) fn recovery(status: Status) -> Recovery {
    TABLE.iter().find(|(listed, _)| *listed == status).map_or(Recovery::Fail, |(_, recovery)| *recovery)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_listed_once() {
        let mut seen = std::collections::HashSet::new();
        assert!(TABLE.iter().all(|(status, _)| seen.insert(status.0)));
        assert_eq!(recovery(Status::NOENT), Recovery::Fail);
    }
}
