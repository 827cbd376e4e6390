//! EXCHANGE_ID's decision table (RFC 8881 §18.35.4), without the records.

use crate::state::tables::wire::Status;

/// What the server knows of an owner's confirmed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// `co_verifier` is that of the request.
    pub(crate) same_verifier: bool,
    /// The principal is that of the request.
    pub(crate) same_principal: bool,
    /// It has sessions, opens, locks or delegations, or may reclaim them, and its lease has not expired.
    pub(crate) in_use: bool,
}

/// What EXCHANGE_ID does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A new unconfirmed record, in place of any unconfirmed one; a confirmed one stays beside it until CREATE_SESSION.
    New,
    /// The same, and the confirmed record goes now with all it holds.
    Replace,
    /// The confirmed record, as it is.
    Existing,
    /// Refused; the records stay as they are.
    Refuse(Status),
}

/// The scenario of §18.35.4 that a request is, by its number there. `is_kept`: the name is that of another principal's client, which
/// may still reclaim what it held before a restart.
pub(crate) fn decide(update: bool, confirmed: Option<Known>, is_kept: bool) -> Decision {
    match (update, confirmed) {
        // 3, of a record that did not outlive the server, and whose state may be reclaimed: the lease runs as long as the grace period.
        (false, None) if is_kept => Decision::Refuse(Status::CLID_INUSE),
        // 1 New Owner ID; 4 Replacement of Unconfirmed Record.
        (false, None) => Decision::New,
        // 2 Non-Update on Existing Client ID: "The confirmed record is unchanged."
        (false, Some(Known { same_verifier: true, same_principal: true, .. })) => Decision::Existing,
        // 3 Client Collision: "If old_clientid_ret has an unexpired lease with state … The server returns NFS4ERR_CLID_INUSE".
        (false, Some(Known { same_principal: false, in_use: true, .. })) => {
            Decision::Refuse(Status::CLID_INUSE)
        }
        // 3: "If there is currently no state associated with old_clientid_ret, or if there is state but the lease has expired,
        // … The confirmed record is deleted, the old_clientid_ret and its lock state are deleted".
        (false, Some(Known { same_principal: false, in_use: false, .. })) => Decision::Replace,
        // 5 Client Restart: "The previously described confirmed record continues to exist".
        (false, Some(Known { same_verifier: false, same_principal: true, .. })) => Decision::New,
        // 7 Update but No Confirmed Record: "leaves any unconfirmed record intact".
        (true, None) => Decision::Refuse(Status::NOENT),
        // 8 Update but Wrong Verifier, whatever the principal.
        (true, Some(Known { same_verifier: false, .. })) => Decision::Refuse(Status::NOT_SAME),
        // 9 Update but Wrong Principal.
        (true, Some(Known { same_principal: false, .. })) => Decision::Refuse(Status::PERM),
        // 6 Update: "The server allows the update, and the client record is left intact."
        (true, Some(_)) => Decision::Existing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_rfc_is_decided() {
        let known =
            |same_verifier, same_principal, in_use| Some(Known { same_verifier, same_principal, in_use });
        let refuse = Decision::Refuse;
        // The nine scenarios, with the fields that the RFC leaves open tried both ways.
        let table = [
            (false, None, Decision::New),
            (false, known(true, true, false), Decision::Existing),
            (false, known(true, true, true), Decision::Existing),
            (false, known(true, false, true), refuse(Status::CLID_INUSE)),
            (false, known(false, false, true), refuse(Status::CLID_INUSE)),
            (false, known(true, false, false), Decision::Replace),
            (false, known(false, false, false), Decision::Replace),
            (false, known(false, true, false), Decision::New),
            (false, known(false, true, true), Decision::New),
            (true, None, refuse(Status::NOENT)),
            (true, known(false, true, false), refuse(Status::NOT_SAME)),
            (true, known(false, false, true), refuse(Status::NOT_SAME)),
            (true, known(true, false, false), refuse(Status::PERM)),
            (true, known(true, false, true), refuse(Status::PERM)),
            (true, known(true, true, false), Decision::Existing),
            (true, known(true, true, true), Decision::Existing),
        ];
        for (update, confirmed, decision) in table {
            assert_eq!(decide(update, confirmed, false), decision, "update {update}, {confirmed:?}");
        }
        assert_eq!(decide(false, None, true), refuse(Status::CLID_INUSE));
        assert_eq!(decide(true, None, true), refuse(Status::NOENT));
    }
}
