//! State protection by a machine credential, SP4_MACH_CRED (RFC 8881 §2.10.8.3, §18.35.3).
//!
//! A client may ask for this protection in EXCHANGE_ID. Then only the principal that created the client ID may create
//! sessions, bind connections and destroy either, by RPCSEC_GSS with integrity or privacy ([`Credential::is_protected`]). Over
//! AUTH_SYS, EXCHANGE_ID answers INVAL.

use protocol::nfs4::ops::exchange_id::StateProtectOps;
use protocol::nfs4::types::{Bitmap, OpNum};

use super::principal::{Credential, Principal};
use super::wire::Status;

/// Operations that only the machine principal may do, whether or not the client asks for it: the same as in Linux's server.
/// RFC 8881 §18.35.3: of these and DELEGPURGE, the result "MUST include the operations the client requested".
const ENFORCED: Bitmap = Bitmap::of(&[
    OpNum::BIND_CONN_TO_SESSION.0,
    OpNum::EXCHANGE_ID.0,
    OpNum::CREATE_SESSION.0,
    OpNum::DESTROY_SESSION.0,
    OpNum::DESTROY_CLIENTID.0,
]);

/// Operations that are enforced if the client asks for it. BACKCHANNEL_CTL decides where callbacks go. DELEGPURGE is not
/// supported.
const ENFORCED_ON_REQUEST: Bitmap = Bitmap::of(&[OpNum::DELEGPURGE.0, OpNum::BACKCHANNEL_CTL.0]);

/// Operations by which the machine principal may change the state of its users. They do not check who created the state,
/// because stateids are not bound to principals (no EXCHGID4_FLAG_BIND_PRINC_STATEID). READ and WRITE are missing, because
/// they are checked with the caller's rights.
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
    /// `SP4_MACH_CRED`, with the server's result.
    Machine(StateProtectOps),
}

impl StateProtect {
    /// Returns `SP4_MACH_CRED` for a client's request.
    ///
    /// # Errors
    /// INVAL if the request is not protected itself, as in Linux's server.
    pub fn machine(asked: &StateProtectOps, by: &Credential) -> Result<Self, Status> {
        // §18.35.3: "the client MUST send the EXCHANGE_ID operation with RPCSEC_GSS as the security flavor, and with a service of
        // RPC_GSS_SVC_INTEGRITY or RPC_GSS_SVC_PRIVACY."
        if !by.is_protected {
            return Err(Status::INVAL);
        }
        Ok(Self::Machine(StateProtectOps {
            must_enforce: ENFORCED.union(asked.must_enforce.intersection(ENFORCED_ON_REQUEST)),
            must_allow: asked.must_allow.intersection(ALLOWED),
        }))
    }

    /// Returns whether `by` is the client's principal. With SP4_MACH_CRED the request must be protected too (RFC 8881 §2.10.8.3).
    pub(crate) fn is_of(self, owner: &Principal, by: &Credential) -> bool {
        (self == Self::None || by.is_protected) && by.principal == *owner
    }

    /// Returns whether only the machine principal may do this operation (`spo_must_enforce`).
    pub(crate) fn enforces(self, operation: OpNum) -> bool {
        matches!(self, Self::Machine(agreed) if agreed.must_enforce.has(operation.0))
    }
}
