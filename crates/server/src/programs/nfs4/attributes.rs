//! Encodes attributes for GETATTR, READDIR and VERIFY.

use protocol::nfs4::attributes::acl::{Acl, AclSupport};
use protocol::nfs4::attributes::values::{OpenArguments, open_args};
use protocol::nfs4::attributes::{known, number as n, write_attributes};
use protocol::nfs4::types::{Bitmap, FileType, Status};
use vfs::{Attributes, Device, FileKind, FsStat, Quota, Timestamp};
use xdr::{Encode, Writer};

use crate::files::object::Object;
use crate::id_names::IdKind;
use crate::{Export, Locations, Settings};

/// Attributes of every object, in all minor versions that have them.
const SUPPORTED: Bitmap = Bitmap::of(&[
    n::SUPPORTED_ATTRS,
    n::TYPE,
    n::FH_EXPIRE_TYPE,
    n::CHANGE,
    n::SIZE,
    n::LINK_SUPPORT,
    n::SYMLINK_SUPPORT,
    n::NAMED_ATTR,
    n::FSID,
    n::UNIQUE_HANDLES,
    n::LEASE_TIME,
    n::RDATTR_ERROR,
    n::ACL,
    n::ACLSUPPORT,
    n::CANSETTIME,
    n::CASE_INSENSITIVE,
    n::CASE_PRESERVING,
    n::CHOWN_RESTRICTED,
    n::FILEHANDLE,
    n::FILEID,
    n::FILES_AVAIL,
    n::FILES_FREE,
    n::FILES_TOTAL,
    n::FS_LOCATIONS,
    n::HOMOGENEOUS,
    n::MAXFILESIZE,
    n::MAXLINK,
    n::MAXNAME,
    n::MAXREAD,
    n::MAXWRITE,
    n::MODE,
    n::NO_TRUNC,
    n::NUMLINKS,
    n::OWNER,
    n::OWNER_GROUP,
    n::QUOTA_AVAIL_HARD,
    n::QUOTA_AVAIL_SOFT,
    n::QUOTA_USED,
    n::RAWDEV,
    n::SPACE_AVAIL,
    n::SPACE_FREE,
    n::SPACE_TOTAL,
    n::SPACE_USED,
    n::TIME_ACCESS,
    n::TIME_ACCESS_SET,
    n::TIME_CREATE,
    n::TIME_DELTA,
    n::TIME_METADATA,
    n::TIME_MODIFY,
    n::TIME_MODIFY_SET,
    n::MOUNTED_ON_FILEID,
    n::MODE_SET_MASKED,
    n::SUPPATTR_EXCLCREAT,
    n::FS_CHARSET_CAP,
    n::CLONE_BLKSIZE,
    n::SPACE_FREED,
    n::CHANGE_ATTR_TYPE,
    n::MODE_UMASK,
    n::XATTR_SUPPORT,
    n::TIME_DELEG_ACCESS,
    n::TIME_DELEG_MODIFY,
    n::OPEN_ARGUMENTS,
]);

/// Attributes that EXCLUSIVE4_1 may set: not times, where a backend may keep the verifier (RFC 8881 §18.16.3).
const WITH_EXCLUSIVE: Bitmap =
    Bitmap::of(&[n::SIZE, n::MODE, n::OWNER, n::OWNER_GROUP, n::MODE_UMASK, n::ACL]);

/// Attributes that CREATE and OPEN can set. TIME_CREATE is read-only because no system call sets it.
const WITH_CREATION: Bitmap = WITH_EXCLUSIVE.union(Bitmap::of(&[n::TIME_ACCESS_SET, n::TIME_MODIFY_SET]));

/// Attributes that SETATTR can set. RFC 8881 §6.2.5: "The mode_set_masked attribute is only valid in a SETATTR operation. If it is
/// used in a CREATE or OPEN operation, the server MUST return NFS4ERR_INVAL."
/// RFC 8275 §5: "The mode_umask attribute is only meaningful for operations that create objects".
/// RFC 9754 §5: the times of delegations "can only be used with CB_GETATTR and SETATTR".
const SETTABLE: Bitmap = WITH_CREATION.difference(Bitmap::of(&[n::MODE_UMASK])).union(Bitmap::of(&[
    n::MODE_SET_MASKED,
    n::TIME_DELEG_ACCESS,
    n::TIME_DELEG_MODIFY,
]));

