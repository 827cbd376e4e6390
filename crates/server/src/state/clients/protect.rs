//! State protection by a machine credential, SP4_MACH_CRED (RFC 8881 §2.10.8.3, §18.35.3).
//!
//! A client that asks for it has its client ID and sessions made, bound to connections and ended by the principal alone that
//! made the client ID, with RPCSEC_GSS and a service that protects the call ([`Credential::is_protected`]). Nothing of AUTH_SYS does:
//! EXCHANGE_ID answers INVAL there.

use protocol::nfs4::ops::exchange_id::StateProtectOps;
use protocol::nfs4::types::{Bitmap, OpNum};

use crate::state::tables::client::Principal;
use crate::state::tables::wire::{ClientId, SessionId, Status};
use crate::state::{Client, State};

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

/// Who sends a request, and whether nobody else can have sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Whose it is.
    pub principal: Principal,
    /// RPCSEC_GSS with `rpc_gss_svc_integrity` or `rpc_gss_svc_privacy` (RFC 2203 §5.3.3.4). Never so with AUTH_NONE and AUTH_SYS.
    pub is_protected: bool,
}

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
    fn enforces(self, operation: OpNum) -> bool {
        matches!(self, Self::Machine(agreed) if agreed.must_enforce.has(operation.0))
    }
}

impl Client {
    /// Whether `by` may do an operation that concerns the client ID, or a session of it.
    ///
    /// # Errors
    /// WRONG_CRED where its machine alone may.
    pub fn admit(&self, operation: OpNum, by: &Credential) -> Result<(), Status> {
        let protect = self.protect();
        // §15.1.6.4: "attempted by a principal that was not allowed to modify that piece of state."
        let may = !protect.enforces(operation) || protect.is_of(self.principal(), by);
        if may { Ok(()) } else { Err(Status::WRONG_CRED) }
    }

    /// Whether each of its sessions' connections has to be bound. §18.35.3: "If spo_must_enforce in the results has
    /// BIND_CONN_TO_SESSION set, then connection binding enforcement is enabled".
    pub(crate) fn binds_connections(&self) -> bool {
        self.protect().enforces(OpNum::BIND_CONN_TO_SESSION)
    }

    /// Whether `by` is its machine, and this is among what that may do with what its users hold (`spo_must_allow`).
    #[must_use]
    pub fn is_allowed(&self, operation: OpNum, by: &Credential) -> bool {
        match self.protect() {
            StateProtect::None => false,
            StateProtect::Machine(agreed) => {
                agreed.must_allow.has(operation.0) && self.protect().is_of(self.principal(), by)
            }
        }
    }
}

impl State {
    /// Whether `by` may do what §18.36, §18.50 leave to the machine with this client ID. Unknown ones are the operation's to
    /// refuse.
    ///
    /// # Errors
    /// WRONG_CRED.
    pub fn admit_to_client(&self, operation: OpNum, id: ClientId, by: &Credential) -> Result<(), Status> {
        let table = self.clients.lock();
        table.record(id).map_or(Ok(()), |record| record.client.admit(operation, by))
    }

    /// As [`Self::admit_to_client`], with this session: §18.34, §18.37.
    ///
    /// # Errors
    /// WRONG_CRED.
    pub fn admit_to_session(&self, operation: OpNum, id: &SessionId, by: &Credential) -> Result<(), Status> {
        self.sessions.get(id).map_or(Ok(()), |session| session.client.admit(operation, by))
    }
}
