use std::sync::Arc;

use vfs::{Attributes, Handle, Op, Peer, Result};

use crate::volume::Volume;

impl Volume {
    /// One statx(2) on the cached descriptor; nobody needs a permission for that.
    pub(crate) fn getattr<'a>(self: &'a Arc<Self>, peer: Peer, file: &Handle) -> Op<'a, Attributes> {
        // The most frequent of all: what is open needs no turn.
        if let Some(object) = self.objects.get(file) {
            return self.stat(&object).map(|seen| seen.attributes).into();
        }
        let later = || {
            let file = *file;
            move |volume: &Arc<Self>| volume.getattr_now(&file)
        };
        self.run_read(peer, || self.getattr_now(file), later)
    }

    fn getattr_now(&self, file: &Handle) -> Result<Attributes> {
        let object = self.object(file)?;
        Ok(self.stat(&object)?.attributes)
    }
}