/// Attributes that the holder of a write delegation changes locally: those that follow reads and writes.
const OF_HOLDER: Bitmap =
    Bitmap::of(&[n::CHANGE, n::SIZE, n::SPACE_USED, n::TIME_ACCESS, n::TIME_METADATA, n::TIME_MODIFY]);

/// Attributes that READDIR takes from the entry itself.
const OF_ENTRY: Bitmap =
    Bitmap::of(&[n::FILEID, n::MOUNTED_ON_FILEID, n::RDATTR_ERROR]).union(OF_FILE_SYSTEM);

/// Attributes that are equal for all objects of a file system, except free space.
const OF_FILE_SYSTEM: Bitmap = Bitmap::of(&[
    n::OPEN_ARGUMENTS,
    n::FS_LOCATIONS,
    n::SUPPORTED_ATTRS,
    n::FH_EXPIRE_TYPE,
    n::LINK_SUPPORT,
    n::SYMLINK_SUPPORT,
    n::UNIQUE_HANDLES,
    n::LEASE_TIME,
    n::ACLSUPPORT,
    n::CANSETTIME,
    n::CASE_INSENSITIVE,
    n::CASE_PRESERVING,
    n::CHOWN_RESTRICTED,
    n::HOMOGENEOUS,
    n::MAXFILESIZE,
    n::MAXLINK,
    n::MAXNAME,
    n::MAXREAD,
    n::MAXWRITE,
    n::NO_TRUNC,
    n::TIME_DELTA,
    n::SUPPATTR_EXCLCREAT,
    n::FS_CHARSET_CAP,
    n::CLONE_BLKSIZE,
    n::CHANGE_ATTR_TYPE,
    n::XATTR_SUPPORT,
]);

/// Fixed-size numbers that differ between objects.
pub(crate) const OF_OBJECT: Bitmap = Bitmap::of(&[
    n::TYPE,
    n::CHANGE,
    n::SIZE,
    n::FSID,
    n::FILEID,
    n::MODE,
    n::NUMLINKS,
    n::RAWDEV,
    n::SPACE_USED,
    n::SPACE_FREED,
    n::TIME_ACCESS,
    n::TIME_CREATE,
    n::TIME_METADATA,
    n::TIME_MODIFY,
    n::MOUNTED_ON_FILEID,
]);

/// Attributes that need the file system's free space.
const OF_SPACE: Bitmap = Bitmap::of(&[
    n::FILES_AVAIL,
    n::FILES_FREE,
    n::FILES_TOTAL,
    n::SPACE_AVAIL,
    n::SPACE_FREE,
    n::SPACE_TOTAL,
]);

/// Attributes that need the caller's quota.
const OF_QUOTA: Bitmap = Bitmap::of(&[n::QUOTA_AVAIL_HARD, n::QUOTA_AVAIL_SOFT, n::QUOTA_USED]);

/// Write-only attributes. RFC 9754 §5: the times of delegations "are invalid to be used with GETATTR, VERIFY, and NVERIFY".
const WRITE_ONLY: Bitmap = Bitmap::of(&[
    n::TIME_ACCESS_SET,
    n::TIME_MODIFY_SET,
    n::MODE_SET_MASKED,
    n::MODE_UMASK,
    n::TIME_DELEG_ACCESS,
    n::TIME_DELEG_MODIFY,
]);

/// Attributes by minor version.
const SUPPORTED_BY_MINOR: [Bitmap; 3] =
    [SUPPORTED.intersection(known(0)), SUPPORTED.intersection(known(1)), SUPPORTED.intersection(known(2))];

/// Returns the attributes that objects have in a minor version.
pub(crate) const fn supported(minor: u32) -> Bitmap {
    SUPPORTED_BY_MINOR[minor as usize]
}

/// Returns the attributes that SETATTR may set in a minor version.
pub(crate) const fn can_set(minor: u32) -> Bitmap {
    SETTABLE.intersection(supported(minor))
}

/// Returns the attributes that CREATE and OPEN may set.
pub(crate) const fn can_set_with_creation(minor: u32) -> Bitmap {
    WITH_CREATION.intersection(supported(minor))
}

