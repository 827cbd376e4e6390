mod short;

use std::fmt;
use std::ops::Deref;

use siphasher::sip::SipHasher24;
use vfs::{Handle, MAX_HANDLE};

pub use short::SHORT_HANDLE_BYTES;
use short::SHORT_VERSION;

/// Format of handles; a change of the layout is another version, so that old handles answer BADHANDLE, not garbage.
const VERSION: u8 = 1;
const EXPORT_AT: usize = 1;
const TAG_AT: usize = 5;
const INNER_AT: usize = 13;

/// Length in bytes of the longest handle on the wire: version, export id, tag, the backend's handle. NFSv3 allows 64
/// (RFC 1813 §2.4), NFSv4 128.
pub const WIRE_HANDLE_MAX: usize = INNER_AT + MAX_HANDLE;
const _: () = assert!(WIRE_HANDLE_MAX <= 64);

/// Bytes that a tag covers: version, export id, the backend's handle.
const TAGGED_HEAD: usize = 1 + 4;
const TAGGED_MAX: usize = TAGGED_HEAD + MAX_HANDLE;

/// The number of an export in its handles. 0 is the NFSv4 pseudo file system above all exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u32);

impl ExportId {
    /// The NFSv4 pseudo file system (RFC 8881 §7.3).
    pub const PSEUDO: Self = Self(0);
}

/// A secret that authenticates handles, so that a client cannot forge one for a file outside its export. It is kept in the state
/// directory: another key makes all handles of clients invalid.
#[derive(Clone, PartialEq, Eq)]
pub struct HandleKey(pub [u8; 16]);

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(…)")
    }
}

/// A file handle as sent to clients.
#[derive(Clone, Copy)]
pub struct WireHandle {
    length: u8,
    data: [u8; WIRE_HANDLE_MAX],
}

impl HandleKey {
    /// SipHash-2-4 over the bytes after and before the tag.
    fn tag(&self, export: ExportId, inner: &Handle) -> [u8; 8] {
        // In one part, which is hashed in half the time of three.
        let mut whole = [0; TAGGED_MAX];
        whole[0] = VERSION;
        whole[1..TAGGED_HEAD].copy_from_slice(&export.0.to_le_bytes());
        let whole = &mut whole[..TAGGED_HEAD + inner.len()];
        whole[TAGGED_HEAD..].copy_from_slice(inner);
        SipHasher24::new_with_key(&self.0).hash(whole).to_be_bytes()
    }

    /// Returns a keyed hash that identifies the handle.
    pub(crate) fn fingerprint(&self, export: ExportId, inner: &Handle) -> u64 {
        u64::from_be_bytes(self.tag(export, inner))
    }

    /// Returns the [fingerprint](Self::fingerprint) of a handle that [`Self::open`] has accepted: it is the tag.
    pub(crate) fn fingerprint_in(wire: &[u8]) -> Option<u64> {
        wire.get(TAG_AT..INNER_AT)?.first_chunk().map(|tag| u64::from_be_bytes(*tag))
    }

    /// Returns the wire form of a backend's handle.
    #[must_use]
    pub fn seal(&self, export: ExportId, inner: &Handle) -> WireHandle {
        Self::seal_known(self.fingerprint(export, inner), export, inner)
    }

    /// As [`Self::seal`], with a known [fingerprint](Self::fingerprint), which is the tag.
    pub(crate) fn seal_known(fingerprint: u64, export: ExportId, inner: &Handle) -> WireHandle {
        let mut data = [0; WIRE_HANDLE_MAX];
        data[0] = VERSION;
        data[EXPORT_AT..TAG_AT].copy_from_slice(&export.0.to_be_bytes());
        data[TAG_AT..INNER_AT].copy_from_slice(&fingerprint.to_be_bytes());
        data[INNER_AT..INNER_AT + inner.len()].copy_from_slice(inner);
        WireHandle { length: (INNER_AT + inner.len()) as u8, data }
    }

    /// Checks a handle from the wire and splits it. Returns `None` if this key never sealed it.
    #[must_use]
    pub fn open(&self, wire: &[u8]) -> Option<(ExportId, Handle)> {
        if wire.len() < INNER_AT || wire.len() > WIRE_HANDLE_MAX {
            return None;
        }
        let export = ExportId(u32::from_be_bytes(*wire[EXPORT_AT..].first_chunk()?));
        let inner = match wire[0] {
            VERSION => Handle::new(&wire[INNER_AT..]).ok()?,
            SHORT_VERSION => short::inner_of(wire)?,
            _ => return None,
        };
        let tag = u64::from_be_bytes(*wire[TAG_AT..].first_chunk()?);
        // One comparison of 64 bits takes the same time wherever a forged tag differs.
        (u64::from_be_bytes(self.tag(export, &inner)) == tag).then_some((export, inner))
    }
}

impl Deref for WireHandle {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[..usize::from(self.length)]
    }
}

impl fmt::Debug for WireHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    #[test]
    fn the_tag_is_siphash_of_version_export_and_handle_one_after_the_other() {
        let (key, inner) = (HandleKey([7; 16]), Handle::new(b"inode 12, generation 4").unwrap());
        let mut hasher = SipHasher24::new_with_key(&key.0);
        hasher.write(&[1, 4, 3, 2, 1]);
        hasher.write(&inner);
        let wire = key.seal(ExportId(0x0102_0304), &inner);
        assert_eq!(wire[TAG_AT..INNER_AT], hasher.finish().to_be_bytes());
    }

    #[test]
    fn a_sealed_handle_opens_and_a_changed_one_does_not() {
        let key = HandleKey([7; 16]);
        let inner = Handle::new(b"inode 12, generation 4").unwrap();
        let wire = key.seal(ExportId(3), &inner);
        assert_eq!(key.open(&wire), Some((ExportId(3), inner)));
        assert_eq!(HandleKey::fingerprint_in(&wire), Some(key.fingerprint(ExportId(3), &inner)));
        for bit in 0..wire.len() * 8 {
            let mut forged = wire.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&forged), None, "bit {bit}");
        }
        assert_eq!(HandleKey([8; 16]).open(&wire), None);
        for length in 0..wire.len() {
            assert_eq!(key.open(&wire[..length]), None);
        }
    }
}
