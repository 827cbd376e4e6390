//! Properties of every operation that are known before its arguments are decoded: one row each. The server executes compounds by them.

use crate::nfs4::types::{MAX_NAME, OpNum, Opcode};

/// File handles that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None. RECLAIM_COMPLETE needs the current one if `rca_one_fs` is true, LAYOUTRETURN if it returns the layouts of a file
    /// or a file system.
    Nothing,
    /// The current one; without it the answer is NOFILEHANDLE.
    Current,
    /// The saved one; without it the answer is NOFILEHANDLE, RESTOREFH in version 4.0.
    Saved,
    /// Both; without one of them the answer is NOFILEHANDLE.
    CurrentAndSaved,
}

/// The permitted positions of an operation in a compound of version 4.1 and later (RFC 8881 §2.10.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// After SEQUENCE; elsewhere the answer is OP_NOT_IN_SESSION.
    InSession,
    /// After SEQUENCE, or alone; first but not alone the answer is NOT_ONLY_OP.
    SessionOrAlone,
    /// Alone (RFC 8881 §18.34.3); elsewhere the answer is NOT_ONLY_OP.
    Alone,
    /// First; elsewhere the answer is SEQUENCE_POS (RFC 8881 §18.46.3).
    First,
}

/// Which operation answers WRONGSEC for the current file handle that this operation finds (RFC 8881 §2.6.3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongSec {
    /// The operation that put the handle: "the put filehandle operation MUST return NFS4ERR_WRONGSEC when there is a security tuple
    /// mismatch" (§2.6.3.1.1.7).
    Put,
    /// This operation, for the object that it leads to; SECINFO and SECINFO_NO_NAME never do. The operation that put the handle must
    /// not.
    Itself,
    /// OPEN: itself by name, the operation that put the handle by handle.
    ByName,
    /// None: the operation replaces the handle.
    Replaced,
    /// The one that answers it for the next operation (§2.6.3.1.1.1).
    Next,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The operation.
    pub opcode: Opcode,
    /// The minor version that introduced it; before that the answer is OP_ILLEGAL.
    pub first_minor: u32,
    /// The last minor version that has it; afterwards the answer is NOTSUPP (RFC 8881 §8.8, RFC 7862 §13).
    pub last_minor: u32,
    /// File handles it needs.
    pub needs: Needs,
    /// Its permitted positions in a compound.
    pub position: Position,
    /// For an operation whose second execution would differ from the first: the most bytes that its result takes, and the GETFH
    /// that must follow some of them. It must not run if the reply has no room for that, and its reply is kept.
    pub once: Option<usize>,
    /// Leaves the attributes of the current object as an earlier operation of the compound saw them.
    pub keeps_attributes: bool,
    /// The operation that answers WRONGSEC.
    pub wrong_sec: WrongSec,
    /// Whether it runs on an object of an absent file system, which it may answer with MOVED itself (RFC 8881 §11.3: "GETATTR-type
    /// operations"). All others that use the current file handle are answered MOVED.
    pub on_absent: bool,
}

impl Operation {
    /// Its name in the RFC, without prefix.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.opcode.number().name() {
            Some(name) => name,
            None => unreachable!(),
        }
    }

    /// Returns whether minor version `minor` has it.
    #[must_use]
    pub const fn is_in(&self, minor: u32) -> bool {
        self.first_minor <= minor && minor <= self.last_minor
    }

    const fn since(self, first_minor: u32) -> Self {
        Self { first_minor, ..self }
    }

    const fn only_in(self, minor: u32) -> Self {
        Self { first_minor: minor, last_minor: minor, ..self }
    }

    const fn position(self, position: Position) -> Self {
        Self { position, ..self }
    }

    const fn keeps_attributes(self) -> Self {
        Self { keeps_attributes: true, ..self }
    }

    const fn once(self, result_bytes_max: usize) -> Self {
        Self { once: Some(result_bytes_max), ..self }
    }

    const fn on_absent(self) -> Self {
        Self { on_absent: true, ..self }
    }

    const fn wrong_sec(self, wrong_sec: WrongSec) -> Self {
        Self { wrong_sec, ..self }
    }
}

const fn row(opcode: Opcode, needs: Needs) -> Operation {
    Operation {
        opcode,
        first_minor: 0,
        last_minor: NEWEST_MINOR,
        needs,
        position: Position::InSession,
        once: None,
        keeps_attributes: false,
        wrong_sec: WrongSec::Put,
        on_absent: false,
    }
}