/// Returns the attributes that EXCLUSIVE4_1 may set.
pub(crate) const fn can_set_with_exclusive(minor: u32) -> Bitmap {
    WITH_EXCLUSIVE.intersection(supported(minor))
}

/// Returns the supported attributes among `requested`.
///
/// # Errors
/// INVAL for a write-only attribute (RFC 8881 §5.5).
pub(crate) fn readable(requested: Bitmap, minor: u32) -> Result<Bitmap, Status> {
    let supported = supported(minor);
    let answered = requested.intersection(supported);
    if answered.intersection(WRITE_ONLY).is_empty() { Ok(answered) } else { Err(Status::INVAL) }
}

/// Returns whether `mask` needs the file system's free space, or the caller's quota there.
pub(crate) fn needs_space(mask: Bitmap) -> bool {
    !mask.intersection(OF_SPACE.union(OF_QUOTA)).is_empty()
}

/// Returns whether `mask` needs the caller's quota.
pub(crate) fn needs_quota(mask: Bitmap) -> bool {
    !mask.intersection(OF_QUOTA).is_empty()
}

/// Returns whether the holder of a write delegation may have newer values (RFC 8881 §10.4.3).
pub(crate) fn may_be_held(mask: Bitmap) -> bool {
    !mask.intersection(OF_HOLDER).is_empty()
}

/// Returns the attributes of `mask` that READDIR takes from the entry itself.
pub(crate) fn of_entry(mask: Bitmap) -> Bitmap {
    mask.intersection(OF_ENTRY)
}

/// Returns whether READDIR needs attributes or handles of entries.
pub(crate) fn needs_object(mask: Bitmap) -> bool {
    !mask.is_subset(OF_ENTRY)
}

/// The object whose attributes are written.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) minor: u32,
    pub(crate) object: Object<'a>,
    pub(crate) attributes: &'a Attributes,
    /// [`NO_SPACE`] unless [`needs_space`].
    pub(crate) space: Space,
    /// For the root of an export, the file number of its mount point; otherwise the object's own number.
    pub(crate) mounted_on: u64,
    /// Set if requested.
    pub(crate) acl: Option<&'a Acl>,
    /// `rdattr_error`: why an entry's other attributes are missing.
    pub(crate) error: Status,
}

/// Arguments that OPEN supports (RFC 9754 §3): "The server MUST mark REQUIRED flags as being supported". The server does not
/// queue delegation requests, and a client's restart drops its delegations.
const OPEN_ARGUMENTS: OpenArguments = OpenArguments {
    share_access: Bitmap::of(&[1, 2, 3]),
    share_deny: Bitmap::of(&[0, 1, 2, 3]),
    share_access_want: Bitmap::of(&[
        open_args::WANT_ANY_DELEG,
        open_args::WANT_NO_DELEG,
        open_args::WANT_CANCEL,
        open_args::WANT_DELEG_TIMESTAMPS,
        open_args::WANT_OPEN_XOR_DELEGATION,
    ]),
    // NULL, PREVIOUS, DELEGATE_CUR, FH, DELEG_CUR_FH.
    open_claim: Bitmap::of(&[0, 1, 2, 4, 5]),
    create_mode: Bitmap::of(&[0, 1, 2, 3]),
};

/// The space of a file system, and the caller's quota there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) of_all: FsStat,
    /// `None` if it is not requested, or there is none.
    pub(crate) quota: Option<Quota>,
}

/// The space of the pseudo file system: none.
pub(crate) const NO_SPACE: Space = Space {
    of_all: FsStat {
        total_bytes: 0,
        free_bytes: 0,
        available_bytes: 0,
        total_files: 0,
        free_files: 0,
        available_files: 0,
    },
    quota: None,
};

/// Placeholder attributes for entries of which only the file number is requested.
pub(crate) const NO_ATTRIBUTES: Attributes = {
    const NO_TIME: Timestamp = Timestamp { seconds: 0, nanoseconds: 0 };
    Attributes {
        kind: FileKind::Regular,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: Device { major: 0, minor: 0 },
        fsid: 0,
        fileid: 0,
        accessed: NO_TIME,
        modified: NO_TIME,
        changed: NO_TIME,
        created: None,
        change: 0,
    }
};

/// Longest name in the pseudo file system, which has no backend, in bytes.
const PSEUDO_MAX_NAME: u32 = 255;

