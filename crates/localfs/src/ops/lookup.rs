use vfs::{Context, Error, Found, Handle, Result};

use crate::name::Name;
use crate::permission::EXECUTE;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn lookup(&self, context: &Context, directory: &Handle, name: &[u8]) -> Result<Found> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        let name = Name::new(name)?;
        self.enter(context, &directory, EXECUTE)?;
        let object = match self.find(&directory, &name) {
            // Nothing is found in a directory that a local process has removed.
            Err(Error::NotFound) => return Err(self.stat(&directory).err().unwrap_or(Error::NotFound)),
            other => other?,
        };
        let attributes = match self.stat(&object) {
            // Removed between the two.
            Err(Error::Stale) => return Err(Error::NotFound),
            other => other?.attributes,
        };
        let directory = self.stat(&directory)?.attributes;
        Ok(Found { handle: object.handle, attributes, directory })
    }
}
