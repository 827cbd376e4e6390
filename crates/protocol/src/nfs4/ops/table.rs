//! What is known of every operation before its arguments are decoded: one row each, read by compound execution,
//! sessions, reply cache and metrics.

use crate::nfs4::types::OpNum;
use crate::procedure::Effect;

/// File handles that an operation needs. Without them the answer is NOFILEHANDLE (RESTOREFH for RESTOREFH in v4.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None. RECLAIM_COMPLETE is here, although it needs the current one where `rca_one_fs` is true.
    Nothing,
    /// The current one.
    Current,
    /// The saved one.
    Saved,
    /// Both.
    Both,
}

/// What an operation that succeeds does to the file handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleEffect {
    /// Nothing.
    Keeps,
    /// Sets the current one.
    Replaces,
    /// Leaves no current one (RFC 8881 §2.6.3.1.1.8; in v4.0 SECINFO keeps it).
    Consumes,
    /// Copies the current one to the saved one.
    Saves,
    /// Copies the saved one to the current one.
    Restores,
}

/// Where an operation may stand in a compound of v4.1 and later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Behind SEQUENCE; elsewhere the answer is OP_NOT_IN_SESSION.
    InSession,
    /// Behind SEQUENCE, or alone; with others and without SEQUENCE the answer is NOT_ONLY_OP.
    Either,
    /// Alone (RFC 8881 §18.34.3).
    Alone,
    /// First; elsewhere the answer is SEQUENCE_POS (RFC 8881 §18.46.3).
    First,
}

/// Stateids in an operation's arguments and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stateids {
    /// None that the current stateid could stand for.
    None,
    /// The arguments have one, which may be the current stateid.
    Uses,
    /// The result has one, at least where what was asked for is granted.
    Returns,
    /// Both.
    UsesAndReturns,
}

/// What an operation that succeeds does to the current and the saved stateid (RFC 8881 §16.2.3.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurrentStateid {
    /// Nothing.
    Keeps,
    /// Sets the current one to that of the result, where there is one.
    Sets,
    /// Sets the current one to zeros, the anonymous stateid.
    Clears,
    /// Copies the current one to the saved one.
    Saves,
    /// Copies the saved one to the current one.
    Restores,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Its number.
    pub op: OpNum,
    /// The minor version that brought it.
    pub first_minor: u32,
    /// The last minor version that has it. Afterwards, RFC 8881 §8.8: "The server MUST return NFS4ERR_NOTSUPP if these
    /// operations are found in an NFSv4.1 COMPOUND." Before `first_minor` the answer is OP_ILLEGAL.
    pub last_minor: u32,
    /// File handles it needs.
    pub needs: Needs,
    /// What it does to the file handles.
    pub handle: HandleEffect,
    /// What a repetition does.
    pub effect: Effect,
    /// Where it may stand.
    pub position: Position,
    /// Stateids in its arguments and result.
    pub stateids: Stateids,
}

impl Operation {
    /// Its name in the RFC, without prefix.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.op.name() {
            Some(name) => name,
            None => unreachable!(),
        }
    }

    /// Whether minor version `minor` has it.
    #[must_use]
    pub const fn is_in(&self, minor: u32) -> bool {
        self.first_minor <= minor && minor <= self.last_minor
    }

    /// Whether the current handle must be set.
    #[must_use]
    pub const fn needs_current(&self) -> bool {
        matches!(self.needs, Needs::Current | Needs::Both)
    }

    /// Whether the saved handle must be set.
    #[must_use]
    pub const fn needs_saved(&self) -> bool {
        matches!(self.needs, Needs::Saved | Needs::Both)
    }

    /// Whether a repetition could be answered otherwise, so that its reply must be kept.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        !matches!(self.effect, Effect::Once)
    }

    /// Whether it may open a compound of v4.1 and later in SEQUENCE's place.
    #[must_use]
    pub const fn may_come_first(&self) -> bool {
        !matches!(self.position, Position::InSession)
    }

    /// What it does to the current stateid.
    #[must_use]
    pub const fn current_stateid(&self) -> CurrentStateid {
        match (self.handle, self.stateids) {
            (HandleEffect::Saves, _) => CurrentStateid::Saves,
            (HandleEffect::Restores, _) => CurrentStateid::Restores,
            // RFC 8881 §16.2.3.1.2: "If an operation returns a stateid, it MUST set the current stateid to the returned
            // value."
            (_, Stateids::Returns | Stateids::UsesAndReturns) => CurrentStateid::Sets,
            // "If an operation sets the current filehandle but does not return a stateid, the current stateid MUST be
            // set to the all-zeros special stateid".
            (HandleEffect::Replaces | HandleEffect::Consumes, _) => CurrentStateid::Clears,
            // "If an operation uses a stateid as an argument but does not return a stateid, the current stateid MUST
            // NOT be changed."
            (HandleEffect::Keeps, _) => CurrentStateid::Keeps,
        }
    }
}

#[allow(clippy::too_many_arguments)]
const fn row(
    op: OpNum,
    first_minor: u32,
    last_minor: u32,
    needs: Needs,
    handle: HandleEffect,
    effect: Effect,
    position: Position,
    stateids: Stateids,
) -> Operation {
    Operation { op, first_minor, last_minor, needs, handle, effect, position, stateids }
}

