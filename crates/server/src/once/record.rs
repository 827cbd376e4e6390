//! What is written down, and its bytes.

use bytes::Bytes;
use vfs::Timestamp;

use super::CallId;

/// Names, or files, that one operation changes at most.
pub(super) const CHANGES: usize = 2;

/// Bytes of a record without the reply: tag, call (16), time (12), kind, outcome, targets (16); the first byte tells the
/// format of the rest, and is another one where that changes.
pub(super) const HEAD_BYTES: usize = 1 + 16 + 12 + 1 + 1 + 8 * CHANGES;

const BEGUN: u8 = 0x11;
const ENDED: u8 = 0x12;
const FINISHED: u8 = 0x13;
const CLAIMED: u8 = 0x14;
const ANSWERED: u8 = 0x15;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// What becomes of a name, or of a file.
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

    /// What becomes of each of its targets.
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
    Begun { call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES] },
    /// It is over, and did what it is for or not.
    Ended { call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES], changed: bool },
    /// It was begun by an earlier process, and may be claimed under `key` by a call of another name.
    Claimed { call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES], key: u64 },
    /// The call is over, and its reply is on stable storage elsewhere.
    Answered { call: CallId, at: Timestamp },
    /// The call is over: this was its reply.
    Finished { call: CallId, at: Timestamp, reply: Bytes },
}

impl Record {
    /// All but the reply, or the key.
    pub(super) fn head(&self) -> [u8; HEAD_BYTES] {
        let (tag, call, at, kind, changed, targets) = match self {
            Self::Begun { call, at, kind, targets } => (BEGUN, call, at, *kind as u8, false, *targets),
            Self::Ended { call, at, kind, targets, changed } => {
                (ENDED, call, at, *kind as u8, *changed, *targets)
            }
            Self::Claimed { call, at, kind, targets, .. } => {
                (CLAIMED, call, at, *kind as u8, false, *targets)
            }
            Self::Answered { call, at } => (ANSWERED, call, at, 0, true, [0; CHANGES]),
            Self::Finished { call, at, .. } => (FINISHED, call, at, 0, true, [0; CHANGES]),
        };
        let mut bytes = [0; HEAD_BYTES];
        let mut rest = &mut bytes[..];
        let mut put = |part: &[u8]| {
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        };
        put(&[tag]);
        put(&call.digest.to_le_bytes());
        put(&call.number.to_le_bytes());
        put(&at.seconds.to_le_bytes());
        put(&at.nanoseconds.to_le_bytes());
        put(&[kind, u8::from(changed)]);
        targets.iter().for_each(|target| put(&target.to_le_bytes()));
        bytes
    }

    /// `None` for what is no record of this format.
    pub(super) fn parse(bytes: Bytes) -> Option<Self> {
        let (head, _) = bytes.split_at_checked(HEAD_BYTES)?;
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let call = CallId { digest: word(1)?, number: word(9)? };
        let nanoseconds = u32::from_le_bytes(*head[25..].first_chunk()?);
        let at = Timestamp { seconds: word(17)?.cast_signed(), nanoseconds };
        let kind = || Kind::ALL.into_iter().find(|kind| *kind as u8 == head[29]);
        let targets = [word(31)?, word(39)?];
        Some(match (head[0], bytes.len()) {
            (BEGUN, HEAD_BYTES) => Self::Begun { call, at, kind: kind()?, targets },
            (ENDED, HEAD_BYTES) => Self::Ended { call, at, kind: kind()?, targets, changed: head[30] != 0 },
            (CLAIMED, _) if bytes.len() == HEAD_BYTES + 8 => {
                Self::Claimed { call, at, kind: kind()?, targets, key: word(HEAD_BYTES)? }
            }
            (ANSWERED, HEAD_BYTES) => Self::Answered { call, at },
            (FINISHED, _) => Self::Finished { call, at, reply: bytes.slice(HEAD_BYTES..) },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_nothing_else_does() {
        let call = CallId { digest: 0x0102_0304_0506_0708, number: u64::MAX };
        let at = Timestamp { seconds: -3, nanoseconds: 999_999_999 };
        let targets = [7, u64::MAX - 1];
        let reply = Bytes::from_static(b"a reply");
        for kind in Kind::ALL {
            for record in [
                Record::Begun { call, at, kind, targets },
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
        let finished = Record::Finished { call, at, reply: reply.clone() };
        let mut bytes = finished.head().to_vec();
        bytes.extend(&reply);
        assert_eq!(Record::parse(bytes.clone().into()), Some(finished));
        bytes[0] = BEGUN;
        assert_eq!(Record::parse(bytes.clone().into()), None, "bytes behind what has no reply");
        bytes[0] = 0;
        assert_eq!(Record::parse(bytes.clone().into()), None);
        assert_eq!(Record::parse(bytes[..HEAD_BYTES - 1].to_vec().into()), None);
    }
}