impl Subject<'_> {
    /// Writes a `fattr4` with the attributes of `mask` that the object has.
    pub(crate) fn write(&self, mask: Bitmap, reply: &mut Writer) {
        self.write_noting(mask, reply, |_, _| ());
    }

    /// As [`Self::write`]; calls `note` with each attribute's number before writing it.
    pub(crate) fn write_noting(
        &self,
        mut mask: Bitmap,
        reply: &mut Writer,
        mut note: impl FnMut(u32, &Writer),
    ) {
        mask = mask.difference(self.lacking());
        if self.acl.is_none() {
            mask.remove(n::ACL);
        }
        if self.space.quota.is_none() {
            mask = mask.difference(OF_QUOTA);
        }
        let numbers = self.object_attributes();
        let written: Result<(), std::convert::Infallible> = write_attributes(reply, mask, |number, reply| {
            note(number, reply);
            // Handled inline: most requested attributes are of this kind and take a few instructions.
            if OF_OBJECT.has(number) {
                numbers.put(number, reply)
            } else {
                self.put(number, reply)
            }
            Ok(())
        });
        match written {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    fn object_attributes(&self) -> ObjectAttributes<'_> {
        let fsid = self.export().map(|export| export.fsid);
        ObjectAttributes { attributes: self.attributes, fsid, mounted_on: self.mounted_on }
    }

    fn export(&self) -> Option<&Export> {
        match &self.object {
            Object::Pseudo(_) => None,
            Object::File(file) => Some(file.export),
        }
    }

    /// Writes one value that is not in [`OF_OBJECT`]. `number` must be in [`SUPPORTED`].
    fn put(&self, number: u32, reply: &mut Writer) {
        match number {
            n::FILEHANDLE => reply.opaque(&self.object.seal(&self.settings.handle_key)),
            n::ACL => {
                if let Some(acl) = self.acl {
                    acl.encode(reply);
                }
            }
            n::OWNER => self.put_owner(IdKind::User, self.attributes.uid, reply),
            n::OWNER_GROUP => self.put_owner(IdKind::Group, self.attributes.gid, reply),
            n::RDATTR_ERROR => self.error.encode(reply),
            n::FILES_AVAIL => reply.u64(self.space.of_all.available_files),
            n::FILES_FREE => reply.u64(self.space.of_all.free_files),
            n::FILES_TOTAL => reply.u64(self.space.of_all.total_files),
            n::SPACE_AVAIL => reply.u64(self.space.of_all.available_bytes),
            n::SPACE_FREE => reply.u64(self.space.of_all.free_bytes),
            n::SPACE_TOTAL => reply.u64(self.space.of_all.total_bytes),
            n::QUOTA_AVAIL_HARD | n::QUOTA_AVAIL_SOFT | n::QUOTA_USED => self.put_quota(number, reply),
            _ => self.put_of_file_system(number, reply),
        }
    }

    /// RFC 8881 §5.8.2.28 to §5.8.2.30: what "can be allocated to this file or directory before further allocations will be refused", as far
    /// as the quota is the reason; the same for a warning; and what is used.
    fn put_quota(&self, number: u32, reply: &mut Writer) {
        let bytes = self.space.quota.unwrap_or_default().bytes;
        reply.u64(match number {
            n::QUOTA_AVAIL_HARD => bytes.left(bytes.hard).unwrap_or(u64::MAX),
            n::QUOTA_AVAIL_SOFT => bytes.left(bytes.soft).unwrap_or(u64::MAX),
            _ => bytes.used,
        });
    }

    /// Writes a value that is the same for all objects of a file system.
    fn put_of_file_system(&self, number: u32, reply: &mut Writer) {
        let properties = self.export().map(|export| export.backend.properties());
        let properties = properties.as_ref();
        match number {
            n::SUPPORTED_ATTRS => self.supported().encode(reply),
            n::SUPPATTR_EXCLCREAT => can_set_with_exclusive(self.minor).encode(reply),
            // No bit: RFC 8881 §4.2.3, FH4_PERSISTENT.
            n::FH_EXPIRE_TYPE => reply.u32(0),
            n::LINK_SUPPORT => reply.bool(properties.is_some_and(|p| p.max_links > 1)),
            n::SYMLINK_SUPPORT => reply.bool(properties.is_some()),
            n::NAMED_ATTR => reply.bool(false),
            n::UNIQUE_HANDLES | n::HOMOGENEOUS | n::NO_TRUNC | n::CANSETTIME => reply.bool(true),
            n::LEASE_TIME => reply.u32(self.settings.lease.as_secs() as u32),
            // No bit: no ACLs.
            n::ACLSUPPORT if properties.is_some_and(|p| p.acls) => {
                (AclSupport::ALLOW | AclSupport::DENY).encode(reply)
            }
            n::ACLSUPPORT => reply.u32(0),
            n::CASE_INSENSITIVE => reply.bool(properties.is_some_and(|p| p.case_insensitive)),
            n::CASE_PRESERVING => reply.bool(properties.is_none_or(|p| p.case_preserving)),
            n::CHOWN_RESTRICTED => reply.bool(properties.is_none_or(|p| p.chown_restricted)),
            n::MAXFILESIZE => reply.u64(properties.map_or(i64::MAX as u64, |p| p.max_file_size)),
            n::MAXLINK => reply.u32(properties.map_or(1, |p| p.max_links)),
            n::MAXNAME => reply.u32(properties.map_or(PSEUDO_MAX_NAME, |p| p.max_name)),
            n::MAXREAD | n::MAXWRITE => reply.u64(u64::from(self.settings.max_io)),
            n::TIME_DELTA => {
                let delta_ns = properties.map_or(1, |p| p.time_delta_ns);
                put_time(
                    Timestamp {
                        seconds: i64::from(delta_ns / 1_000_000_000),
                        nanoseconds: delta_ns % 1_000_000_000,
                    },
                    reply,
                );
            }
            n::OPEN_ARGUMENTS => OPEN_ARGUMENTS.encode(reply),
            // Lacking without an export.
            n::FS_LOCATIONS => {
                if let Some(export) = self.export() {
                    export.fs_locations().encode(reply);
                }
            }
            // FSCHARSET_CAP4_CONTAINS_NON_UTF8 (RFC 8881 §14.4).
            n::FS_CHARSET_CAP => reply.u32(1),
            // NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR (RFC 7862 §12.2.3): `vfs::Attributes::change` grows.
            n::CHANGE_ATTR_TYPE => reply.u32(0),
            n::CLONE_BLKSIZE => reply.u32(properties.map_or(0, |p| p.clone_block_bytes)),
            n::XATTR_SUPPORT => reply.bool(properties.is_some_and(|p| p.xattrs)),
            _ => unreachable!("attribute {number} is not in SUPPORTED"),
        }
    }

    fn put_owner(&self, kind: IdKind, id: u32, reply: &mut Writer) {
        match self.settings.id_names.as_ref().and_then(|names| names.text(kind, id)) {
            Some(text) => reply.opaque(text.as_bytes()),
            None => put_id(id, reply),
        }
    }

    fn supported(&self) -> Bitmap {
        supported(self.minor).difference(self.lacking())
    }

    /// Returns the attributes that this object lacks.
    fn lacking(&self) -> Bitmap {
        let mut mask = Bitmap::EMPTY;
        if self.attributes.created.is_none() {
            mask.insert(n::TIME_CREATE);
        }
        let properties = self.export().map(|export| export.backend.properties());
        if properties.is_none_or(|p| !p.acls) {
            mask.insert(n::ACL);
        }
        if properties.is_none_or(|p| !p.quotas) {
            mask = mask.union(OF_QUOTA);
        }
        if self.export().is_none_or(|export| export.options.locations == Locations::Here) {
            mask.insert(n::FS_LOCATIONS);
        }
        if self.minor >= 2 {
            if properties.is_none_or(|p| p.clone_block_bytes == 0) {
                mask.insert(n::CLONE_BLKSIZE);
            }
            // RFC 7862 §12.2.2 excludes shared blocks, which the backend cannot count.
            if properties.is_none_or(|p| p.shares_storage) {
                mask.insert(n::SPACE_FREED);
            }
        }
        mask
    }
}

