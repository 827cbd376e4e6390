use std::sync::Arc;

use bytes::Bytes;
use vfs::{Attributes, Error, FileKind, Handle, Op, Peer, Result};

use crate::errno::translate;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn readlink<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        link: &Handle,
    ) -> Op<'a, (Bytes, Attributes)> {
        let make_job = || {
            let link = *link;
            move |volume: &Arc<Self>| volume.readlink_now(&link)
        };
        self.run_read(peer, || self.readlink_now(link), make_job)
    }

    fn readlink_now(&self, link: &Handle) -> Result<(Bytes, Attributes)> {
        let object = self.object(link)?;
        if object.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let text = object.with_fd(|fd| rustix::fs::readlinkat(fd, c"", Vec::new())).map_err(translate)?;
        Ok((Bytes::from(text.into_bytes()), self.stat(&object)?.attributes))
    }
}
