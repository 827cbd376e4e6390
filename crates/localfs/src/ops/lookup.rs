use std::sync::Arc;

use vfs::{Context, Error, Found, Handle, Op, Result};

use crate::name::Name;
use crate::permission::EXECUTE;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn lookup<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        directory: &Handle,
        name: &[u8],
    ) -> Op<'a, Found> {
        let make_job = || {
            let (context, directory, name) = (context.clone(), *directory, name.to_vec());
            move |volume: &Arc<Self>| volume.lookup_now(&context, &directory, &name)
        };
        self.run_read(context.peer, || self.lookup_now(context, directory, name), make_job)
    }

    fn lookup_now(&self, context: &Context, directory: &Handle, name: &[u8]) -> Result<Found> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        let name = Name::new(name)?;
        self.enter(context, &directory, EXECUTE)?;
        // Fails if a local process has removed the directory.
        let around = self.stat_for_lookup(context, &directory)?;
        let (object, seen) = self.find_with_attributes(&directory, &name)?;
        let attributes = match seen {
            Some(attributes) => attributes,
            None => match self.stat(&object) {
                // Removed in between.
                Err(Error::Stale) => return Err(Error::NotFound),
                other => other?.attributes,
            },
        };
        Ok(Found { handle: object.handle, attributes, directory: around })
    }
}
