//! State protection by a machine credential, SP4_MACH_CRED (RFC 8881 §2.10.8.3, §18.35.3).
//!
//! A client that asks for it has its client ID and sessions made, bound to connections and ended by the principal alone that
//! made the client ID, with RPCSEC_GSS and a service that protects the call ([`Credential::is_protected`]). Nothing of AUTH_SYS does:
//! EXCHANGE_ID answers INVAL there.

use protocol::nfs4::ops::exchange_id::StateProtectOps;
use protocol::nfs4::types::{Bitmap, OpNum};

use super::principal::{Credential, Principal};
use super::wire::Status;

/// What the machine alone may do, whether the client asks for it or not: as Linux's server has it. RFC 8881 §18.35.3: from the
/// set with DELEGPURGE beside these, the result "MUST include the operations the client requested".
const ENFORCED: Bitmap = Bitmap::of(&[
    OpNum::BIND_CONN_TO_SESSION.0,
    OpNum::EXCHANGE_ID.0,
    OpNum::CREATE_SESSION.0,
    OpNum::DESTROY_SESSION.0,
    OpNum::DESTROY_CLIENTID.0,
]);

/// What is enforced where the client asks for it: who else could tell where its callbacks go. DELEGPURGE is nobody's to do here
/// (NOTSUPP).
const ENFORCED_AT_WISH: Bitmap = Bitmap::of(&[OpNum::DELEGPURGE.0, OpNum::BACKCHANNEL_CTL.0]);

/// What the machine may do with state that a user's principal made. None of them asks here who made it, since stateids are not
/// bound to principals (EXCHGID4_FLAG_BIND_PRINC_STATEID is not answered). READ and WRITE are not among them: they are judged
/// as the caller's.
const ALLOWED: Bitmap = Bitmap::of(&[
    OpNum::CLOSE.0,
    OpNum::COMMIT.0,
    OpNum::DELEGRETURN.0,
    OpNum::LOCKU.0,
    OpNum::OPEN_DOWNGRADE.0,
    OpNum::TEST_STATEID.0,
    OpNum::FREE_STATEID.0,
]);

/// How a client's state is protected; chosen once for a client ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateProtect {
    /// `SP4_NONE`.
    #[default]
    None,
    /// `SP4_MACH_CRED`, with what the server told of it.
    Machine(StateProtectOps),
}

impl StateProtect {
    /// `SP4_MACH_CRED` for a client that asks for this.
    ///
    /// # Errors
    /// INVAL where it asks by a credential that protects nothing, as Linux's server has it.
    pub fn machine(asked: &StateProtectOps, by: &Credential) -> Result<Self, Status> {
        // §18.35.3: "the client MUST send the EXCHANGE_ID operation with RPCSEC_GSS as the security flavor, and with a service of
        // RPC_GSS_SVC_INTEGRITY or RPC_GSS_SVC_PRIVACY."
        if !by.is_protected {
            return Err(Status::INVAL);
        }
        Ok(Self::Machine(StateProtectOps {
            must_enforce: ENFORCED.union(asked.must_enforce.intersection(ENFORCED_AT_WISH)),
            must_allow: asked.must_allow.intersection(ALLOWED),
        }))
    }

    /// Whether the principal is the client's, as its protection has that. RFC 8881 §2.10.8.3 has the machine's be protected, or
    /// it proves nothing.
    pub(crate) fn is_of(self, owner: &Principal, by: &Credential) -> bool {
        (self == Self::None || by.is_protected) && by.principal == *owner
    }

    /// Whether an operation is among those that the machine alone may do (`spo_must_enforce`).
    pub(crate) fn enforces(self, operation: OpNum) -> bool {
        matches!(self, Self::Machine(agreed) if agreed.must_enforce.has(operation.0))
    }
}
