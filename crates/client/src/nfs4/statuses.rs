//! Statuses of lost sessions and stateids, and the client's reactions (RFC 8881 §8.4, §15.1; RFC 7530
//! §9.6, §13.1). [`crate::owner`] has their effects on seqids, [`super::v40`] those of RENEW.

use protocol::nfs4::ops::session::SequenceStatus;
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

/// Returns whether a status says that the server has revoked the state. It does not say so of state that has ended otherwise, as by LOCKU.
pub(super) fn is_revoked(status: Status) -> bool {
    matches!(status, Status::EXPIRED | Status::ADMIN_REVOKED | Status::DELEG_REVOKED)
}

/// What becomes of a file that the server does not let this client open again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unopened {
    /// It is opened again when it is used next, after the grace period. Its locks are lost.
    AtNextUse,
    /// It is gone, or the user may not open it any longer: operations fail with the status.
    Lost,
    /// Its name is another object's, or nobody's: operations fail with STALE.
    Stale,
}

/// Each status of an OPEN after a restart, a lost lease or a revocation, and what becomes of the file. Others fail the attempt.
pub(super) const UNOPENED: &[(Status, Unopened)] = &[
    // RFC 8881 §8.4.2.1, §8.4.3.
    (Status::NO_GRACE, Unopened::AtNextUse),
    (Status::RECLAIM_BAD, Unopened::AtNextUse),
    (Status::RECLAIM_CONFLICT, Unopened::AtNextUse),
    (Status::STALE, Unopened::Lost),
    (Status::NOENT, Unopened::Lost),
    (Status::ACCESS, Unopened::Lost),
    (Status::PERM, Unopened::Lost),
    (Status::ROFS, Unopened::Lost),
    (Status::ISDIR, Unopened::Lost),
    // Of a name, by which 4.0 opens files outside the grace period.
    (Status::NOTDIR, Unopened::Stale),
    (Status::SYMLINK, Unopened::Stale),
];

/// Returns what becomes of a file whose OPEN got this status, by its name or by its handle; `None` if nothing is known about it.
pub(super) fn unopened(status: Status, by_name: bool) -> Option<Unopened> {
    let listed = UNOPENED.iter().find(|(listed, _)| *listed == status).map(|(_, unopened)| *unopened)?;
    match (listed, by_name) {
        (_, true) if status == Status::NOENT => Some(Unopened::Stale),
        (Unopened::Stale, false) => None,
        (listed, _) => Some(listed),
    }
}

/// The reaction to a flag of SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlagReaction {
    /// Reclaim all state: the server has restarted, and the session survived.
    Reclaim,
    /// Bind the back channel to the connection again.
    BindBackChannel,
    /// Look for the state that was revoked, free it, and open its files again when they are used.
    FindRevoked,
    /// None.
    Ignore,
}

/// Each flag of SEQUENCE (RFC 8881 §18.46.3), and the reaction to it.
pub(super) const FLAGS: &[(SequenceStatus, FlagReaction)] = &[
    (SequenceStatus::CB_PATH_DOWN, FlagReaction::BindBackChannel),
    // Callbacks without GSS.
    (SequenceStatus::CB_GSS_CONTEXTS_EXPIRING, FlagReaction::Ignore),
    (SequenceStatus::CB_GSS_CONTEXTS_EXPIRED, FlagReaction::Ignore),
    (SequenceStatus::EXPIRED_ALL_STATE_REVOKED, FlagReaction::FindRevoked),
    (SequenceStatus::EXPIRED_SOME_STATE_REVOKED, FlagReaction::FindRevoked),
    (SequenceStatus::ADMIN_STATE_REVOKED, FlagReaction::FindRevoked),
    (SequenceStatus::RECALLABLE_STATE_REVOKED, FlagReaction::FindRevoked),
    // Operations on a file system that has moved get MOVED.
    (SequenceStatus::LEASE_MOVED, FlagReaction::Ignore),
    (SequenceStatus::RESTART_RECLAIM_NEEDED, FlagReaction::Reclaim),
    (SequenceStatus::CB_PATH_DOWN_SESSION, FlagReaction::BindBackChannel),
    (SequenceStatus::BACKCHANNEL_FAULT, FlagReaction::BindBackChannel),
    // There are no layouts.
    (SequenceStatus::DEVID_CHANGED, FlagReaction::Ignore),
    (SequenceStatus::DEVID_DELETED, FlagReaction::Ignore),
];

/// Returns whether any of the flags asks for this reaction.
pub(super) fn ask_for(flags: SequenceStatus, reaction: FlagReaction) -> bool {
    FLAGS.iter().any(|(flag, listed)| *listed == reaction && flags.contains(*flag))
}

/// Returns whether a compound failed because it was too large for the server (RFC 8881 §15.1.2).
pub(super) fn is_too_large(status: Status) -> bool {
    matches!(
        status,
        Status::RESOURCE
            | Status::TOO_MANY_OPS
            | Status::REP_TOO_BIG
            | Status::REP_TOO_BIG_TO_CACHE
            | Status::REQ_TOO_BIG
    )
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::super::lease::{REVOKED, UNREACHABLE};
    use super::super::v40::RENEWALS;
    use super::*;

    #[test]
    fn every_status_is_listed_once() {
        let mut seen = std::collections::HashSet::new();
        assert!(TABLE.iter().all(|(status, _)| seen.insert(status.0)));
        assert_eq!(recovery(Status::NOENT), Recovery::Fail);
    }

    /// The state manager as a table: whatever the server says about state, and what the client does. Events without a status, such
    /// as lost connections and recalls, are in the table of `tests/nfs4_cached/state_events.rs`.
    #[test]
    fn table_of_reactions() {
        let mut table = String::from("an operation with state, or SEQUENCE\n");
        for (status, reaction) in TABLE {
            writeln!(table, "    {status:?}: {reaction:?}").unwrap();
        }
        table.push_str("OPEN of a file whose open is lost: by its handle, by its name\n");
        for (status, _) in UNOPENED {
            let [by_handle, by_name] = [false, true].map(|by_name| {
                unopened(*status, by_name)
                    .map_or_else(|| "TryAgain".to_owned(), |listed| format!("{listed:?}"))
            });
            writeln!(table, "    {status:?}: {by_handle}, {by_name}").unwrap();
        }
        table.push_str("flags of SEQUENCE\n");
        for (flag, reaction) in FLAGS {
            writeln!(table, "    {flag:?}: {reaction:?}").unwrap();
        }
        table.push_str("RENEW of version 4.0\n");
        for (status, renewal) in RENEWALS {
            writeln!(table, "    {status:?}: {renewal:?}").unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn every_flag_has_one_reaction() {
        let all = FLAGS.iter().fold(SequenceStatus::empty(), |all, (flag, _)| {
            assert!(!all.intersects(*flag), "{flag:?} is listed twice");
            all.union(*flag)
        });
        assert_eq!(all.iter_names().count(), SequenceStatus::all().iter_names().count());
        assert!(FLAGS.iter().all(|(flag, reaction)| {
            REVOKED.contains(*flag) == (*reaction == FlagReaction::FindRevoked)
                && UNREACHABLE.contains(*flag) == (*reaction == FlagReaction::BindBackChannel)
        }));
    }
}
