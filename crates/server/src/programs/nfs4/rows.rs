//! What the compound must know of each operation before it runs: a row an operation.

use protocol::nfs4::types::{MAX_NAME, OpNum};

/// Which file handles an operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// None.
    Nothing,
    /// The current one.
    Current,
    /// The current and the saved one.
    CurrentAndSaved,
}

/// Who says WRONGSEC of the current file handle that an operation finds (RFC 8881 §2.6.3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongSec {
    /// The operation that put it: "the put filehandle operation MUST return NFS4ERR_WRONGSEC when there is a security tuple
    /// mismatch" (§2.6.3.1.1.7).
    Put,
    /// This operation, of what it leads to; nobody for SECINFO and SECINFO_NO_NAME. The operation that put the handle must not.
    Itself,
    /// OPEN: itself by name, the operation that put the handle by handle.
    ByName,
    /// Nobody: it puts another one.
    Replaced,
    /// Whoever says it for the operation behind this one (§2.6.3.1.1.1).
    AsNext,
}

/// Properties of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) number: OpNum,
    pub(crate) needs: Needs,
    /// First minor version that has it.
    pub(crate) since: u32,
    /// Last minor version that has it.
    pub(crate) until: u32,
    /// May come without SEQUENCE, alone in its compound (RFC 8881 §2.10.2.4).
    pub(crate) may_stand_alone: bool,
    /// Leaves valid what the operation before saw of the current object.
    pub(crate) keeps_fresh: bool,
    /// For operations that must not run twice: the most bytes that they, and the GETFH that has to follow some of them,
    /// can write. Others are taken back where they turn out too long.
    pub(crate) reserves: Option<usize>,
    pub(crate) wrong_sec: WrongSec,
}

/// Newest minor version.
const NEWEST: u32 = 2;
/// `change_info4`.
const CHANGE_INFO: usize = 20;
/// `stateid4`.
const STATEID: usize = 16;
/// `bitmap4` of attributes that can be set.
const BITMAP: usize = 16;
/// GETFH with its number and status, and a handle of 64 bytes.
const GETFH: usize = 8 + 4 + 64;
/// `open_delegation4` of a write delegation whose `permissions` name `EVERYONE@`.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 12 + 4 + 12;
/// `OPEN4resok` without a delegation, but with the reason why.
const OPEN: usize = STATEID + CHANGE_INFO + 4 + BITMAP + 12;
/// OPEN with a delegation, and the GETFH behind it: where this has no room, nothing is delegated.
pub(crate) const DELEGATED_OPEN: usize = OPEN + DELEGATION + GETFH;
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

const fn row(number: OpNum, needs: Needs) -> Row {
    Row {
        number,
        needs,
        since: 0,
        until: NEWEST,
        may_stand_alone: false,
        keeps_fresh: false,
        reserves: None,
        wrong_sec: WrongSec::Put,
    }
}

impl Row {
    const fn since(self, since: u32) -> Self {
        Self { since, ..self }
    }

    const fn only_in_0(self) -> Self {
        Self { until: 0, ..self }
    }

    const fn alone(self) -> Self {
        Self { may_stand_alone: true, ..self }
    }

    const fn keeps(self) -> Self {
        Self { keeps_fresh: true, ..self }
    }

    const fn wrong_sec(self, wrong_sec: WrongSec) -> Self {
        Self { wrong_sec, ..self }
    }

    const fn reserves(self, length: usize) -> Self {
        Self { reserves: Some(length), ..self }
    }
}

use Needs::{Current, CurrentAndSaved, Nothing};
use WrongSec::{AsNext, ByName, Itself, Replaced};