/// Every operation but ILLEGAL, by number and without gaps (RFC 7530 §16, RFC 8881 §17 and §18, RFC 7862 §13, RFC 8276).
///
/// The columns: number; first and last minor version; handles needed; what becomes of them; what a repetition does;
/// place in the compound; stateids.
///
/// WRITE is [`Effect::Repeatable`]: a repetition is answered alike. SETATTR is not: with a size it needs a stateid
/// that may be gone by then. EXCHANGE_ID is, since it finds the record that it made; CREATE_SESSION is not, and has
/// a reply slot of its own (RFC 8881 §18.36.4).
#[rustfmt::skip]
pub const TABLE: &[Operation] = &[
    row(OpNum::ACCESS, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::CLOSE, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::COMMIT, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::None),
    row(OpNum::CREATE, 0, 2, Needs::Current, HandleEffect::Replaces, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::DELEGPURGE, 0, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::None),
    row(OpNum::DELEGRETURN, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Uses),
    row(OpNum::GETATTR, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::GETFH, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::LINK, 0, 2, Needs::Both, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::LOCK, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::LOCKT, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::LOCKU, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::LOOKUP, 0, 2, Needs::Current, HandleEffect::Replaces, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::LOOKUPP, 0, 2, Needs::Current, HandleEffect::Replaces, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::NVERIFY, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::OPEN, 0, 2, Needs::Current, HandleEffect::Replaces, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::OPENATTR, 0, 2, Needs::Current, HandleEffect::Replaces, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::OPEN_CONFIRM, 0, 0, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::OPEN_DOWNGRADE, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::PUTFH, 0, 2, Needs::Nothing, HandleEffect::Replaces, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::PUTPUBFH, 0, 2, Needs::Nothing, HandleEffect::Replaces, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::PUTROOTFH, 0, 2, Needs::Nothing, HandleEffect::Replaces, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::READ, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::Uses),
    row(OpNum::READDIR, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::READLINK, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::REMOVE, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::RENAME, 0, 2, Needs::Both, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::RENEW, 0, 0, Needs::Nothing, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::RESTOREFH, 0, 2, Needs::Saved, HandleEffect::Restores, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::SAVEFH, 0, 2, Needs::Current, HandleEffect::Saves, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::SECINFO, 0, 2, Needs::Current, HandleEffect::Consumes, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::SETATTR, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Uses),
    row(OpNum::SETCLIENTID, 0, 0, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::SETCLIENTID_CONFIRM, 0, 0, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::VERIFY, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::WRITE, 0, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::Uses),
    row(OpNum::RELEASE_LOCKOWNER, 0, 0, Needs::Nothing, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::None),
    row(OpNum::BACKCHANNEL_CTL, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::None),
    row(OpNum::BIND_CONN_TO_SESSION, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Repeatable, Position::Alone, Stateids::None),
    row(OpNum::EXCHANGE_ID, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Repeatable, Position::Either, Stateids::None),
    row(OpNum::CREATE_SESSION, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::Either, Stateids::None),
    row(OpNum::DESTROY_SESSION, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::Either, Stateids::None),
    row(OpNum::FREE_STATEID, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Uses),
    row(OpNum::GET_DIR_DELEGATION, 1, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Returns),
    row(OpNum::GETDEVICEINFO, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::GETDEVICELIST, 1, 1, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::LAYOUTCOMMIT, 1, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Uses),
    row(OpNum::LAYOUTGET, 1, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::LAYOUTRETURN, 1, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::SECINFO_NO_NAME, 1, 2, Needs::Current, HandleEffect::Consumes, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::SEQUENCE, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::None, Position::First, Stateids::None),
    row(OpNum::SET_SSV, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::TEST_STATEID, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::WANT_DELEGATION, 1, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Returns),
    row(OpNum::DESTROY_CLIENTID, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::Either, Stateids::None),
    row(OpNum::RECLAIM_COMPLETE, 1, 2, Needs::Nothing, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::ALLOCATE, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::Uses),
    row(OpNum::COPY, 2, 2, Needs::Both, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::COPY_NOTIFY, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::DEALLOCATE, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::Uses),
    row(OpNum::IO_ADVISE, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::Uses),
    row(OpNum::LAYOUTERROR, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::Uses),
    row(OpNum::LAYOUTSTATS, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::Uses),
    row(OpNum::OFFLOAD_CANCEL, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::Uses),
    row(OpNum::OFFLOAD_STATUS, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::Uses),
    row(OpNum::READ_PLUS, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::Uses),
    row(OpNum::SEEK, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::Uses),
    row(OpNum::WRITE_SAME, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::UsesAndReturns),
    row(OpNum::CLONE, 2, 2, Needs::Both, HandleEffect::Keeps, Effect::Repeatable, Position::InSession, Stateids::Uses),
    row(OpNum::GETXATTR, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::SETXATTR, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
    row(OpNum::LISTXATTRS, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::None, Position::InSession, Stateids::None),
    row(OpNum::REMOVEXATTR, 2, 2, Needs::Current, HandleEffect::Keeps, Effect::Once, Position::InSession, Stateids::None),
];

/// The row of operation `op`; `None` where the answer is OP_ILLEGAL in every minor version.
#[inline]
#[must_use]
pub fn operation(op: OpNum) -> Option<&'static Operation> {
    TABLE.get((op.0 as usize).checked_sub(OpNum::ACCESS.0 as usize)?)
}
