//! The records of the log: changes of one object, which can be repeated.

use bytes::Bytes;

use crate::{Handle, MAX_HANDLE, Timestamp};

/// Maximum number of bytes that a record takes without data.
pub(super) const RECORD_BYTES_MAX: usize = 1 + 1 + MAX_HANDLE + 12 + 8 + 1 + 4 * 3 + 8 + 12 + 16;

const WRITE: u8 = 1;
const SET: u8 = 2;

const HAS_MODE: u8 = 1;
const HAS_UID: u8 = 2;
const HAS_GID: u8 = 4;
const HAS_SIZE: u8 = 8;
const HAS_ACCESSED: u8 = 16;

/// A change of one object. Repeating all changes since some moment in their order, once or more often, gives the object
/// the content and the attributes that it has after the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The object.
    pub file: Handle,
    /// User and group of the caller.
    pub caller: (u32, u32),
    /// The object's modification time after the change.
    pub modified: Timestamp,
    /// The change.
    pub action: Action,
}

/// What a [`Record`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Writes bytes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Sets attributes to these values.
    Set {
        /// Permission bits.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Owning group.
        gid: Option<u32>,
        /// Size in bytes.
        size: Option<u64>,
        /// Last access.
        accessed: Option<Timestamp>,
    },
}

impl Record {
    /// Returns the number of bytes that the record takes at most.
    pub(super) const fn bytes_max(data: usize) -> usize {
        RECORD_BYTES_MAX + data
    }

    /// Appends the encoded record.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let kind = match self.action {
            Action::Write { .. } => WRITE,
            Action::Set { .. } => SET,
        };
        to.extend([kind, self.file.len() as u8]);
        to.extend(&self.file[..]);
        put_time(to, self.modified);
        to.extend(self.caller.0.to_le_bytes());
        to.extend(self.caller.1.to_le_bytes());
        match &self.action {
            Action::Write { offset, data } => {
                to.extend(offset.to_le_bytes());
                to.extend((data.len() as u32).to_le_bytes());
                to.extend(&data[..]);
            }
            Action::Set { mode, uid, gid, size, accessed } => {
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                let flags = flag(mode.is_some(), HAS_MODE)
                    | flag(uid.is_some(), HAS_UID)
                    | flag(gid.is_some(), HAS_GID)
                    | flag(size.is_some(), HAS_SIZE)
                    | flag(accessed.is_some(), HAS_ACCESSED);
                to.push(flags);
                [mode, uid, gid].into_iter().flatten().for_each(|value| to.extend(value.to_le_bytes()));
                size.iter().for_each(|size| to.extend(size.to_le_bytes()));
                accessed.iter().for_each(|time| put_time(to, *time));
            }
        }
    }

    /// Decodes all records of a frame; `None` if they are not what [`Self::encode`] makes.
    pub(super) fn decode_all(frame: &Bytes) -> Option<Vec<Self>> {
        let (mut records, mut rest) = (Vec::new(), frame.clone());
        while !rest.is_empty() {
            records.push(Self::decode(&mut rest)?);
        }
        Some(records)
    }

    fn decode(from: &mut Bytes) -> Option<Self> {
        let [kind, length] = take(from)?;
        let file = Handle::new(&take_bytes(from, usize::from(length))?).ok()?;
        let modified = take_time(from)?;
        let caller = (u32::from_le_bytes(take(from)?), u32::from_le_bytes(take(from)?));
        let action = match kind {
            WRITE => {
                let offset = u64::from_le_bytes(take(from)?);
                let length = u32::from_le_bytes(take(from)?) as usize;
                Action::Write { offset, data: take_bytes(from, length)? }
            }
            SET => take_set(from)?,
            _ => return None,
        };
        Some(Self { file, caller, modified, action })
    }
}

fn take_set(from: &mut Bytes) -> Option<Action> {
    let [flags] = take(from)?;
    if flags >= 2 * HAS_ACCESSED {
        return None;
    }
    let mut number = |flag| -> Option<Option<u32>> {
        if flags & flag == 0 { Some(None) } else { Some(Some(u32::from_le_bytes(take(from)?))) }
    };
    let (mode, uid, gid) = (number(HAS_MODE)?, number(HAS_UID)?, number(HAS_GID)?);
    let size = if flags & HAS_SIZE == 0 { None } else { Some(u64::from_le_bytes(take(from)?)) };
    let accessed = if flags & HAS_ACCESSED == 0 { None } else { Some(take_time(from)?) };
    Some(Action::Set { mode, uid, gid, size, accessed })
}

fn put_time(to: &mut Vec<u8>, time: Timestamp) {
    to.extend(time.seconds.to_le_bytes());
    to.extend(time.nanoseconds.to_le_bytes());
}

fn take_time(from: &mut Bytes) -> Option<Timestamp> {
    let seconds = i64::from_le_bytes(take(from)?);
    Some(Timestamp { seconds, nanoseconds: u32::from_le_bytes(take(from)?) })
}

fn take<const N: usize>(from: &mut Bytes) -> Option<[u8; N]> {
    take_bytes(from, N)?[..].try_into().ok()
}

fn take_bytes(from: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= from.len()).then(|| from.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let file = Handle::new(&[7; MAX_HANDLE]).unwrap();
        let modified = Timestamp { seconds: -3, nanoseconds: 999_999_999 };
        let data = Bytes::from_static(b"content");
        let set = Action::Set {
            mode: Some(0o4755),
            uid: Some(u32::MAX - 1),
            gid: Some(7),
            size: Some(u64::MAX),
            accessed: Some(modified),
        };
        let nothing = Action::Set { mode: None, uid: None, gid: None, size: None, accessed: None };
        [Action::Write { offset: 1 << 60, data }, set, nothing]
            .map(|action| Record { file, caller: (1, 2), modified, action })
            .to_vec()
    }

    #[test]
    fn records_are_decoded_as_they_were() {
        let mut encoded = Vec::new();
        for record in &records() {
            let before = encoded.len();
            record.encode(&mut encoded);
            let data = if let Action::Write { data, .. } = &record.action { data.len() } else { 0 };
            assert!(encoded.len() - before <= Record::bytes_max(data));
        }
        assert_eq!(Record::decode_all(&encoded.into()), Some(records()));
    }

    #[test]
    fn every_cut_and_unknown_kinds_are_refused() {
        let mut encoded = Vec::new();
        records()[1].encode(&mut encoded);
        for length in 1..encoded.len() {
            assert_eq!(Record::decode_all(&Bytes::copy_from_slice(&encoded[..length])), None, "{length}");
        }
        encoded[0] = 9;
        assert_eq!(Record::decode_all(&encoded.into()), None);
    }
}
