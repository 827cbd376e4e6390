use vfs::{Attributes, Handle, Result};

use crate::volume::Volume;

impl Volume {
    /// One statx(2) on the cached descriptor; nobody needs a permission for that.
    pub(crate) fn getattr(&self, file: &Handle) -> Result<Attributes> {
        let object = self.object(file)?;
        Ok(self.stat(&object)?.attributes)
    }
}