/// All operations of RFC 7863 and RFC 8276, by number from 3 on.
const TABLE: &[Row] = &[
    row(OpNum::ACCESS, Current).keeps(),
    row(OpNum::CLOSE, Current).keeps().reserves(STATEID),
    row(OpNum::COMMIT, Current),
    row(OpNum::CREATE, Current).reserves(CHANGE_INFO + BITMAP + GETFH),
    row(OpNum::DELEGPURGE, Nothing).keeps(),
    row(OpNum::DELEGRETURN, Current).keeps().reserves(0),
    row(OpNum::GETATTR, Current).keeps(),
    row(OpNum::GETFH, Current).keeps(),
    row(OpNum::LINK, CurrentAndSaved).reserves(CHANGE_INFO),
    row(OpNum::LOCK, Current).reserves(LOCK_DENIED),
    row(OpNum::LOCKT, Current),
    row(OpNum::LOCKU, Current).reserves(STATEID),
    row(OpNum::LOOKUP, Current).wrong_sec(Itself),
    row(OpNum::LOOKUPP, Current).wrong_sec(Itself),
    row(OpNum::NVERIFY, Current).keeps(),
    row(OpNum::OPEN, Current).reserves(OPEN + GETFH).wrong_sec(ByName),
    row(OpNum::OPENATTR, Current),
    row(OpNum::OPEN_CONFIRM, Current).only_in_0().reserves(STATEID),
    row(OpNum::OPEN_DOWNGRADE, Current).reserves(STATEID),
    row(OpNum::PUTFH, Nothing).wrong_sec(Replaced),
    row(OpNum::PUTPUBFH, Nothing).wrong_sec(Replaced),
    row(OpNum::PUTROOTFH, Nothing).wrong_sec(Replaced),
    // What was seen before it read is as true as what was seen before that.
    row(OpNum::READ, Current).keeps(),
    row(OpNum::READDIR, Current),
    row(OpNum::READLINK, Current),
    row(OpNum::REMOVE, Current).reserves(CHANGE_INFO),
    row(OpNum::RENAME, CurrentAndSaved).reserves(2 * CHANGE_INFO),
    row(OpNum::RENEW, Nothing).only_in_0(),
    row(OpNum::RESTOREFH, Nothing).wrong_sec(Replaced),
    row(OpNum::SAVEFH, Current).keeps().wrong_sec(AsNext),
    row(OpNum::SECINFO, Current).wrong_sec(Itself),
    row(OpNum::SETATTR, Current).reserves(BITMAP),
    row(OpNum::SETCLIENTID, Nothing).only_in_0().reserves(CLIENT_ADDRESS),
    row(OpNum::SETCLIENTID_CONFIRM, Nothing).only_in_0().reserves(0),
    row(OpNum::VERIFY, Current).keeps(),
    row(OpNum::WRITE, Current).reserves(16),
    row(OpNum::RELEASE_LOCKOWNER, Nothing).only_in_0().reserves(0),
    row(OpNum::BACKCHANNEL_CTL, Nothing).since(1),
    row(OpNum::BIND_CONN_TO_SESSION, Nothing).since(1).alone(),
    row(OpNum::EXCHANGE_ID, Nothing).since(1).alone(),
    row(OpNum::CREATE_SESSION, Nothing).since(1).alone().reserves(CREATE_SESSION),
    row(OpNum::DESTROY_SESSION, Nothing).since(1).alone().reserves(0),
    row(OpNum::FREE_STATEID, Nothing).since(1).keeps().reserves(0),
    row(OpNum::GET_DIR_DELEGATION, Current).since(1),
    row(OpNum::GETDEVICEINFO, Nothing).since(1),
    row(OpNum::GETDEVICELIST, Current).since(1),
    row(OpNum::LAYOUTCOMMIT, Current).since(1),
    row(OpNum::LAYOUTGET, Current).since(1),
    row(OpNum::LAYOUTRETURN, Nothing).since(1),
    row(OpNum::SECINFO_NO_NAME, Current).since(1).wrong_sec(Itself),
    // RFC 8881 §2.10.6.1.2: where SEQUENCE fails, "the sequence ID of the slot MUST NOT change": it cannot fail once it has
    // its slot. §2.10.6.4 lets what follows it be too long for the reply.
    row(OpNum::SEQUENCE, Nothing).since(1).reserves(0),
    row(OpNum::SET_SSV, Nothing).since(1),
    row(OpNum::TEST_STATEID, Nothing).since(1).keeps(),
    row(OpNum::WANT_DELEGATION, Current).since(1).reserves(DELEGATION),
    row(OpNum::DESTROY_CLIENTID, Nothing).since(1).alone().reserves(0),
    row(OpNum::RECLAIM_COMPLETE, Nothing).since(1).reserves(0),
    row(OpNum::ALLOCATE, Current).since(2).reserves(0),
    row(OpNum::COPY, CurrentAndSaved).since(2).reserves(COPY),
    row(OpNum::COPY_NOTIFY, Current).since(2),
    row(OpNum::DEALLOCATE, Current).since(2).reserves(0),
    row(OpNum::IO_ADVISE, Current).since(2),
    row(OpNum::LAYOUTERROR, Current).since(2),
    row(OpNum::LAYOUTSTATS, Current).since(2),
    row(OpNum::OFFLOAD_CANCEL, Current).since(2).reserves(0),
    row(OpNum::OFFLOAD_STATUS, Current).since(2),
    row(OpNum::READ_PLUS, Current).since(2),
    row(OpNum::SEEK, Current).since(2),
    row(OpNum::WRITE_SAME, Current).since(2).reserves(WRITE_RESPONSE),
    row(OpNum::CLONE, CurrentAndSaved).since(2).reserves(0),
    row(OpNum::GETXATTR, Current).since(2),
    row(OpNum::SETXATTR, Current).since(2).reserves(CHANGE_INFO),
    row(OpNum::LISTXATTRS, Current).since(2),
    row(OpNum::REMOVEXATTR, Current).since(2).reserves(CHANGE_INFO),
];

