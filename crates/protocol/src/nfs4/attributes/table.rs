//! Every attribute of NFSv4: number, name, type and properties, in one table.

use xdr::{Decode, Encode, List, Reader, Writer};

use super::acl::{Acl, Acl41, AclSupport};
use super::locations::{FsLocations, FsLocationsInfo};
use super::values::{
    ChangeAttrType, ChangePolicy, FhExpireType, FsCharsetCap, FsStatus, MdsThreshold, ModeMasked, ModeUmask,
    OpenArguments, RetentionGet, RetentionSet, SecLabel, SetTime,
};
use super::{AttributeError, FileAttributes};
use crate::nfs4::layout::{LayoutHint, LayoutType};
use crate::nfs4::types::{
    Bitmap, ChangeId, FileType, Fsid, Handle, MAX_CONFIGURED, Mode, SpecData, Status, Time, Utf8,
};

/// The value of `fs_layout_types` and `layout_types`.
pub type LayoutTypes = List<LayoutType, MAX_CONFIGURED>;

/// The allowed access to an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// GETATTR, READDIR, VERIFY and NVERIFY.
    Read,
    /// SETATTR, CREATE and OPEN only.
    Write,
    /// Both.
    ReadWrite,
}

/// An attribute's properties (RFC 8881 §5.6 and §5.7, RFC 7862 §12.2, RFC 8275, RFC 8276, RFC 9754).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeRow {
    /// The number, which is also the index in [`TABLE`].
    pub number: u32,
    /// The RFC's name.
    pub name: &'static str,
    /// The allowed access.
    pub access: Access,
    /// The first minor version that has it.
    pub minor_version: u32,
    /// Whether it is REQUIRED.
    pub required: bool,
}

impl AttributeRow {
    /// Returns whether it can be read.
    #[must_use]
    pub const fn readable(&self) -> bool {
        matches!(self.access, Access::Read | Access::ReadWrite)
    }

    /// Returns whether it can be set.
    #[must_use]
    pub const fn settable(&self) -> bool {
        matches!(self.access, Access::Write | Access::ReadWrite)
    }
}

/// Declares a struct with an optional field per attribute, which is encoded and decoded in the attributes' order.
macro_rules! attribute_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty = $number:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$field_meta])* pub $field: Option<$type>,)* }

        impl $name {
            /// The attributes with a field in this type.
            pub const FIELDS: Bitmap = Bitmap::of(&[$(number::$number),*]);

            /// Returns the attributes that are present.
            #[must_use]
            pub fn mask(&self) -> Bitmap {
                let mut mask = Bitmap::EMPTY;
                $(if self.$field.is_some() { mask.insert(number::$number); })*
                mask
            }

            fn decode_fields(mask: Bitmap, reader: &mut Reader) -> Result<Self, AttributeError> {
                let mut attributes = Self::default();
                $(if mask.has(number::$number) {
                    attributes.$field = Some(Decode::decode(reader).map_err(AttributeError::Malformed)?);
                })*
                reader.finish().map_err(AttributeError::Malformed)?;
                Ok(attributes)
            }

            fn encode_fields(&self, writer: &mut Writer) {
                $(if let Some(value) = &self.$field { value.encode(writer); })*
            }

            /// Encodes the values.
            ///
            /// # Panics
            /// If the values have more than [`super::MAX_ATTRIBUTE_VALUES`] bytes in total.
            #[must_use]
            pub fn to_file_attributes(&self) -> FileAttributes {
                let mut writer = Writer::new();
                self.encode_fields(&mut writer);
                FileAttributes::new(self.mask(), writer.into_bytes()).expect("values exceed their bound")
            }
        }
    };
}

