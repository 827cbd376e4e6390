//! Notifications from the file system to the kernel.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, notify};
use crate::channel::Channel;
use crate::flags::Capabilities;
use crate::negotiate::State;
use crate::types::{NAME_MAX, NodeId};

/// Invalidates caches of the kernel.
///
/// A call can wait for locks that a request under way holds (a READ locks its pages, an operation on names its directory). It must be made
/// by a thread on which no request's answer depends.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<Channel>,
    can_prune: bool,
    can_expire: bool,
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>, state: &State) -> Self {
        Self {
            channel,
            can_prune: state.minor >= abi::MINOR_OF_PRUNE,
            can_expire: state.capabilities.contains(Capabilities::HAS_EXPIRE_ONLY),
        }
    }

    /// Returns whether the kernel has [`prune`](Self::prune): Linux 6.18.
    #[must_use]
    pub fn can_prune(&self) -> bool {
        self.can_prune
    }

    /// Returns whether the kernel has [`expire_entry`](Self::expire_entry): Linux 6.2.
    #[must_use]
    pub fn can_expire(&self) -> bool {
        self.can_expire
    }

    /// Drops attributes and the pages of a range. `length` 0 means to the end of the file; a negative `offset` drops attributes only.
    ///
    /// # Errors
    /// An error of the device. An inode that the kernel does not know is none.
    pub fn invalidate_inode(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()> {
        let message = abi::NotifyInvalInodeOut { ino: node.0, off: offset, len: length };
        known(self.channel.notify(notify::INVAL_INODE, &[message.as_bytes()]))
    }

    /// Drops a name of a directory. If it was the last reference to its inode, the kernel forgets that.
    ///
    /// # Errors
    /// As [`invalidate_inode`](Self::invalidate_inode); EINVAL if the name is empty or longer than [`NAME_MAX`].
    pub fn invalidate_entry(&self, parent: NodeId, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel look up a name before it uses it again, without dropping entries below. Other kernels than
    /// those that [`can_expire`](Self::can_expire) drop it, as [`invalidate_entry`](Self::invalidate_entry).
    ///
    /// # Errors
    /// As [`invalidate_entry`](Self::invalidate_entry).
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, abi::EXPIRE_ONLY)
    }

    fn entry(&self, parent: NodeId, name: &[u8], flags: u32) -> io::Result<()> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Errno::INVAL.into());
        }
        let message = abi::NotifyInvalEntryOut { parent: parent.0, namelen: name.len() as u32, flags };
        known(self.channel.notify(notify::INVAL_ENTRY, &[message.as_bytes(), name, b"\0"]))
    }

    /// Makes the kernel forget those of the inodes that no program uses.
    ///
    /// # Errors
    /// An error of the device; EINVAL if the kernel does not have it.
    pub fn prune(&self, nodes: &[NodeId]) -> io::Result<()> {
        let count = u32::try_from(nodes.len()).map_err(|_| Errno::INVAL)?;
        let message = abi::NotifyPruneOut { count, padding: 0, spare: 0 };
        let nodes: Vec<u64> = nodes.iter().map(|node| node.0).collect();
        known(self.channel.notify(notify::PRUNE, &[message.as_bytes(), nodes.as_bytes()]))
    }

    /// Makes the kernel send all unanswered requests again.
    pub(crate) fn resend(&self) -> io::Result<()> {
        Ok(self.channel.notify(notify::RESEND, &[])?)
    }
}

/// An inode or name that the kernel does not have needs no invalidation.
fn known(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
