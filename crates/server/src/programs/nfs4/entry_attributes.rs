//! Encodes the attributes of directory entries for READDIR.
//!
//! On the wire, entries of a directory have few layouts: they depend on owners, the length of the handle, and whether the
//! creation time is known. The first entry of each kind is encoded value by value and kept as a pattern. Later ones copy the
//! pattern and overwrite the object's numbers and handle. Masks, lengths, owner names and file-system attributes are thus
//! encoded once per READDIR and kind.

use protocol::nfs4::attributes::{acl::Acl, number};
use protocol::nfs4::types::{Bitmap, Status};
use vfs::{Attributes, Entry, Handle};
use xdr::Writer;

use super::attributes::{
    NO_ATTRIBUTES, OF_OBJECT, ObjectAttributes, Sink, Space, Subject, needs_object, of_entry,
};
use crate::files::object::{File, Object};
use crate::{Settings, WireHandle};

/// Maximum number of kept patterns; the oldest is replaced.
const KINDS: usize = 4;

/// The properties shared by entries that differ only in numbers and handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    uid: u32,
    gid: u32,
    has_creation: bool,
    handle_bytes: usize,
}

impl Kind {
    fn of(handle: &Handle, attributes: &Attributes) -> Self {
        let Attributes { uid, gid, created, .. } = *attributes;
        Self { uid, gid, has_creation: created.is_some(), handle_bytes: handle.len() }
    }
}

/// The encoded attributes of an entry, and the positions of values that differ within its kind.
#[derive(Debug)]
struct Pattern {
    kind: Kind,
    /// A `fattr4`.
    bytes: Vec<u8>,
    /// Attribute numbers with the positions of their values, ascending.
    numbers: Vec<(u32, usize)>,
    /// The position of the handle's first byte.
    handle_at: Option<usize>,
}

/// Writes the attributes of one directory's entries.
#[derive(Debug)]
pub(super) struct EntryAttributes<'a> {
    settings: &'a Settings,
    minor: u32,
    directory: File<'a>,
    /// Equal for the directory and all its entries.
    space: Space,
    mask: Bitmap,
    patterns: Vec<Pattern>,
    /// Index of the next pattern to replace.
    oldest: usize,
}

impl<'a> EntryAttributes<'a> {
    /// Creates an encoder for the attributes `mask` of entries in `directory`.
    pub(super) fn new(
        settings: &'a Settings,
        minor: u32,
        directory: File<'a>,
        space: Space,
        mask: Bitmap,
    ) -> Self {
        Self { settings, minor, directory, space, mask, patterns: Vec::new(), oldest: 0 }
    }

    /// Writes the `fattr4` of an entry.
    pub(super) fn write(&mut self, entry: &Entry<'_>, reply: &mut Writer) {
        let Some((handle, attributes)) = &entry.object else { return self.write_number(entry.fileid, reply) };
        let kind = Kind::of(handle, attributes);
        match self.patterns.iter().find(|pattern| pattern.kind == kind) {
            Some(pattern) => {
                let export = self.directory.export;
                let numbers =
                    ObjectAttributes { attributes, fsid: Some(export.fsid), mounted_on: entry.fileid };
                let handle = || self.settings.handle_key.seal(export.id, handle);
                pattern.write(&numbers, handle, reply);
            }
            None => {
                let subject = self.subject(self.directory.with(*handle), attributes, entry.fileid);
                let pattern = Pattern::of_first(kind, &subject, self.mask, reply);
                match self.patterns.get_mut(self.oldest) {
                    Some(oldest) => *oldest = pattern,
                    None => self.patterns.push(pattern),
                }
                self.oldest = (self.oldest + 1) % KINDS;
            }
        }
    }