macro_rules! attributes {
    ($($(#[$meta:meta])* $const:ident = $number:literal, $name:literal, $field:ident: $type:ty, $access:ident, minor $minor:literal, required $required:literal;)*) => {
        /// The attributes' numbers, `FATTR4_*`.
        pub mod number {
            $($(#[$meta])* pub const $const: u32 = $number;)*
        }

        /// A row per attribute, by number and without gaps.
        pub const TABLE: &[AttributeRow] = &[$(AttributeRow {
            number: $number,
            name: $name,
            access: Access::$access,
            minor_version: $minor,
            required: $required,
        },)*];

        attribute_struct! {
            /// The decoded attributes of an object, for clients and tests.
            pub struct Attributes { $($(#[$meta])* $field: $type = $const,)* }
        }
    };
}

attributes! {
    /// Attributes that the file system supports.
    SUPPORTED_ATTRS = 0, "supported_attrs", supported_attrs: Bitmap, Read, minor 0, required true;
    /// Type of the object.
    TYPE = 1, "type", file_type: FileType, Read, minor 0, required true;
    /// When file handles expire.
    FH_EXPIRE_TYPE = 2, "fh_expire_type", fh_expire_type: FhExpireType, Read, minor 0, required true;
    /// Changes whenever the object changes.
    CHANGE = 3, "change", change: ChangeId, Read, minor 0, required true;
    /// Size in bytes.
    SIZE = 4, "size", size: u64, ReadWrite, minor 0, required true;
    /// Whether the file system has hard links.
    LINK_SUPPORT = 5, "link_support", link_support: bool, Read, minor 0, required true;
    /// Whether the file system has symbolic links.
    SYMLINK_SUPPORT = 6, "symlink_support", symlink_support: bool, Read, minor 0, required true;
    /// Whether the object has named attributes.
    NAMED_ATTR = 7, "named_attr", named_attr: bool, Read, minor 0, required true;
    /// The file system.
    FSID = 8, "fsid", fsid: Fsid, Read, minor 0, required true;
    /// Whether different handles are always different objects.
    UNIQUE_HANDLES = 9, "unique_handles", unique_handles: bool, Read, minor 0, required true;
    /// Lease in seconds.
    LEASE_TIME = 10, "lease_time", lease_time: u32, Read, minor 0, required true;
    /// The error of an entry whose attributes READDIR could not get.
    RDATTR_ERROR = 11, "rdattr_error", rdattr_error: Status, Read, minor 0, required true;
    /// Access control list.
    ACL = 12, "acl", acl: Acl, ReadWrite, minor 0, required false;
    /// Supported types of ACL entries.
    ACLSUPPORT = 13, "aclsupport", aclsupport: AclSupport, Read, minor 0, required false;
    /// Whether the file changed since its last backup.
    ARCHIVE = 14, "archive", archive: bool, ReadWrite, minor 0, required false;
    /// Whether times can be set.
    CANSETTIME = 15, "cansettime", cansettime: bool, Read, minor 0, required false;
    /// Whether names are case-insensitive.
    CASE_INSENSITIVE = 16, "case_insensitive", case_insensitive: bool, Read, minor 0, required false;
    /// Whether names keep their case.
    CASE_PRESERVING = 17, "case_preserving", case_preserving: bool, Read, minor 0, required false;
    /// Whether only privileged users can change the owner.
    CHOWN_RESTRICTED = 18, "chown_restricted", chown_restricted: bool, Read, minor 0, required false;
    /// The file handle.
    FILEHANDLE = 19, "filehandle", filehandle: Handle, Read, minor 0, required true;
    /// The file ID in its file system.
    FILEID = 20, "fileid", fileid: u64, Read, minor 0, required false;
    /// Free files for the caller.
    FILES_AVAIL = 21, "files_avail", files_avail: u64, Read, minor 0, required false;
    /// Free files of the file system.
    FILES_FREE = 22, "files_free", files_free: u64, Read, minor 0, required false;
    /// Total files of the file system.
    FILES_TOTAL = 23, "files_total", files_total: u64, Read, minor 0, required false;
    /// Other locations of the file system.
    FS_LOCATIONS = 24, "fs_locations", fs_locations: Box<FsLocations>, Read, minor 0, required false;
    /// Windows's hidden attribute.
    HIDDEN = 25, "hidden", hidden: bool, ReadWrite, minor 0, required false;
    /// Whether all objects of the file system have the same per-file-system attributes.
    HOMOGENEOUS = 26, "homogeneous", homogeneous: bool, Read, minor 0, required false;
    /// Maximum file size in bytes.
    MAXFILESIZE = 27, "maxfilesize", maxfilesize: u64, Read, minor 0, required false;
    /// Maximum number of hard links.
    MAXLINK = 28, "maxlink", maxlink: u32, Read, minor 0, required false;
    /// Maximum length of a name in bytes.
    MAXNAME = 29, "maxname", maxname: u32, Read, minor 0, required false;
    /// Maximum READ in bytes.
    MAXREAD = 30, "maxread", maxread: u64, Read, minor 0, required false;
    /// Maximum WRITE in bytes.
    MAXWRITE = 31, "maxwrite", maxwrite: u64, Read, minor 0, required false;
    /// MIME type.
    MIMETYPE = 32, "mimetype", mimetype: Utf8, ReadWrite, minor 0, required false;
    /// Permission bits.
    MODE = 33, "mode", mode: Mode, ReadWrite, minor 0, required false;
    /// Whether names that are too long are rejected.
    NO_TRUNC = 34, "no_trunc", no_trunc: bool, Read, minor 0, required false;
    /// Number of hard links.
    NUMLINKS = 35, "numlinks", numlinks: u32, Read, minor 0, required false;
    /// Owner, as `user@domain` or a decimal number.
    OWNER = 36, "owner", owner: Utf8, ReadWrite, minor 0, required false;
    /// Group, as `group@domain` or a decimal number.
    OWNER_GROUP = 37, "owner_group", owner_group: Utf8, ReadWrite, minor 0, required false;
    /// Bytes available up to the hard quota.
    QUOTA_AVAIL_HARD = 38, "quota_avail_hard", quota_avail_hard: u64, Read, minor 0, required false;
    /// Bytes available up to the soft quota.
    QUOTA_AVAIL_SOFT = 39, "quota_avail_soft", quota_avail_soft: u64, Read, minor 0, required false;
    /// Bytes used of the quota.
    QUOTA_USED = 40, "quota_used", quota_used: u64, Read, minor 0, required false;
    /// Device number of a device.
    RAWDEV = 41, "rawdev", rawdev: SpecData, Read, minor 0, required false;
    /// Free bytes for the caller.
    SPACE_AVAIL = 42, "space_avail", space_avail: u64, Read, minor 0, required false;
    /// Free bytes of the file system.
    SPACE_FREE = 43, "space_free", space_free: u64, Read, minor 0, required false;
    /// Size of the file system in bytes.
    SPACE_TOTAL = 44, "space_total", space_total: u64, Read, minor 0, required false;
    /// Bytes of storage that the object uses.
    SPACE_USED = 45, "space_used", space_used: u64, Read, minor 0, required false;
    /// Windows's system attribute.
    SYSTEM = 46, "system", system: bool, ReadWrite, minor 0, required false;
    /// Last access.
    TIME_ACCESS = 47, "time_access", time_access: Time, Read, minor 0, required false;
    /// Sets the last access.
    TIME_ACCESS_SET = 48, "time_access_set", time_access_set: SetTime, Write, minor 0, required false;
    /// Last backup.
    TIME_BACKUP = 49, "time_backup", time_backup: Time, ReadWrite, minor 0, required false;
    /// Creation.
    TIME_CREATE = 50, "time_create", time_create: Time, ReadWrite, minor 0, required false;
    /// Granularity of the server's times.
    TIME_DELTA = 51, "time_delta", time_delta: Time, Read, minor 0, required false;
    /// Last change of attributes.
    TIME_METADATA = 52, "time_metadata", time_metadata: Time, Read, minor 0, required false;
    /// Last change of content.
    TIME_MODIFY = 53, "time_modify", time_modify: Time, Read, minor 0, required false;
    /// Sets the last change of content.
    TIME_MODIFY_SET = 54, "time_modify_set", time_modify_set: SetTime, Write, minor 0, required false;
    /// Like `fileid`, but of the directory under a mount point.
    MOUNTED_ON_FILEID = 55, "mounted_on_fileid", mounted_on_fileid: u64, Read, minor 0, required false;
    /// Minimum delay of a directory's attribute notifications.
    DIR_NOTIF_DELAY = 56, "dir_notif_delay", dir_notif_delay: Time, Read, minor 1, required false;
    /// Minimum delay of entries' attribute notifications.
    DIRENT_NOTIF_DELAY = 57, "dirent_notif_delay", dirent_notif_delay: Time, Read, minor 1, required false;
    /// The ACL's allow and deny entries.
    DACL = 58, "dacl", dacl: Box<Acl41>, ReadWrite, minor 1, required false;
    /// The ACL's audit and alarm entries.
    SACL = 59, "sacl", sacl: Box<Acl41>, ReadWrite, minor 1, required false;
    /// Changes whenever the file system's configuration changes.
    CHANGE_POLICY = 60, "change_policy", change_policy: ChangePolicy, Read, minor 1, required false;
    /// How and when the file system changes.
    FS_STATUS = 61, "fs_status", fs_status: Box<FsStatus>, Read, minor 1, required false;
    /// Layout types of the file system.
    FS_LAYOUT_TYPES = 62, "fs_layout_types", fs_layout_types: LayoutTypes, Read, minor 1, required false;
    /// A hint about the layout of a new file.
    LAYOUT_HINT = 63, "layout_hint", layout_hint: Box<LayoutHint>, Write, minor 1, required false;
    /// Layout types of the file.
    LAYOUT_TYPES = 64, "layout_types", layout_types: LayoutTypes, Read, minor 1, required false;
    /// Preferred I/O size in bytes with a layout.
    LAYOUT_BLKSIZE = 65, "layout_blksize", layout_blksize: u32, Read, minor 1, required false;
    /// Preferred alignment in bytes with a layout.
    LAYOUT_ALIGNMENT = 66, "layout_alignment", layout_alignment: u32, Read, minor 1, required false;
    /// Other locations of the file system, in detail.
    FS_LOCATIONS_INFO = 67, "fs_locations_info", fs_locations_info: Box<FsLocationsInfo>, Read, minor 1, required false;
    /// Thresholds for sending I/O to the metadata server.
    MDSTHRESHOLD = 68, "mdsthreshold", mdsthreshold: Box<MdsThreshold>, Read, minor 1, required false;
    /// Retention of the file.
    RETENTION_GET = 69, "retention_get", retention_get: Box<RetentionGet>, Read, minor 1, required false;
    /// Sets retention of the file.
    RETENTION_SET = 70, "retention_set", retention_set: Box<RetentionSet>, Write, minor 1, required false;
    /// Event-based retention.
    RETENTEVT_GET = 71, "retentevt_get", retentevt_get: Box<RetentionGet>, Read, minor 1, required false;
    /// Sets event-based retention.
    RETENTEVT_SET = 72, "retentevt_set", retentevt_set: Box<RetentionSet>, Write, minor 1, required false;
    /// Administrative holds, one per bit.
    RETENTION_HOLD = 73, "retention_hold", retention_hold: u64, ReadWrite, minor 1, required false;
    /// Changes some bits of the mode.
    MODE_SET_MASKED = 74, "mode_set_masked", mode_set_masked: ModeMasked, Write, minor 1, required false;
    /// Attributes that OPEN with EXCLUSIVE4_1 can set.
    SUPPATTR_EXCLCREAT = 75, "suppattr_exclcreat", suppattr_exclcreat: Bitmap, Read, minor 1, required true;
    /// The character sets of names.
    FS_CHARSET_CAP = 76, "fs_charset_cap", fs_charset_cap: FsCharsetCap, Read, minor 1, required false;
    /// Alignment in bytes that CLONE needs.
    CLONE_BLKSIZE = 77, "clone_blksize", clone_blksize: u32, Read, minor 2, required false;
    /// Bytes that removal of the file would free.
    SPACE_FREED = 78, "space_freed", space_freed: u64, Read, minor 2, required false;
    /// The meaning of `change`.
    CHANGE_ATTR_TYPE = 79, "change_attr_type", change_attr_type: ChangeAttrType, Read, minor 2, required false;
    /// Security label.
    SEC_LABEL = 80, "sec_label", sec_label: Box<SecLabel>, ReadWrite, minor 2, required false;
    /// Mode and umask of a new object (RFC 8275).
    MODE_UMASK = 81, "mode_umask", mode_umask: ModeUmask, Write, minor 2, required false;
    /// Whether the file system has extended attributes (RFC 8276).
    XATTR_SUPPORT = 82, "xattr_support", xattr_support: bool, Read, minor 2, required false;
    /// Whether a read must retrieve the file from slow storage (RFC 9754).
    OFFLINE = 83, "offline", offline: bool, Read, minor 2, required false;
    /// Last access, maintained by the delegation holder (RFC 9754).
    TIME_DELEG_ACCESS = 84, "time_deleg_access", time_deleg_access: Time, ReadWrite, minor 2, required false;
    /// Last change of content, maintained by the delegation holder (RFC 9754).
    TIME_DELEG_MODIFY = 85, "time_deleg_modify", time_deleg_modify: Time, ReadWrite, minor 2, required false;
    /// The arguments of OPEN that the server supports (RFC 9754).
    OPEN_ARGUMENTS = 86, "open_arguments", open_arguments: Box<OpenArguments>, Read, minor 2, required false;
}

attribute_struct! {
    /// The attributes that SETATTR, CREATE and OPEN can set.
    pub struct SetAttributes {
        /// Size in bytes.
        size: u64 = SIZE,
        /// Access control list.
        acl: Acl = ACL,
        /// Whether the file changed since its last backup.
        archive: bool = ARCHIVE,
        /// Windows's hidden attribute.
        hidden: bool = HIDDEN,
        /// MIME type.
        mimetype: Utf8 = MIMETYPE,
        /// Permission bits.
        mode: Mode = MODE,
        /// Owner, as `user@domain` or a decimal number.
        owner: Utf8 = OWNER,
        /// Group, as `group@domain` or a decimal number.
        owner_group: Utf8 = OWNER_GROUP,
        /// Windows's system attribute.
        system: bool = SYSTEM,
        /// Sets the last access.
        time_access_set: SetTime = TIME_ACCESS_SET,
        /// Last backup.
        time_backup: Time = TIME_BACKUP,
        /// Creation.
        time_create: Time = TIME_CREATE,
        /// Sets the last change of content.
        time_modify_set: SetTime = TIME_MODIFY_SET,
        /// The ACL's allow and deny entries.
        dacl: Box<Acl41> = DACL,
        /// The ACL's audit and alarm entries.
        sacl: Box<Acl41> = SACL,
        /// A hint about the layout of a new file.
        layout_hint: Box<LayoutHint> = LAYOUT_HINT,
        /// Sets retention of the file.
        retention_set: Box<RetentionSet> = RETENTION_SET,
        /// Sets event-based retention.
        retentevt_set: Box<RetentionSet> = RETENTEVT_SET,
        /// Administrative holds, one per bit.
        retention_hold: u64 = RETENTION_HOLD,
        /// Changes some bits of the mode.
        mode_set_masked: ModeMasked = MODE_SET_MASKED,
        /// Security label.
        sec_label: Box<SecLabel> = SEC_LABEL,
        /// Mode and umask of a new object (RFC 8275).
        mode_umask: ModeUmask = MODE_UMASK,
        /// Last access, maintained by the delegation holder (RFC 9754).
        time_deleg_access: Time = TIME_DELEG_ACCESS,
        /// Last change of content, maintained by the delegation holder (RFC 9754).
        time_deleg_modify: Time = TIME_DELEG_MODIFY,
    }
}

impl Attributes {
    /// Decodes the values of `attributes`.
    ///
    /// # Errors
    /// [`AttributeError::Unsupported`] for an undefined number, because its length is unknown;
    /// [`AttributeError::Malformed`] if values cannot be decoded or bytes are left over.
    pub fn from_file_attributes(attributes: &FileAttributes) -> Result<Self, AttributeError> {
        attributes.check(Self::FIELDS, Self::FIELDS)?;
        Self::decode_fields(attributes.mask, &mut attributes.reader())
    }
}

impl SetAttributes {
    /// Decodes the attributes that a client sets. `supported` are the attributes of the file system.
    ///
    /// # Errors
    /// [`AttributeError::Unsupported`] and [`AttributeError::NotSettable`] before any value is decoded;
    /// [`AttributeError::Malformed`] if values cannot be decoded or bytes are left over.
    pub fn from_file_attributes(
        attributes: &FileAttributes,
        supported: Bitmap,
    ) -> Result<Self, AttributeError> {
        attributes.check(supported, Self::FIELDS)?;
        Self::decode_fields(attributes.mask, &mut attributes.reader())
    }
}
