//! Records of the log, and their encoding.

use std::ops::Deref;

use bytes::Bytes;
use vfs::Timestamp;

use super::CallId;

/// Maximum number of names or files that one operation changes.
pub(super) const CHANGES: usize = 2;

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

/// Bytes of a record's head: tag, call (16), time (8). Another format of the rest has another tag.
pub(super) const CALL_BYTES: usize = 1 + 16 + 8;

/// Bytes of an operation's record: the head, kind, outcome, targets (16). With the overhead of a log, that is one cache line.
pub(super) const HEAD_BYTES: usize = CALL_BYTES + 1 + 1 + 8 * CHANGES;

const STARTED: u8 = 0x21;
const ENDED: u8 = 0x22;
const REPLIED: u8 = 0x26;
const CLAIMED: u8 = 0x24;
const ANSWERED: u8 = 0x25;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// MKDIR, SYMLINK, MKNOD, CREATE of either version, OPEN with creation.
    Create = 1,
    /// REMOVE, RMDIR.
    Remove = 2,
    /// RENAME.
    Rename = 3,
    /// LINK.
    Link = 4,
    /// NFSv3's SETATTR with a guard.
    SetAttr = 5,
    /// SETXATTR that must create.
    CreateXattr = 6,
    /// REMOVEXATTR.
    RemoveXattr = 7,
}

/// The effect on a name, or on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Appears,
    Vanishes,
    Changes,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Create,
        Self::Remove,
        Self::Rename,
        Self::Link,
        Self::SetAttr,
        Self::CreateXattr,
        Self::RemoveXattr,
    ];

    /// Returns the effect on each target.
    pub(super) fn effects(self) -> &'static [Effect] {
        match self {
            Self::Create | Self::Link | Self::CreateXattr => &[Effect::Appears],
            Self::Remove | Self::RemoveXattr => &[Effect::Vanishes],
            Self::Rename => &[Effect::Vanishes, Effect::Appears],
            Self::SetAttr => &[Effect::Changes],
        }
    }
}

/// A record of the log. `at` is the time of the request, by the clock of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// An operation is about to be executed.
    Started { call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES] },
    /// An operation has ended, successfully or not.
    Ended { call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES], changed: bool },
    /// An earlier process began it, and a call of another name may claim it under `key`.
    Claimed { call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES], key: u64 },
    /// The call has ended, and its reply is on stable storage elsewhere.
    Answered { call: CallId, at: Timestamp },
    /// The call has ended, with this reply.
    Replied { call: CallId, at: Timestamp, reply: Bytes },
}

/// A record without its reply or key.
pub(super) struct Head {
    length: usize,
    bytes: [u8; HEAD_BYTES],
}

impl Deref for Head {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Record {
    /// Encodes everything but the reply or key.
    pub(super) fn head(&self) -> Head {
        let (tag, call, at, operation) = match self {
            Self::Started { call, at, kind, targets } => (STARTED, call, at, Some((kind, false, targets))),
            Self::Ended { call, at, kind, targets, changed } => {
                (ENDED, call, at, Some((kind, *changed, targets)))
            }
            Self::Claimed { call, at, kind, targets, .. } => {
                (CLAIMED, call, at, Some((kind, false, targets)))
            }
            Self::Answered { call, at } => (ANSWERED, call, at, None),
            Self::Replied { call, at, .. } => (REPLIED, call, at, None),
        };
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = tag;
        bytes[1..9].copy_from_slice(&call.digest.to_le_bytes());
        bytes[9..17].copy_from_slice(&call.number.to_le_bytes());
        bytes[17..CALL_BYTES].copy_from_slice(&nanoseconds(*at).to_le_bytes());
        let Some((kind, changed, targets)) = operation else { return Head { length: CALL_BYTES, bytes } };
        bytes[CALL_BYTES] = *kind as u8;
        bytes[CALL_BYTES + 1] = u8::from(changed);
        for (place, target) in bytes[CALL_BYTES + 2..].chunks_exact_mut(8).zip(targets) {
            place.copy_from_slice(&target.to_le_bytes());
        }
        Head { length: HEAD_BYTES, bytes }
    }

