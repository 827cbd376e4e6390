//! Stateids: their fields, and the checks of those that clients send (RFC 8881 §8.2).
//!
//! Version 4.0 has no sessions, so a valid stateid identifies its sender. It must not be guessable. The `other` field
//! has the instance's mark (16 bits), an index (32 bits) and a generation (48 bits). The generation is a
//! [keyed hash](Generations) of a counter, so that only one of 2^48 values is valid for an index.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::wire::{Stateid, Status};

/// Shards of opens and locks, a power of two; the low bits of a stateid's index select one.
pub const SHARDS: usize = 32;

/// The table entry that a stateid names. RFC 8881 §8.2.4: "for the server to divide the "other" field of the stateid into two
/// fields. An index into a table of locking-state structures. A generation number". The instance's mark precedes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId {
    pub(crate) shard: usize,
    pub(crate) index: u32,
    /// The low [`GENERATION_BITS`] bits.
    pub(crate) generation: u64,
}

/// Bits of a generation.
pub(crate) const GENERATION_BITS: u32 = 48;

/// Source of the generations of a shard's entries: numbers that cannot be guessed.
#[derive(Debug)]
pub(crate) struct Generations {
    /// Keyed with the server's secret; its input begins with the instance and the shard.
    hasher: SipHasher24,
    made: u64,
}

impl Generations {
    pub(crate) fn new(hasher: SipHasher24) -> Self {
        Self { hasher, made: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.made += 1;
        let mut hasher = self.hasher;
        hasher.write_u64(self.made);
        hasher.finish() >> (u64::BITS - GENERATION_BITS)
    }
}

/// Builds an `other` field.
pub(crate) fn other_of(boot: u16, index: u32, rest: u64) -> [u8; 12] {
    let word = u128::from(boot) << 80 | u128::from(index) << GENERATION_BITS | u128::from(rest);
    let mut other = [0; 12];
    other.copy_from_slice(&word.to_be_bytes()[4..]);
    other
}

impl EntryId {
    /// Returns the `other` field.
    pub(crate) fn other(self, boot: u16) -> [u8; 12] {
        other_of(boot, self.index * SHARDS as u32 + self.shard as u32, self.generation)
    }

    /// Parses the `other` field.
    pub(crate) fn parse(stateid: &Stateid, boot: u16) -> Result<Self, StateidError> {
        // "If a stateid value is used that has all zeros or all ones in the "other" field but does not match one of the cases
        // above, the server MUST return the error NFS4ERR_BAD_STATEID." Special stateids name no entry either.
        if stateid.is_special() {
            return Err(StateidError::Special);
        }
        let mut word = [0; 16];
        word[4..].copy_from_slice(&stateid.other);
        let word = u128::from_be_bytes(word);
        if (word >> 80) as u16 != boot {
            return Err(StateidError::OtherInstance);
        }
        let index = (word >> GENERATION_BITS) as u32;
        let generation = word as u64 & ((1 << GENERATION_BITS) - 1);
        Ok(Self { shard: index as usize % SHARDS, index: index / SHARDS as u32, generation })
    }
}

/// The reason why a stateid is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateidError {
    /// A special stateid where none is allowed.
    Special,
    /// From another instance of the server.
    OtherInstance,
    /// It names no entry, or an entry that was freed.
    Unknown,
    /// It belongs to another client.
    OtherClient,
    /// It belongs to another file than the current one.
    OtherFile,
    /// Its state was revoked.
    Revoked(Revocation),
    /// It names another kind of state than the operation needs.
    OtherKind,
    /// Its seqid is older than the current one.
    Old,
    /// Its seqid was not issued yet.
    Future,
}

/// The reason why state was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// The lease expired, and another client's request conflicted.
    Expired,
    /// The administrator revoked it.
    Administrator,
    /// A delegation was recalled and not returned.
    Unreturned,
}

impl StateidError {
    /// Returns the status (§8.2.4). A stateid of another instance is STALE_STATEID for version 4.0 (RFC 7530 §9.6.2), otherwise
    /// BAD_STATEID (§15.1.16): a later version learns of the restart from its session.
    pub(crate) fn status(self, is_sessionless: bool) -> Status {
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
pub(crate) fn next_seqid(seqid: u32) -> u32 {
    seqid.checked_add(1).unwrap_or(1)
}

/// Compares a stateid's seqid with the current one. §8.2.2: zero means the current one; lower is OLD_STATEID, greater is
/// BAD_STATEID, and "the possibility of the seqid being swapped around past the NFS4_UINT32_MAX value needs to be taken into
/// account". Values within `slots` of the wrap count as wrapped: a client has no more requests under way.
///
/// In version 4.0 zero is an ordinary seqid, lower than all others (RFC 7530 §9.1.4.4).
pub(crate) fn check_seqid(
    seqid: u32,
    present: u32,
    slots: u32,
    is_sessionless: bool,
) -> Result<(), StateidError> {
    if seqid == present || (seqid == 0 && !is_sessionless) {
        return Ok(());
    }
    let near_end = |value: u32| value > u32::MAX - slots;
    let present_wrapped = present < slots && near_end(seqid);
    let sent_wrapped = seqid < slots && near_end(present);
    let older = (seqid < present || present_wrapped) && !sent_wrapped;
    Err(if older { StateidError::Old } else { StateidError::Future })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_ids_survive_the_wire() {
        for entry_id in [
            EntryId { shard: 0, index: 0, generation: 1 },
            EntryId { shard: SHARDS - 1, index: (1 << 27) - 1, generation: (1 << GENERATION_BITS) - 1 },
            EntryId { shard: 5, index: 77, generation: 3 },
        ] {
            let stateid = Stateid { seqid: 1, other: entry_id.other(9) };
            assert_eq!(EntryId::parse(&stateid, 9), Ok(entry_id));
            assert_eq!(EntryId::parse(&stateid, 10), Err(StateidError::OtherInstance));
        }
        for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID] {
            assert_eq!(EntryId::parse(&special, 0), Err(StateidError::Special));
        }
    }

    #[test]
    fn generations_are_not_sequential() {
        let of = |key: u8| {
            let mut generations = Generations::new(SipHasher24::new_with_key(&[key; 16]));
            (0..1000).map(|_| generations.next()).collect::<Vec<_>>()
        };
        let (one, other) = (of(1), of(2));
        assert_eq!(one, of(1), "they follow from the secret");
        let distinct: std::collections::HashSet<u64> = one.iter().chain(&other).copied().collect();
        assert_eq!(distinct.len(), 2000);
        assert!(distinct.iter().all(|generation| generation >> GENERATION_BITS == 0));
        let near = one.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 24).count();
        assert_eq!(near, 0, "no two in a row are close");
    }

    #[test]
    fn seqids_are_compared_over_the_wrap() {
        assert_eq!(next_seqid(u32::MAX), 1);
        let check = |seqid, present| check_seqid(seqid, present, 1024, false);
        assert_eq!((check(0, 7), check(7, 7)), (Ok(()), Ok(())));
        assert_eq!((check(6, 7), check(8, 7)), (Err(StateidError::Old), Err(StateidError::Future)));
        assert_eq!(check(u32::MAX, 1), Err(StateidError::Old), "the previous one");
        assert_eq!(check(1, u32::MAX), Err(StateidError::Future), "the next one");
        assert_eq!(check(u32::MAX, 5000), Err(StateidError::Future), "far from the wrap");
        assert_eq!(
            check_seqid(0, 7, 1024, true),
            Err(StateidError::Old),
            "version 4.0 has no seqid for the current one"
        );
    }
}
