use bytes::Bytes;
use vfs::{Attributes, Error, FileKind, Handle, Result};

use crate::errno::translate;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn readlink(&self, link: &Handle) -> Result<(Bytes, Attributes)> {
        let object = self.object(link)?;
        if object.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let text = object.with_fd(|fd| rustix::fs::readlinkat(fd, c"", Vec::new())).map_err(translate)?;
        Ok((Bytes::from(text.into_bytes()), self.stat(&object)?.attributes))
    }
}
