//! Stateids: what is in them, and what is wrong with those that come (RFC 8881 §8.2).

use super::wire::{Stateid, Status};

/// Shards of opens and locks, a power of two; a stateid's index names one in its low bits.
pub const SHARDS: usize = 32;

/// Where a stateid leads: "for the server to divide the "other" field of the stateid into two fields. An index into a table
/// of locking-state structures. A generation number" (§8.2.4), with the server's instance before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: usize,
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Place {
    /// The `other` field.
    pub(super) fn other(self, boot: u32) -> [u8; 12] {
        let mut other = [0; 12];
        let index = self.index * SHARDS as u32 + self.shard as u32;
        other[..4].copy_from_slice(&boot.to_be_bytes());
        other[4..8].copy_from_slice(&index.to_be_bytes());
        other[8..].copy_from_slice(&self.generation.to_be_bytes());
        other
    }

    /// Reads the `other` field.
    pub(super) fn parse(stateid: &Stateid, boot: u32) -> Result<Self, Flaw> {
        // "If a stateid value is used that has all zeros or all ones in the "other" field but does not match one of the cases
        // above, the server MUST return the error NFS4ERR_BAD_STATEID." Those that match are not for the table either.
        if stateid.is_special() {
            return Err(Flaw::Special);
        }
        let word =
            |at: usize| stateid.other[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        if word(0) != boot {
            return Err(Flaw::OtherInstance);
        }
        let index = word(4);
        Ok(Self { shard: index as usize % SHARDS, index: index / SHARDS as u32, generation: word(8) })
    }
}

/// What is wrong with a stateid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A special one where none may be.
    Special,
    /// Of another instance of the server.
    OtherInstance,
    /// It names nothing, or nothing any more.
    Unknown,
    /// Another client's.
    OtherClient,
    /// Of another file than the current one.
    OtherFile,
    /// What it named was revoked.
    Revoked(Revocation),
    /// Not the kind of state that the operation takes.
    OtherKind,
    /// Its seqid has been followed by others.
    Old,
    /// Its seqid has not been given yet.
    Future,
}

/// Why state was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revocation {
    /// The lease expired and another client's request conflicted.
    Expired,
    /// The administrator took it.
    Administrator,
    /// A delegation that was recalled and did not come back.
    Unreturned,
}

impl Flaw {
    /// The status (§8.2.4). A stateid of another instance is STALE_STATEID for a client without sessions, of version 4.0
    /// (RFC 7530 §9.6.2); otherwise BAD_STATEID (§15.1.16): the session has told the client before.
    pub(super) fn status(self, is_sessionless: bool) -> Status {
        match self {
            Self::OtherInstance if is_sessionless => Status::STALE_STATEID,
            Self::Special
            | Self::OtherInstance
            | Self::Unknown
            | Self::OtherClient
            | Self::OtherFile
            | Self::OtherKind
            | Self::Future => Status::BAD_STATEID,
            Self::Revoked(Revocation::Expired) => Status::EXPIRED,
            Self::Revoked(Revocation::Administrator) => Status::ADMIN_REVOKED,
            Self::Revoked(Revocation::Unreturned) => Status::DELEG_REVOKED,
            Self::Old => Status::OLD_STATEID,
        }
    }
}

/// §8.2.2: "incremented past NFS4_UINT32_MAX, and one (not zero) is the next seqid value".
pub(super) fn next_seqid(seqid: u32) -> u32 {
    seqid.checked_add(1).unwrap_or(1)
}

/// Compares a stateid's seqid with the present one. §8.2.2: zero means the most recent; lower is OLD_STATEID, greater
/// BAD_STATEID, and "the possibility of the seqid being swapped around past the NFS4_UINT32_MAX value needs to be taken into
/// account": within `slots` of the wrap, as many requests as the client can have under way.
///
/// For a client without sessions zero is a number like others, earlier than all (RFC 7530 §9.1.4.4).
pub(super) fn check_seqid(seqid: u32, present: u32, slots: u32, is_sessionless: bool) -> Result<(), Flaw> {
    if seqid == present || (seqid == 0 && !is_sessionless) {
        return Ok(());
    }
    let near_end = |value: u32| value > u32::MAX - slots;
    let present_wrapped = present < slots && near_end(seqid);
    let sent_wrapped = seqid < slots && near_end(present);
    let older = (seqid < present || present_wrapped) && !sent_wrapped;
    Err(if older { Flaw::Old } else { Flaw::Future })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_the_wire() {
        for place in [
            Place { shard: 0, index: 0, generation: 1 },
            Place { shard: SHARDS - 1, index: (1 << 27) - 1, generation: u32::MAX },
            Place { shard: 5, index: 77, generation: 3 },
        ] {
            let stateid = Stateid { seqid: 1, other: place.other(9) };
            assert_eq!(Place::parse(&stateid, 9), Ok(place));
            assert_eq!(Place::parse(&stateid, 10), Err(Flaw::OtherInstance));
        }
        for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID] {
            assert_eq!(Place::parse(&special, 0), Err(Flaw::Special));
        }
    }

    #[test]
    fn seqids_are_compared_over_the_wrap() {
        assert_eq!(next_seqid(u32::MAX), 1);
        let check = |seqid, present| check_seqid(seqid, present, 1024, false);
        assert_eq!((check(0, 7), check(7, 7)), (Ok(()), Ok(())));
        assert_eq!((check(6, 7), check(8, 7)), (Err(Flaw::Old), Err(Flaw::Future)));
        assert_eq!(check(u32::MAX, 1), Err(Flaw::Old), "the one before");
        assert_eq!(check(1, u32::MAX), Err(Flaw::Future), "the one that comes next");
        assert_eq!(check(u32::MAX, 5000), Err(Flaw::Future), "far from the wrap");
        assert_eq!(check_seqid(0, 7, 1024, true), Err(Flaw::Old), "version 4.0 knows no present one");
    }
}