    /// Writes the `fattr4` of an entry with an ACL, without patterns because ACLs mostly differ.
    pub(super) fn write_with_acl(&self, entry: &Entry<'_>, acl: Option<&Acl>, reply: &mut Writer) {
        let Some((handle, attributes)) = &entry.object else { return self.write_number(entry.fileid, reply) };
        let subject = self.subject(self.directory.with(*handle), attributes, entry.fileid);
        Subject { acl, ..subject }.write(self.mask, reply);
    }

    /// Writes the `fattr4` of an entry whose attributes cannot be read, with `rdattr_error` (RFC 8881 §18.23.3).
    pub(super) fn write_error(&self, fileid: u64, error: Status, reply: &mut Writer) {
        let attributes = Attributes { fileid, ..NO_ATTRIBUTES };
        let subject = self.subject(self.directory, &attributes, fileid);
        Subject { error, ..subject }.write(of_entry(self.mask), reply);
    }

    /// Writes an entry with only the file number known: nothing else is requested, or the object was removed meanwhile.
    fn write_number(&self, fileid: u64, reply: &mut Writer) {
        // If nothing else is requested, `of_entry` removes nothing.
        let error = if needs_object(self.mask) { Status::STALE } else { Status::OK };
        self.write_error(fileid, error, reply);
    }

    fn subject<'s>(&'s self, file: File<'s>, attributes: &'s Attributes, mounted_on: u64) -> Subject<'s> {
        Subject {
            settings: self.settings,
            minor: self.minor,
            object: Object::File(file),
            attributes,
            space: self.space,
            mounted_on,
            acl: None,
            error: Status::OK,
        }
    }
}

impl Pattern {
    /// Writes the first entry of its kind and returns its pattern.
    fn of_first(kind: Kind, subject: &Subject<'_>, mask: Bitmap, reply: &mut Writer) -> Self {
        let start = reply.mark();
        let (mut numbers, mut handle_at) = (Vec::new(), None);
        subject.write_noting(mask, reply, |number, reply| {
            let place = reply.length_since(start);
            if OF_OBJECT.has(number) {
                numbers.push((number, place));
            } else if number == number::FILEHANDLE {
                // After its length.
                handle_at = Some(place + 4);
            }
        });
        Self { kind, bytes: reply.inline_since(start).to_vec(), numbers, handle_at }
    }

    /// Writes an entry of this kind.
    fn write(&self, numbers: &ObjectAttributes<'_>, handle: impl FnOnce() -> WireHandle, reply: &mut Writer) {
        let buffer = reply.buffer_mut();
        let start = buffer.len();
        buffer.extend_from_slice(&self.bytes);
        let bytes = &mut buffer[start..];
        for (number, place) in &self.numbers {
            numbers.put(*number, &mut Over(&mut bytes[*place..]));
        }
        if let Some(place) = self.handle_at {
            let wire = handle();
            bytes[place..place + wire.len()].copy_from_slice(&wire);
        }
    }
}

/// A [`Sink`] that overwrites existing bytes in sequence.
struct Over<'a>(&'a mut [u8]);

impl Over<'_> {
    #[inline]
    fn put<const LENGTH: usize>(&mut self, value: [u8; LENGTH]) {
        let (place, rest) = std::mem::take(&mut self.0).split_first_chunk_mut().expect("a numeric owner");
        *place = value;
        self.0 = rest;
    }
}