/// Newest minor version.
const NEWEST_MINOR: u32 = 2;
/// `change_info4`.
const CHANGE_INFO: usize = 20;
/// `stateid4`.
const STATEID: usize = 16;
/// `bitmap4` of attributes: three words and their number.
const BITMAP: usize = 16;
/// GETFH with its number and status, and a handle of 64 bytes.
const GETFH: usize = 8 + 4 + 64;
/// `open_delegation4` of a write delegation whose `permissions` name `EVERYONE@`.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 12 + 4 + 12;
/// `OPEN4resok` without a delegation, but with the reason why.
const OPEN: usize = STATEID + CHANGE_INFO + 4 + BITMAP + 12;
/// OPEN with a delegation, and the GETFH that follows it: without room for this, no delegation is granted.
pub const DELEGATED_OPEN_BYTES_MAX: usize = OPEN + DELEGATION + GETFH;
/// `LOCK4denied` with the longest owner.
const LOCK_DENIED: usize = 8 + 8 + 4 + 8 + 4 + 1024;
/// `clientaddr4` with the longest that a client can have given, for CLID_INUSE; `SETCLIENTID4resok` is shorter.
const CLIENT_ADDRESS: usize = 2 * (4 + MAX_NAME);
/// `CREATE_SESSION4resok`: session, sequence, flags, two channels without RDMA.
const CREATE_SESSION: usize = 16 + 4 + 4 + 2 * 28;
/// `write_response4` without a stateid.
const WRITE_RESPONSE: usize = 4 + 8 + 4 + 8;
/// `COPY4resok` with a copy stateid.
const COPY: usize = 4 + STATEID + 8 + 4 + 8 + 2 * 4;
/// `GET_DIR_DELEGATION4resok` with its status: verifier, stateid, three bitmaps.
const DIR_DELEGATION: usize = 4 + 8 + STATEID + 3 * BITMAP;
/// `COPY_NOTIFY4resok` with one server by its address (`netid` of 4 bytes, universal address of 48).
const COPY_NOTIFY: usize = 12 + STATEID + 4 + 4 + (4 + 4) + (4 + 48);

use Needs::{Current, CurrentAndSaved, Nothing, Saved};
use WrongSec::{ByName, Itself, Next, Replaced};

