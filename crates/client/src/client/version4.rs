//! Operations that versions 2 and 3 do not have.

use bytes::Bytes;

use super::{Client, Protocol};
use crate::attributes::Changed;
use crate::config::{Caller, Version};
use crate::error::OpError;
use crate::results::{Content, CopyReply, FileHandle, OpenState, Ranges};
use crate::xattr::XattrMode;

/// Defines operations that pass to version 4.
macro_rules! operations {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty, $what:literal;)*) => {
        /// Operations of version 4; most need 4.2. Each fails with the server's status, or the reason of a missing reply, and with
        /// [`OpError::Unsupported`] (EOPNOTSUPP) if the version does not have it.
        impl Client {
            $(
                $(#[$meta])*
                #[allow(clippy::missing_errors_doc)]
                pub async fn $name(&self, caller: &Caller, $($argument: $type),*) -> Result<$result, OpError> {
                    match &self.inner.protocol {
                        Protocol::Nfs3(_) => Err(OpError::Unsupported(match self.version() {
                            Version::V2 => concat!($what, " in NFS version 2"),
                            _ => concat!($what, " in NFS version 3"),
                        })),
                        Protocol::Nfs4(nfs4) => nfs4.$name(caller, $($argument),*).await,
                    }
                }
            )*
        }
    };
}

operations! {
    /// Returns the value of an extended attribute. Names are without `user.` (RFC 8276 §5).
    fn get_xattr(handle: FileHandle, name: &[u8]) -> Bytes, "extended attributes";
    /// Sets an extended attribute to a value of at most [`VALUE_MAX`](crate::xattr::VALUE_MAX) bytes.
    fn set_xattr(handle: FileHandle, name: &[u8], value: Bytes, mode: XattrMode) -> Changed, "extended attributes";
    /// Lists the names of all extended attributes, of at most [`NAMES_MAX`](crate::xattr::NAMES_MAX) bytes.
    fn list_xattrs(handle: FileHandle) -> Vec<Bytes>, "extended attributes";
    /// Removes an extended attribute.
    fn remove_xattr(handle: FileHandle, name: &[u8]) -> Changed, "extended attributes";
    /// Returns the kinds of entries that the lists of [`crate::acl::Acl::Nfs4`] can have, by the bits of `aclsupport`
    /// (RFC 8881 §6.2.1.2): 1 for allow, 2 for deny, 4 for audit, 8 for alarm; 0 if there are no lists.
    fn acl_support(handle: FileHandle) -> u32, "access control lists";
    /// Reserves space for a range of a file; the file grows if the range ends after it.
    fn allocate(handle: FileHandle, state: &OpenState, offset: u64, length: u64) -> Changed, "preallocation";
    /// Turns a range of a file into a hole; the size of the file does not change.
    fn deallocate(handle: FileHandle, state: &OpenState, offset: u64, length: u64) -> Changed, "holes";
    /// Returns the first offset at or after `offset` with this content. `None` if there is none: `offset` is after the last data,
    /// or after the end of the file.
    fn seek(handle: FileHandle, state: &OpenState, offset: u64, content: Content) -> Option<u64>, "SEEK";
    /// Lets a range of the destination share the blocks of the source.
    fn clone_range(
        source: (FileHandle, &OpenState),
        destination: (FileHandle, &OpenState),
        ranges: Ranges,
    ) -> Changed, "CLONE";
    /// Copies a range at the server, which may do so in the background: this waits for its end. Fewer bytes may be copied than
    /// requested. Unstable data need a COMMIT, as those of WRITE. A copy whose caller was dropped is cancelled.
    fn copy(
        source: (FileHandle, &OpenState),
        destination: (FileHandle, &OpenState),
        ranges: Ranges,
    ) -> CopyReply, "COPY";
}
