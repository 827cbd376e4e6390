//! Handles of 32 bytes, for version 2 (RFC 1094 §2.3.3: `FHSIZE`) and for clients of version 3 that cut longer ones off.
//!
//! Export and tag have the same places as in a longer handle, and the tag is the same: both forms name one file. After them come the length
//! of the backend's handle and its bytes; zeros fill the rest. A backend's handle of more than [`PLAIN_MAX`] bytes is packed: a bit for
//! each byte says whether it is other than zero, and only those bytes follow. That makes room for the 64-bit numbers of btrfs, whose
//! upper halves are nearly always zero.

use vfs::{Handle, MAX_HANDLE};

use super::{EXPORT_AT, ExportId, HandleKey, INNER_AT, TAG_AT, WIRE_HANDLE_MAX, WireHandle};

/// Bytes of a short handle.
pub const SHORT_HANDLE_BYTES: usize = 32;

/// Format of short handles.
pub(super) const SHORT_VERSION: u8 = 2;

/// Bytes for the backend's handle, with its length.
const BODY: usize = SHORT_HANDLE_BYTES - INNER_AT;

/// The longest handle of a backend that is not packed, in bytes.
const PLAIN_MAX: usize = BODY - 1;

/// Bytes of a bit for each byte of a backend's handle.
const fn map_bytes(length: usize) -> usize {
    length.div_ceil(8)
}

impl HandleKey {
    /// Makes the short form of a backend's handle; none if it does not fit.
    #[must_use]
    pub fn seal_short(&self, export: ExportId, inner: &Handle) -> Option<[u8; SHORT_HANDLE_BYTES]> {
        let mut wire = [0; SHORT_HANDLE_BYTES];
        wire[0] = SHORT_VERSION;
        wire[EXPORT_AT..TAG_AT].copy_from_slice(&export.0.to_be_bytes());
        wire[TAG_AT..INNER_AT].copy_from_slice(&self.tag(export, inner));
        wire[INNER_AT..].copy_from_slice(&pack(inner)?);
        Some(wire)
    }

    /// As [`Self::seal_short`], or as [`Self::seal`] if the short form does not fit.
    #[must_use]
    pub fn seal_short_if_possible(&self, export: ExportId, inner: &Handle) -> WireHandle {
        match self.seal_short(export, inner) {
            Some(short) => {
                let mut data = [0; WIRE_HANDLE_MAX];
                data[..SHORT_HANDLE_BYTES].copy_from_slice(&short);
                WireHandle { length: SHORT_HANDLE_BYTES as u8, data }
            }
            None => self.seal(export, inner),
        }
    }
}

/// Returns the backend's handle in a short one, whose tag is not checked yet. Each handle has one short form only.
pub(super) fn inner_of(wire: &[u8]) -> Option<Handle> {
    let body: &[u8; BODY] = wire.get(INNER_AT..)?.try_into().ok()?;
    let inner = unpack(body)?;
    (pack(&inner)? == *body).then_some(inner)
}

fn pack(inner: &[u8]) -> Option<[u8; BODY]> {
    let mut body = [0; BODY];
    body[0] = inner.len() as u8;
    if inner.len() <= PLAIN_MAX {
        body[1..=inner.len()].copy_from_slice(inner);
        return Some(body);
    }
    let set = inner.iter().enumerate().filter(|(_, byte)| **byte != 0);
    for (end, (at, byte)) in (1 + map_bytes(inner.len())..).zip(set) {
        *body.get_mut(end)? = *byte;
        body[1 + at / 8] |= 1 << (at % 8);
    }
    Some(body)
}

fn unpack(body: &[u8; BODY]) -> Option<Handle> {
    let length = usize::from(body[0]);
    if length <= PLAIN_MAX {
        return Handle::new(&body[1..=length]).ok();
    }
    let mut inner = [0; MAX_HANDLE];
    let inner = inner.get_mut(..length)?;
    let (map, mut bytes) = body[1..].split_at_checked(map_bytes(length))?;
    for (at, byte) in inner.iter_mut().enumerate() {
        if map[at / 8] & (1 << (at % 8)) != 0 {
            let (first, rest) = bytes.split_first()?;
            (*byte, bytes) = (*first, rest);
        }
    }
    Handle::new(inner).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HandleKey = HandleKey([7; 16]);
    const EXPORT: ExportId = ExportId(0x0102_0304);

    fn opens(inner: &[u8]) -> bool {
        let inner = Handle::new(inner).unwrap();
        let Some(wire) = KEY.seal_short(EXPORT, &inner) else { return false };
        assert_eq!(KEY.open(&wire), Some((EXPORT, inner)));
        true
    }

    /// Handles of the forms that localfs makes: two bytes before the kernel's handle, or one before index and number.
    #[test]
    fn handles_of_common_file_systems_fit() {
        let ext4 = [&[1, 1][..], &[0xff; 8]].concat();
        let xfs = [&[1, 0x81][..], &[0xff; 12]].concat();
        let indexed = [2; 17];
        // Inode and subvolume number of 64 bits, generation of 32.
        let btrfs =
            [&[1, 0x4d][..], &0x00ff_ffff_ffff_u64.to_le_bytes(), &0xffff_u64.to_le_bytes(), &[0xff; 4]];
        for inner in [&ext4[..], &xfs, &indexed, &btrfs.concat(), &[0; MAX_HANDLE], b""] {
            assert!(opens(inner), "{inner:?}");
        }
        assert!(opens(&[9; PLAIN_MAX]) && !opens(&[9; PLAIN_MAX + 1]), "no byte is zero");
    }

    #[test]
    fn a_changed_handle_does_not_open() {
        let inner = [&[1, 0x4d][..], &[3; 9], &[0; 11]].concat();
        for inner in [&b"inode 12"[..], &inner] {
            let wire = KEY.seal_short(EXPORT, &Handle::new(inner).unwrap()).unwrap();
            for bit in 0..wire.len() * 8 {
                let mut forged = wire;
                forged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(KEY.open(&forged), None, "bit {bit}");
            }
            for length in 0..wire.len() {
                assert_eq!(KEY.open(&wire[..length]), None);
            }
            assert_eq!(KEY.open(&[&wire[..], &[0]].concat()), None);
            assert_eq!(HandleKey([8; 16]).open(&wire), None);
        }
    }

    #[test]
    fn both_forms_have_the_same_fingerprint() {
        let inner = Handle::new(b"inode 12").unwrap();
        let short = KEY.seal_short_if_possible(EXPORT, &inner);
        assert_eq!(short.len(), SHORT_HANDLE_BYTES);
        let long = KEY.seal(EXPORT, &inner);
        assert_eq!(HandleKey::fingerprint_in(&short), HandleKey::fingerprint_in(&long));
        let inner = Handle::new(&[9; 30]).unwrap();
        assert_eq!(*KEY.seal_short_if_possible(EXPORT, &inner), *KEY.seal(EXPORT, &inner));
    }

    #[test]
    fn lengths_beyond_the_bounds_are_refused() {
        for length in [MAX_HANDLE as u8 + 1, u8::MAX] {
            let mut body = [0; BODY];
            body[0] = length;
            assert_eq!(unpack(&body), None, "{length}");
        }
        let mut body = [0xff; BODY];
        body[0] = 48;
        assert_eq!(unpack(&body), None, "more bytes than there are");
    }
}
