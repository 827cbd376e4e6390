//! Parses the events that read(2) of a fanotify(7) group returns.
//!
//! The kernel's data are checked anyway; malformed data count as missed events.

/// `fanotify_event_metadata`: length (4 bytes), version, a reserved byte, its own length (2), mask (8), a descriptor
/// (4), process (4).
const METADATA_BYTES: usize = 24;
/// The part of an information record before the opaque part of the handle: type, padding, length (2), file system
/// (8), and of the handle length (4) and type (4).
const FID_BYTES: usize = 20;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event<'b> {
    /// Bits of `FAN_…`.
    pub(crate) mask: u64,
    /// The process that caused it, 0 if it is unknown.
    pub(crate) process: u32,
    /// The kernel's handle of the object, type and opaque part. `None` if it is missing.
    pub(crate) object: Option<(i32, &'b [u8])>,
}

impl Event<'_> {
    /// An unknown event.
    const MISSED: Self = Self { mask: libc::FAN_Q_OVERFLOW, process: 0, object: None };

    /// Returns whether events were lost because the queue was full.
    pub(crate) fn is_overflow(&self) -> bool {
        self.mask & libc::FAN_Q_OVERFLOW != 0
    }
}

/// The events in the bytes that were read.
pub(crate) struct Events<'b>(pub(crate) &'b [u8]);

impl<'b> Iterator for Events<'b> {
    type Item = Event<'b>;

    fn next(&mut self) -> Option<Event<'b>> {
        if self.0.is_empty() {
            return None;
        }
        let (event, rest) = first(self.0).unwrap_or((Event::MISSED, &[]));
        self.0 = rest;
        Some(event)
    }
}

/// Returns the first event and the bytes after it.
fn first(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(field(bytes, 0)?)).ok()?;
    let (event, rest) = bytes.split_at_checked(length)?;
    let [version] = field(event, 4)?;
    let begin = usize::from(u16::from_ne_bytes(field(event, 6)?));
    if version != libc::FANOTIFY_METADATA_VERSION || begin < METADATA_BYTES {
        return None;
    }
    let mask = u64::from_ne_bytes(field(event, 8)?);
    let process = u32::from_ne_bytes(field(event, 20)?);
    Some((Event { mask, process, object: object(event.get(begin..)?) }, rest))
}

/// Returns the handle in the first information record that has one.
fn object(mut records: &[u8]) -> Option<(i32, &[u8])> {
    loop {
        let [kind] = field(records, 0)?;
        let length = usize::from(u16::from_ne_bytes(field(records, 2)?));
        // A record of length 0 would loop forever.
        let (record, rest) = records.split_at_checked(length.max(4))?;
        if kind == libc::FAN_EVENT_INFO_TYPE_FID {
            let bytes = usize::try_from(u32::from_ne_bytes(field(record, 12)?)).ok()?;
            let opaque = record.get(FID_BYTES..FID_BYTES.checked_add(bytes)?)?;
            return Some((i32::from_ne_bytes(field(record, 16)?), opaque));
        }
        records = rest;
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an information record padded to four bytes, as the kernel writes it.
    fn record(kind: u8, handle: (i32, &[u8])) -> Vec<u8> {
        let (handle_type, opaque) = handle;
        let length = (FID_BYTES + opaque.len()).next_multiple_of(4);
        let mut bytes = vec![kind, 0];
        bytes.extend((length as u16).to_ne_bytes());
        bytes.extend([9; 8]);
        bytes.extend((opaque.len() as u32).to_ne_bytes());
        bytes.extend(handle_type.to_ne_bytes());
        bytes.extend(opaque);
        bytes.resize(length, 0);
        bytes
    }

    fn event(mask: u64, process: u32, records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let mut bytes = ((METADATA_BYTES + records.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([libc::FANOTIFY_METADATA_VERSION, 0]);
        bytes.extend((METADATA_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(process.to_ne_bytes());
        bytes.extend(records);
        bytes
    }

    fn fid(handle: (i32, &[u8])) -> Vec<u8> {
        record(libc::FAN_EVENT_INFO_TYPE_FID, handle)
    }

    #[test]
    fn events_come_in_their_order_with_their_handles() {
        let other = record(libc::FAN_EVENT_INFO_TYPE_PIDFD, (0, &[]));
        let bytes = [
            event(libc::FAN_MODIFY, 7, &[fid((1, &[1, 2, 3, 4, 5, 6, 7, 8]))]),
            event(libc::FAN_ATTRIB | libc::FAN_ONDIR, 0, &[other, fid((0x4d, &[5; 19]))]),
        ];
        let expected = [
            Event { mask: libc::FAN_MODIFY, process: 7, object: Some((1, &[1, 2, 3, 4, 5, 6, 7, 8])) },
            Event { mask: libc::FAN_ATTRIB | libc::FAN_ONDIR, process: 0, object: Some((0x4d, &[5; 19])) },
        ];
        assert_eq!(Events(&bytes.concat()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_overflow_is_not_an_event_of_an_object() {
        // Linux writes a record with an invalid handle of no bytes; before Linux 5.16 it wrote none.
        for records in [vec![], vec![fid((255, &[]))]] {
            let bytes = event(libc::FAN_Q_OVERFLOW, 0, &records);
            assert!(Events(&bytes).all(|event| event.is_overflow()));
            assert_eq!(Events(&bytes).count(), 1);
        }
        assert!(!Events(&event(libc::FAN_MODIFY, 7, &[])).any(|event| event.is_overflow()));
    }

    #[test]
    fn truncated_or_unknown_records_count_as_missed() {
        let good = event(libc::FAN_MODIFY, 7, &[fid((1, &[1; 8]))]);
        for length in 1..good.len() {
            assert_eq!(Events(&good[..length]).collect::<Vec<_>>(), [Event::MISSED], "{length}");
        }
        let mut other_version = good.clone();
        other_version[4] += 1;
        assert_eq!(Events(&other_version).collect::<Vec<_>>(), [Event::MISSED]);
        let mut endless = good.clone();
        endless[..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert_eq!(Events(&endless).collect::<Vec<_>>(), [Event::MISSED]);
    }

    #[test]
    fn a_handle_that_does_not_fit_its_record_is_ignored() {
        let mut overlong = fid((1, &[1; 8]));
        overlong[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        let mut without_length = fid((1, &[1; 8]));
        without_length[2..4].copy_from_slice(&0_u16.to_ne_bytes());
        for record in [overlong, without_length] {
            let bytes = event(libc::FAN_MODIFY, 7, &[record]);
            let expected = Event { mask: libc::FAN_MODIFY, process: 7, object: None };
            assert_eq!(Events(&bytes).collect::<Vec<_>>(), [expected]);
        }
    }
}