/// Every operation but ILLEGAL, by number and without gaps (RFC 7530 §16, RFC 8881 §17 and §18, RFC 7862 §13, RFC 8276).
///
/// WRITE is here as an operation to be executed once: a late copy would undo a newer write. EXCHANGE_ID is not, since it finds the
/// record that it made. CREATE_SESSION has a reply slot of its own (RFC 8881 §18.36.4).
pub const TABLE: &[Operation] = &[
    row(Opcode::Access, Current).keeps_attributes(),
    row(Opcode::Close, Current).keeps_attributes().once(STATEID),
    row(Opcode::Commit, Current),
    row(Opcode::Create, Current).once(CHANGE_INFO + BITMAP + GETFH),
    row(Opcode::Delegpurge, Nothing).keeps_attributes(),
    row(Opcode::Delegreturn, Current).keeps_attributes().once(0),
    row(Opcode::Getattr, Current).keeps_attributes().on_absent(),
    row(Opcode::Getfh, Current).keeps_attributes(),
    row(Opcode::Link, CurrentAndSaved).once(CHANGE_INFO),
    row(Opcode::Lock, Current).once(LOCK_DENIED),
    row(Opcode::Lockt, Current),
    row(Opcode::Locku, Current).once(STATEID),
    row(Opcode::Lookup, Current).wrong_sec(Itself),
    row(Opcode::Lookupp, Current).wrong_sec(Itself),
    row(Opcode::Nverify, Current).keeps_attributes().on_absent(),
    row(Opcode::Open, Current).once(OPEN + GETFH).wrong_sec(ByName),
    row(Opcode::Openattr, Current),
    row(Opcode::OpenConfirm, Current).only_in(0).once(STATEID),
    row(Opcode::OpenDowngrade, Current).once(STATEID),
    row(Opcode::Putfh, Nothing).wrong_sec(Replaced),
    row(Opcode::Putpubfh, Nothing).wrong_sec(Replaced),
    row(Opcode::Putrootfh, Nothing).wrong_sec(Replaced),
    row(Opcode::Read, Current).keeps_attributes(),
    row(Opcode::Readdir, Current),
    row(Opcode::Readlink, Current),
    row(Opcode::Remove, Current).once(CHANGE_INFO),
    row(Opcode::Rename, CurrentAndSaved).once(2 * CHANGE_INFO),
    row(Opcode::Renew, Nothing).only_in(0),
    row(Opcode::Restorefh, Saved).wrong_sec(Replaced),
    row(Opcode::Savefh, Current).keeps_attributes().wrong_sec(Next),
    row(Opcode::Secinfo, Current).wrong_sec(Itself),
    row(Opcode::Setattr, Current).once(BITMAP),
    row(Opcode::Setclientid, Nothing).only_in(0).once(CLIENT_ADDRESS),
    row(Opcode::SetclientidConfirm, Nothing).only_in(0).once(0),
    row(Opcode::Verify, Current).keeps_attributes().on_absent(),
    row(Opcode::Write, Current).once(16),
    row(Opcode::ReleaseLockowner, Nothing).only_in(0).once(0),
    row(Opcode::BackchannelCtl, Nothing).since(1),
    row(Opcode::BindConnToSession, Nothing).since(1).position(Position::Alone),
    row(Opcode::ExchangeId, Nothing).since(1).position(Position::SessionOrAlone),
    row(Opcode::CreateSession, Nothing).since(1).position(Position::SessionOrAlone).once(CREATE_SESSION),
    row(Opcode::DestroySession, Nothing).since(1).position(Position::SessionOrAlone).once(0),
    row(Opcode::FreeStateid, Nothing).since(1).keeps_attributes().once(0),
    row(Opcode::GetDirDelegation, Current).since(1).once(DIR_DELEGATION),
    row(Opcode::Getdeviceinfo, Nothing).since(1),
    row(Opcode::Getdevicelist, Current).only_in(1),
    row(Opcode::Layoutcommit, Current).since(1),
    row(Opcode::Layoutget, Current).since(1),
    row(Opcode::Layoutreturn, Nothing).since(1),
    row(Opcode::SecinfoNoName, Current).since(1).wrong_sec(Itself),
    // RFC 8881 §2.10.6.1.2: if SEQUENCE fails, "the sequence ID of the slot MUST NOT change": it cannot fail once it has
    // its slot. §2.10.6.4 allows the operations after it to be too long for the reply.
    row(Opcode::Sequence, Nothing).since(1).position(Position::First).once(0),
    row(Opcode::SetSsv, Nothing).since(1),
    row(Opcode::TestStateid, Nothing).since(1).keeps_attributes(),
    row(Opcode::WantDelegation, Current).since(1).once(DELEGATION),
    row(Opcode::DestroyClientid, Nothing).since(1).position(Position::SessionOrAlone).once(0),
    row(Opcode::ReclaimComplete, Nothing).since(1).once(0),
    row(Opcode::Allocate, Current).since(2).once(0),
    row(Opcode::Copy, CurrentAndSaved).since(2).once(COPY),
    row(Opcode::CopyNotify, Current).since(2).once(COPY_NOTIFY),
    row(Opcode::Deallocate, Current).since(2).once(0),
    row(Opcode::IoAdvise, Current).since(2),
    row(Opcode::Layouterror, Current).since(2),
    row(Opcode::Layoutstats, Current).since(2),
    row(Opcode::OffloadCancel, Current).since(2).once(0),
    row(Opcode::OffloadStatus, Current).since(2),
    row(Opcode::ReadPlus, Current).since(2),
    row(Opcode::Seek, Current).since(2),
    row(Opcode::WriteSame, Current).since(2).once(WRITE_RESPONSE),
    row(Opcode::Clone, CurrentAndSaved).since(2).once(0),
    row(Opcode::Getxattr, Current).since(2),
    row(Opcode::Setxattr, Current).since(2).once(CHANGE_INFO),
    row(Opcode::Listxattrs, Current).since(2),
    row(Opcode::Removexattr, Current).since(2).once(CHANGE_INFO),
];

/// Returns the row of the operation with this number in minor version `minor`; `None` if the answer is OP_ILLEGAL. A row may be of an
/// older version: RFC 8881 §2.7 rule 13 keeps operations that only version 4.0 has defined in later ones, as NOTSUPP.
#[inline]
#[must_use]
pub fn operation(number: u32, minor: u32) -> Option<&'static Operation> {
    TABLE.get(number.checked_sub(OpNum::ACCESS.0)? as usize).filter(|row| row.first_minor <= minor)
}

/// Returns the operations of a minor version that must not be executed twice, by number.
pub fn executed_once(minor: u32) -> impl Iterator<Item = OpNum> {
    TABLE.iter().filter(move |row| row.is_in(minor) && row.once.is_some()).map(|row| row.opcode.number())
}
