//! Stateids: what is in them, and what is wrong with those that come (RFC 8881 §8.2).
//!
//! Version 4.0 has no sessions: whoever sends a stateid is taken for a client that was given it. So nobody may guess one. The
//! `other` field is the instance's mark (16 bits), an index (32 bits) and a generation (48 bits), and generations are no count
//! but [a keyed hash of one](Generations): of 2^48 values for an index one is right.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::wire::{Stateid, Status};

/// Shards of opens and locks, a power of two; a stateid's index names one in its low bits.
pub const SHARDS: usize = 32;

/// Where a stateid leads: "for the server to divide the "other" field of the stateid into two fields. An index into a table
/// of locking-state structures. A generation number" (§8.2.4), with the mark of the server's instance before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shard: usize,
    pub(crate) index: u32,
    /// The low [`GENERATION_BITS`] bits.
    pub(crate) generation: u64,
}

/// Bits of a generation.
pub(crate) const GENERATION_BITS: u32 = 48;

/// Makes the generations of a shard's entries: numbers that nobody guesses.
#[derive(Debug)]
pub(crate) struct Generations {
    /// Keyed with the server's secret, and fed with what tells this shard of this instance from all others.
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

/// Puts an `other` field together.
pub(crate) fn other_of(boot: u16, index: u32, rest: u64) -> [u8; 12] {
    let word = u128::from(boot) << 80 | u128::from(index) << GENERATION_BITS | u128::from(rest);
    let mut other = [0; 12];
    other.copy_from_slice(&word.to_be_bytes()[4..]);
    other
}

impl Place {
    /// The `other` field.
    pub(crate) fn other(self, boot: u16) -> [u8; 12] {
        other_of(boot, self.index * SHARDS as u32 + self.shard as u32, self.generation)
    }

    /// Reads the `other` field.
    pub(crate) fn parse(stateid: &Stateid, boot: u16) -> Result<Self, Flaw> {
        // "If a stateid value is used that has all zeros or all ones in the "other" field but does not match one of the cases
        // above, the server MUST return the error NFS4ERR_BAD_STATEID." Those that match are not for the table either.
        if stateid.is_special() {
            return Err(Flaw::Special);
        }
        let mut word = [0; 16];
        word[4..].copy_from_slice(&stateid.other);
        let word = u128::from_be_bytes(word);
        if (word >> 80) as u16 != boot {
            return Err(Flaw::OtherInstance);
        }
        let index = (word >> GENERATION_BITS) as u32;
        let generation = word as u64 & ((1 << GENERATION_BITS) - 1);
        Ok(Self { shard: index as usize % SHARDS, index: index / SHARDS as u32, generation })
    }
}

/// What is wrong with a stateid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
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
pub(crate) enum Revocation {
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

/// Compares a stateid's seqid with the present one. §8.2.2: zero means the most recent; lower is OLD_STATEID, greater
/// BAD_STATEID, and "the possibility of the seqid being swapped around past the NFS4_UINT32_MAX value needs to be taken into
/// account": within `slots` of the wrap, as many requests as the client can have under way.
///
/// For a client without sessions zero is a number like others, earlier than all (RFC 7530 §9.1.4.4).
pub(crate) fn check_seqid(seqid: u32, present: u32, slots: u32, is_sessionless: bool) -> Result<(), Flaw> {
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
            Place { shard: SHARDS - 1, index: (1 << 27) - 1, generation: (1 << GENERATION_BITS) - 1 },
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
    fn generations_are_no_count() {
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
        assert_eq!(near, 0, "none is near the one before");
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
