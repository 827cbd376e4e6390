//! Changes of a directory's entries, and the notifications that tell holders of its delegations of them (RFC 8881 §20.4).

use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::callback::notify::{
    Notification, NotifyAdd, NotifyEntry, NotifyRemove, NotifyRename, notify_type,
};
use protocol::nfs4::types::{Bitmap, Component};
use xdr::{Encode, List, Opaque, Writer};

/// The supported notifications. Those of attributes are not supported: each WRITE would cost a callback.
pub(crate) const SUPPORTED_NOTIFICATIONS: Bitmap =
    Bitmap::of(&[notify_type::REMOVE_ENTRY, notify_type::ADD_ENTRY, notify_type::RENAME_ENTRY]);

/// A kind of change of a directory's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryChangeKind {
    /// An entry is added, and may replace another.
    Add,
    /// An entry is removed.
    Remove,
    /// An entry is renamed within the directory, and may replace another.
    Rename,
}

/// A change of a directory's entries.
#[derive(Debug, Clone, Copy)]
pub enum EntryChange<'n> {
    /// An entry was added.
    Added {
        /// Its name.
        name: &'n [u8],
        /// Whether it replaced another entry.
        replaced: bool,
    },
    /// An entry was removed.
    Removed {
        /// Its name.
        name: &'n [u8],
    },
    /// An entry was renamed.
    Renamed {
        /// The name before.
        from: &'n [u8],
        /// The name after.
        to: &'n [u8],
        /// Whether it replaced another entry.
        replaced: bool,
    },
}

impl EntryChangeKind {
    /// Returns the `notify_type4` of its notification.
    pub(crate) fn notify_type(self) -> u32 {
        match self {
            Self::Add => notify_type::ADD_ENTRY,
            Self::Remove => notify_type::REMOVE_ENTRY,
            Self::Rename => notify_type::RENAME_ENTRY,
        }
    }
}

impl EntryChange<'_> {
    pub(crate) fn kind(&self) -> EntryChangeKind {
        match self {
            Self::Added { .. } => EntryChangeKind::Add,
            Self::Removed { .. } => EntryChangeKind::Remove,
            Self::Renamed { .. } => EntryChangeKind::Rename,
        }
    }

    /// Returns the notification; `None` if a name is longer than any that a client can have sent.
    pub(crate) fn notification(&self) -> Option<Notification> {
        let mut values = Writer::new();
        match *self {
            Self::Added { name, replaced } => added(name, replaced)?.encode(&mut values),
            Self::Removed { name } => removed(name)?.encode(&mut values),
            Self::Renamed { from, to, replaced } => {
                let renamed = NotifyRename { old_entry: removed(from)?, new_entry: added(to, replaced)? };
                renamed.encode(&mut values);
            }
        }
        let values = Opaque::new(values.into_bytes()).ok()?;
        Some(Notification { mask: Bitmap::of(&[self.kind().notify_type()]), values })
    }
}

/// Returns an entry without attributes, as the grant announced.
fn entry(name: &[u8]) -> Option<NotifyEntry> {
    let file = Component::new(name.to_vec()).ok()?;
    Some(NotifyEntry { file, attributes: FileAttributes::default() })
}

/// Returns the notification of a removed entry. Its cookie is unknown; 0 belongs to no entry (§18.23.3), and the name identifies it.
fn removed(name: &[u8]) -> Option<NotifyRemove> {
    Some(NotifyRemove { old_entry: entry(name)?, old_entry_cookie: 0 })
}

fn added(name: &[u8], replaced: bool) -> Option<NotifyAdd> {
    let old_entry = if replaced { List::new(vec![removed(name)?]).ok()? } else { List::default() };
    Some(NotifyAdd {
        old_entry,
        new_entry: entry(name)?,
        new_entry_cookie: List::default(),
        previous_entry: List::default(),
        last_entry: false,
    })
}
