//! Exclusive creation in version 2. Its CREATE takes an existing file, but LINK fails if the name exists: the file is created under a
//! name that only this call uses, and linked (open(2) on `O_EXCL`).

use protocol::nfs3::{CreateArgs, CreateHow};

use super::super::Nfs3;
use super::super::convert::{entry_of, set_attributes};
use crate::attributes::SetAttributes;
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, Opened};

impl Nfs3 {
    /// Creates a file that must be missing. No other call may have the same verifier.
    pub(super) async fn create_by_link(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        verifier: [u8; 8],
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        // A client that ends in between leaves this name. Administrators remove old names of this form.
        let unique = format!(".nfs{:016x}", u64::from_be_bytes(verifier)).into_bytes();
        let how = CreateHow::Unchecked(set_attributes(set));
        let created = self.call(caller, &CreateArgs { where_: entry_of(&directory, &unique)?, how }).await?;
        let mut opened = self.opened(caller, directory, &unique, &created).await?;
        let linked = self.link(caller, opened.object.handle, directory, name).await;
        // The file exists once it is linked, also if the other name remains.
        let _ = self.remove_file(caller, directory, &unique).await;
        linked?;
        // Handles of some servers of version 2 end with the name by which they were returned.
        opened.object = self.lookup(caller, directory, name).await?;
        Ok(opened)
    }
}