    /// Parses a record; `None` for other bytes.
    pub(super) fn parse(bytes: Bytes) -> Option<Self> {
        let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
        let call = CallId { digest: word(1)?, number: word(9)? };
        let at = timestamp(word(17)?.cast_signed());
        match bytes[0] {
            ANSWERED if bytes.len() == CALL_BYTES => return Some(Self::Answered { call, at }),
            REPLIED => return Some(Self::Replied { call, at, reply: bytes.slice(CALL_BYTES..) }),
            _ => {}
        }
        let (_, [kind, changed, ..]) = bytes.split_at_checked(CALL_BYTES)? else { return None };
        let (kind, changed) = (Kind::ALL.into_iter().find(|known| *known as u8 == *kind)?, *changed != 0);
        let targets = [word(CALL_BYTES + 2)?, word(CALL_BYTES + 10)?];
        match (bytes[0], bytes.len() - HEAD_BYTES) {
            (STARTED, 0) => Some(Self::Started { call, at, kind, targets }),
            (ENDED, 0) => Some(Self::Ended { call, at, kind, targets, changed }),
            (CLAIMED, 8) => Some(Self::Claimed { call, at, kind, targets, key: word(HEAD_BYTES)? }),
            _ => None,
        }
    }
}

/// Nanoseconds since the epoch; times more than some 292 years away become the nearest possible ones.
fn nanoseconds(time: Timestamp) -> i64 {
    time.seconds.saturating_mul(SECOND_NS).saturating_add(time.nanoseconds.into())
}

fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp {
        seconds: nanoseconds.div_euclid(SECOND_NS),
        nanoseconds: nanoseconds.rem_euclid(SECOND_NS) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_records_are_parsed() {
        let call = CallId { digest: 0x0102_0304_0506_0708, number: u64::MAX };
        let at = Timestamp { seconds: -3, nanoseconds: 999_999_999 };
        let targets = [7, u64::MAX - 1];
        let reply = Bytes::from_static(b"a reply");
        for kind in Kind::ALL {
            for record in [
                Record::Started { call, at, kind, targets },
                Record::Ended { call, at, kind, targets, changed: true },
                Record::Ended { call, at, kind, targets, changed: false },
            ] {
                assert_eq!(Record::parse(Bytes::copy_from_slice(&record.head())), Some(record));
            }
        }
        let answered = Record::Answered { call, at };
        assert_eq!(Record::parse(Bytes::copy_from_slice(&answered.head())), Some(answered));
        let claimed = Record::Claimed { call, at, kind: Kind::Rename, targets, key: 0x0102_0304 };
        let bytes = [&claimed.head()[..], &0x0102_0304u64.to_le_bytes()].concat();
        assert_eq!(Record::parse(bytes.into()), Some(claimed));
        let finished = Record::Replied { call, at, reply: reply.clone() };
        let mut bytes = finished.head().to_vec();
        bytes.extend(&reply);
        assert_eq!(Record::parse(bytes.clone().into()), Some(finished));
        bytes[0] = STARTED;
        assert_eq!(Record::parse(bytes.clone().into()), None, "bytes after a record without a reply");
        bytes[0] = 0;
        assert_eq!(Record::parse(bytes.clone().into()), None);
        let begun = Record::Started { call, at, kind: Kind::Create, targets }.head();
        for length in 0..HEAD_BYTES {
            assert_eq!(Record::parse(Bytes::copy_from_slice(&begun[..length])), None, "{length}");
        }
    }

    #[test]
    fn a_time_that_is_too_far_away_becomes_the_farthest() {
        for (seconds, expected) in
            [(i64::MIN, i64::MIN + 999_999_999), (i64::MAX, i64::MAX), (-3, -2_000_000_001)]
        {
            assert_eq!(nanoseconds(Timestamp { seconds, nanoseconds: 999_999_999 }), expected);
            assert_eq!(nanoseconds(timestamp(expected)), expected);
        }
    }
}