/// Writes the numbers of an object.
pub(crate) struct ObjectAttributes<'a> {
    pub(crate) attributes: &'a Attributes,
    /// The export's fsid; `None` in the pseudo file system.
    pub(crate) fsid: Option<(u64, u64)>,
    pub(crate) mounted_on: u64,
}

impl ObjectAttributes<'_> {
    /// Writes one of [`OF_OBJECT`].
    #[inline]
    pub(crate) fn put(&self, number: u32, into: &mut impl Sink) {
        let a = self.attributes;
        match number {
            n::TYPE => into.word(file_type(a.kind).0),
            n::CHANGE => into.long(a.change),
            n::SIZE => into.long(a.size),
            n::FSID => {
                // The export's fsid, combined with the file system inside it; zeros for the pseudo file system.
                let (major, minor) = self.fsid.map_or((0, 0), |fsid| (fsid.0, fsid.1 ^ a.fsid));
                into.long(major);
                into.long(minor);
            }
            n::FILEID => into.long(a.fileid),
            n::MODE => into.word(a.mode),
            n::NUMLINKS => into.word(a.links),
            n::RAWDEV => {
                into.word(a.device.major);
                into.word(a.device.minor);
            }
            n::SPACE_USED => into.long(a.used),
            // RFC 7862 §12.2.2: "the number of bytes freed if the file is deleted": nothing while it has another name.
            n::SPACE_FREED if a.kind != FileKind::Directory && a.links > 1 => into.long(0),
            n::SPACE_FREED => into.long(a.used),
            n::TIME_ACCESS => put_time(a.accessed, into),
            n::TIME_CREATE => put_time(a.created.unwrap_or_default(), into),
            n::TIME_METADATA => put_time(a.changed, into),
            n::TIME_MODIFY => put_time(a.modified, into),
            n::MOUNTED_ON_FILEID => into.long(self.mounted_on),
            _ => unreachable!("attribute {number} is not in OF_OBJECT"),
        }
    }
}

