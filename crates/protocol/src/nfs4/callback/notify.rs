//! Notifications: CB_NOTIFY and CB_NOTIFY_DEVICEID (RFC 8881 §20.4, §20.12).

use xdr::{Decode, Encode, List, Opaque};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::layout::LayoutType;
use crate::nfs4::types::{
    Bitmap, Component, Cookie, DeviceId, Handle, MAX_LAYOUT_BODY, Outcome, Stateid, Verifier,
};

/// Maximum number of notifications in a callback: a request has a few KiB, a notification at least 8 bytes.
pub const MAX_NOTIFICATIONS: usize = 1024;

/// `notify_type4`: bits of a directory delegation's notifications.
pub mod notify_type {
    /// `NOTIFY4_CHANGE_CHILD_ATTRS`: [`NotifyAttributes`](super::NotifyAttributes).
    pub const CHANGE_CHILD_ATTRS: u32 = 0;
    /// `NOTIFY4_CHANGE_DIR_ATTRS`: [`NotifyAttributes`](super::NotifyAttributes).
    pub const CHANGE_DIR_ATTRS: u32 = 1;
    /// `NOTIFY4_REMOVE_ENTRY`: [`NotifyRemove`](super::NotifyRemove).
    pub const REMOVE_ENTRY: u32 = 2;
    /// `NOTIFY4_ADD_ENTRY`: [`NotifyAdd`](super::NotifyAdd).
    pub const ADD_ENTRY: u32 = 3;
    /// `NOTIFY4_RENAME_ENTRY`: [`NotifyRename`](super::NotifyRename).
    pub const RENAME_ENTRY: u32 = 4;
    /// `NOTIFY4_CHANGE_COOKIE_VERIFIER`: [`NotifyVerifier`](super::NotifyVerifier).
    pub const CHANGE_COOKIE_VERIFIER: u32 = 5;
}

/// `notify_deviceid_type4`: bits of GETDEVICEINFO's notifications.
pub mod notify_device_type {
    /// `NOTIFY_DEVICEID4_CHANGE`: [`NotifyDeviceChange`](super::NotifyDeviceChange).
    pub const CHANGE: u32 = 1;
    /// `NOTIFY_DEVICEID4_DELETE`: [`NotifyDeviceDelete`](super::NotifyDeviceDelete).
    pub const DELETE: u32 = 2;
}

/// `notify_entry4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NotifyEntry {
    /// The name.
    pub file: Component,
    /// The attributes.
    pub attributes: FileAttributes,
}

/// `prev_entry4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct PreviousEntry {
    /// The entry.
    pub entry: NotifyEntry,
    /// Its READDIR cookie.
    pub cookie: Cookie,
}

/// `notify_remove4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NotifyRemove {
    /// The entry.
    pub old_entry: NotifyEntry,
    /// Its READDIR cookie.
    pub old_entry_cookie: Cookie,
}

/// `notify_add4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NotifyAdd {
    /// The entry that a rename replaced.
    pub old_entry: List<NotifyRemove, 1>,
    /// The new entry.
    pub new_entry: NotifyEntry,
    /// Its READDIR cookie.
    pub new_entry_cookie: List<Cookie, 1>,
    /// The entry before it.
    pub previous_entry: List<PreviousEntry, 1>,
    /// Whether it is the last entry.
    pub last_entry: bool,
}

/// `notify_attr4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NotifyAttributes {
    /// The changes.
    pub changed_entry: NotifyEntry,
}

/// `notify_rename4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NotifyRename {
    /// The old entry.
    pub old_entry: NotifyRemove,
    /// The new entry.
    pub new_entry: NotifyAdd,
}

/// `notify_verifier4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NotifyVerifier {
    /// The old verifier.
    pub old: Verifier,
    /// The new verifier.
    pub new: Verifier,
}

/// `notify_deviceid_delete4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NotifyDeviceDelete {
    /// Layout type.
    pub layout_type: LayoutType,
    /// The device.
    pub device_id: DeviceId,
}

/// `notify_deviceid_change4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NotifyDeviceChange {
    /// Layout type.
    pub layout_type: LayoutType,
    /// The device.
    pub device_id: DeviceId,
    /// Whether the change is already in effect.
    pub immediate: bool,
}

/// `notify4`: the set of notifications, and their values in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Notification {
    /// The types, by [`notify_type`] or [`notify_device_type`].
    pub mask: Bitmap,
    /// The values, whose types the bits define.
    pub values: Opaque<MAX_LAYOUT_BODY>,
}

/// `CB_NOTIFY4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbNotifyArgs {
    /// The directory delegation.
    pub stateid: Stateid,
    /// The directory.
    pub handle: Handle,
    /// The changes.
    pub changes: List<Notification, MAX_NOTIFICATIONS>,
}

/// `CB_NOTIFY4res`.
pub type CbNotifyResult = Outcome<()>;

/// `CB_NOTIFY_DEVICEID4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbNotifyDeviceIdArgs {
    /// The changes.
    pub changes: List<Notification, MAX_NOTIFICATIONS>,
}

/// `CB_NOTIFY_DEVICEID4res`.
pub type CbNotifyDeviceIdResult = Outcome<()>;
