use std::sync::Arc;

use vfs::{Attributes, Handle, Op, Peer, Result};

use crate::volume::Volume;

impl Volume {
    /// Reads the attributes through the cached descriptor; this needs no permission.
    pub(crate) fn getattr<'a>(self: &'a Arc<Self>, peer: Peer, file: &Handle) -> Op<'a, Attributes> {
        // The most frequent case: an open object is read without [`Volume::run_read`].
        if let Some(object) = self.objects.get(file) {
            return self.stat(&object).map(|seen| seen.attributes).into();
        }
        let make_job = || {
            let file = *file;
            move |volume: &Arc<Self>| volume.getattr_now(&file)
        };
        self.run_read(peer, || self.getattr_now(file), make_job)
    }

    fn getattr_now(&self, file: &Handle) -> Result<Attributes> {
        let object = self.object(file)?;
        Ok(self.stat(&object)?.attributes)
    }
}