/// Number of the first operation.
const FIRST: u32 = OpNum::ACCESS.0;

/// The row of an operation; none where `minor` does not define it.
///
/// RFC 8881 §2.7 rule 13 keeps the operations that only version 4.0 has defined in later ones: they are NOTSUPP there,
/// not OP_ILLEGAL.
#[inline]
pub(crate) fn find(number: u32, minor: u32) -> Option<&'static Row> {
    TABLE.get(number.checked_sub(FIRST)? as usize).filter(|row| row.since <= minor)
}

/// The operations of a minor version whose execution twice would be another thing than once, by number: their replies are kept
/// for whoever repeats them. For those who check that each is executed once.
pub fn executed_once(minor: u32) -> impl Iterator<Item = OpNum> {
    let is_of = move |row: &&Row| (row.since..=row.until).contains(&minor) && row.reserves.is_some();
    TABLE.iter().filter(is_of).map(|row| row.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_at_their_numbers_and_are_all_there() {
        for (row, number) in TABLE.iter().zip(FIRST..) {
            assert_eq!(row.number.0, number);
            assert!(row.number.name().is_some());
        }
        let known = OpNum::ALL.iter().filter(|number| **number != OpNum::ILLEGAL);
        assert_eq!(TABLE.len(), known.count());
    }

    /// What a late copy would do again, version 4.0's reply cache must know of.
    #[test]
    fn what_changes_anything_reserves_room_for_its_result() {
        use OpNum as O;
        let mut changes = [
            O::CLOSE,
            O::CREATE,
            O::DELEGRETURN,
            O::LINK,
            O::LOCK,
            O::LOCKU,
            O::OPEN,
            O::OPEN_CONFIRM,
            O::OPEN_DOWNGRADE,
            O::RELEASE_LOCKOWNER,
            O::REMOVE,
            O::RENAME,
            O::SETATTR,
            O::SETCLIENTID,
            O::SETCLIENTID_CONFIRM,
            O::WRITE,
        ];
        changes.sort();
        assert_eq!(executed_once(0).collect::<Vec<_>>(), changes);
    }

    #[test]
    fn what_a_version_must_not_implement_it_does_not_execute_once() {
        let of = |minor: u32| executed_once(minor).collect::<Vec<_>>();
        assert!(of(0).contains(&OpNum::OPEN_CONFIRM) && !of(1).contains(&OpNum::OPEN_CONFIRM));
        assert!(!of(0).contains(&OpNum::CREATE_SESSION) && of(1).contains(&OpNum::CREATE_SESSION));
        assert!(!of(1).contains(&OpNum::CLONE) && of(2).contains(&OpNum::CLONE));
        assert!((0..=2).all(|minor| !of(minor).contains(&OpNum::READ)));
    }

    #[test]
    fn minor_versions_have_their_own_operations() {
        assert!(find(OpNum::SEQUENCE.0, 0).is_none() && find(OpNum::SEQUENCE.0, 1).is_some());
        assert!(find(OpNum::CLONE.0, 1).is_none() && find(OpNum::CLONE.0, 2).is_some());
        assert!(find(OpNum::RENEW.0, 1).is_some_and(|row| row.until == 0));
        for number in [0, 1, 2, 76, OpNum::ILLEGAL.0, u32::MAX] {
            assert!(find(number, 2).is_none(), "{number}");
        }
    }
}