/// A destination for numbers: appends them, or overwrites existing bytes.
pub(crate) trait Sink {
    fn word(&mut self, value: u32);
    fn long(&mut self, value: u64);
}

impl Sink for Writer {
    #[inline]
    fn word(&mut self, value: u32) {
        self.u32(value);
    }

    #[inline]
    fn long(&mut self, value: u64) {
        self.u64(value);
    }
}

/// Returns the `nfs_ftype4` of a kind.
pub(crate) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::REGULAR,
        FileKind::Directory => FileType::DIRECTORY,
        FileKind::Symlink => FileType::LINK,
        FileKind::BlockDevice => FileType::BLOCK,
        FileKind::CharDevice => FileType::CHARACTER,
        FileKind::Fifo => FileType::FIFO,
        FileKind::Socket => FileType::SOCKET,
    }
}

#[inline]
fn put_time(time: Timestamp, into: &mut impl Sink) {
    into.long(time.seconds as u64);
    into.word(time.nanoseconds);
}

/// Writes an owner or group as a decimal number.
///
/// RFC 8881 §5.9: "owner and group strings that consist of decimal numeric values with no leading zeros can be given a
/// special interpretation": that of a uid or gid, as clients with AUTH_SYS expect.
fn put_id(id: u32, reply: &mut Writer) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = id;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    reply.opaque(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_decimal_strings() {
        for (id, text) in [(0, "0"), (7, "7"), (65_534, "65534"), (u32::MAX, "4294967295")] {
            let mut writer = Writer::new();
            put_id(id, &mut writer);
            let mut expected = Writer::new();
            expected.opaque(text.as_bytes());
            assert_eq!(writer.inline(), expected.inline());
        }
    }

    #[test]
    fn required_attributes_are_supported() {
        use protocol::nfs4::attributes::TABLE;
        for minor in 0..=2 {
            for row in TABLE.iter().filter(|row| row.required && row.minor_version <= minor) {
                assert!(supported(minor).has(row.number), "{} in 4.{minor}", row.name);
            }
        }
        assert!(!supported(0).has(n::SUPPATTR_EXCLCREAT) && !supported(1).has(n::XATTR_SUPPORT));
    }

    #[test]
    fn write_only_attributes_are_not_readable() {
        let asked = |number| readable(Bitmap::of(&[n::TYPE, number]), 1);
        assert_eq!(asked(n::TIME_ACCESS_SET), Err(Status::INVAL));
        assert_eq!(asked(n::MODE_SET_MASKED), Err(Status::INVAL));
        assert_eq!(asked(n::HIDDEN), Ok(Bitmap::of(&[n::TYPE])));
    }
}