impl Sink for Over<'_> {
    #[inline]
    fn word(&mut self, value: u32) {
        self.put(value.to_be_bytes());
    }

    #[inline]
    fn long(&mut self, value: u64) {
        self.put(value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use vfs::{Device, FileKind, Timestamp};

    use super::*;
    use crate::HandleKey;
    use crate::programs::nfs4::attributes::{readable, supported};
    use crate::testing::export;

    /// Returns attributes whose numbers derive from `seed`, and whose owners and creation time derive from `kind`.
    fn attributes(kind: u32, seed: u32) -> Attributes {
        let time = |seconds: u32| Timestamp { seconds: i64::from(seconds), nanoseconds: seed };
        let long = |high: u32| u64::from(high) << 32 | u64::from(seed);
        Attributes {
            kind: [FileKind::Regular, FileKind::Directory, FileKind::Symlink][seed as usize % 3],
            mode: seed & 0o7777,
            links: 1 + seed % 2,
            uid: 10_u32.pow(kind),
            gid: kind / 2,
            size: long(1),
            used: long(2),
            device: Device { major: seed + 3, minor: seed + 4 },
            fsid: long(5),
            fileid: long(6),
            accessed: time(seed + 7),
            modified: time(seed + 8),
            changed: time(seed + 9),
            created: kind.is_multiple_of(2).then(|| time(seed + 10)),
            change: long(11),
        }
    }

    #[test]
    fn pattern_writes_same_bytes_as_full_encoding() {
        let export = export(1, "/export");
        let settings = Settings::new(HandleKey([7; 16]), 1, [9; 16], b"test".to_vec());
        let directory = File::root(&export);
        let none = crate::programs::nfs4::attributes::NO_SPACE;
        let of_all = vfs::FsStat { total_bytes: 12, ..none.of_all };
        let space = Space { of_all, quota: Some(vfs::Quota::default()) };
        for minor in 0..=2 {
            let all = (0..Bitmap::LIMIT).filter(|number| supported(minor).has(*number));
            let all: Vec<u32> =
                all.filter(|number| readable(Bitmap::of(&[*number]), minor).is_ok()).collect();
            assert!(all.len() > 40 && all.contains(&number::FILEHANDLE));
            for mask in [Bitmap::of(&all), Bitmap::of(&[number::FILEID, number::OWNER])] {
                let mut entries = EntryAttributes::new(&settings, minor, directory, space, mask);
                // More kinds than are kept, each several times, then replaced kinds again.
                for (kind, seed) in (0..14).flat_map(|kind| [(kind % 7, 1), (kind % 7, 2), (kind % 7, 300)]) {
                    let attributes = attributes(kind, seed);
                    let handle = Handle::new(&vec![seed as u8; 8 + kind as usize]).unwrap();
                    let object = Some((handle, attributes));
                    let entry = Entry { name: b"name", fileid: u64::from(seed) + 5, cookie: 3, object };
                    let mut written = Writer::new();
                    entries.write(&entry, &mut written);
                    let mut expected = Writer::new();
                    let subject = entries.subject(directory.with(handle), &attributes, entry.fileid);
                    subject.write(mask, &mut expected);
                    assert_eq!(written.inline(), expected.inline(), "kind {kind}, seed {seed}");
                }
                assert_eq!(entries.patterns.len(), KINDS);
            }
        }
    }

    #[test]
    fn removed_entry_reports_rdattr_error() {
        let export = export(1, "/export");
        let settings = Settings::new(HandleKey([7; 16]), 1, [9; 16], b"test".to_vec());
        let directory = File::root(&export);
        let entry = Entry { name: b"name", fileid: 5, cookie: 3, object: None };
        let reported = |mask: Bitmap| {
            let space = crate::programs::nfs4::attributes::NO_SPACE;
            let mut reply = Writer::new();
            EntryAttributes::new(&settings, 1, directory, space, mask).write(&entry, &mut reply);
            reply.into_bytes()
        };
        // RFC 8881 §18.23.3: the known attributes, and the error for the others. 70: NFS4ERR_STALE.
        let asked = Bitmap::of(&[number::RDATTR_ERROR, number::SIZE, number::FILEID]);
        let expected = [1, 1 << 11 | 1 << 20, 12, 70, 0, 5].map(u32::to_be_bytes).concat();
        assert_eq!(reported(asked), expected);
        let asked = Bitmap::of(&[number::RDATTR_ERROR, number::FILEID]);
        let expected = [1, 1 << 11 | 1 << 20, 12, 0, 0, 5].map(u32::to_be_bytes).concat();
        assert_eq!(reported(asked), expected, "only the file number was requested");
    }
}
