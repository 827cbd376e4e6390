use std::sync::Arc;

use rustix::fs::StatVfs;
use vfs::{Attributes, Context, FsStat, Handle, Op, Result};

use crate::errno::translate;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn statfs<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
    ) -> Op<'a, (FsStat, Attributes)> {
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.statfs_now(&context, &file)
        };
        self.run_read(context.peer, || self.statfs_now(context, file), make_job)
    }

    fn statfs_now(&self, context: &Context, file: &Handle) -> Result<(FsStat, Attributes)> {
        let object = self.object(file)?;
        let space = object.with_fd(|fd| rustix::fs::fstatvfs(fd)).map_err(translate)?;
        Ok((translate_space(&space, context.credentials.is_root()), self.stat(&object)?.attributes))
    }
}

/// Converts the numbers. Space that is reserved for root is not available to other users.
fn translate_space(space: &StatVfs, is_root: bool) -> FsStat {
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    FsStat {
        total_bytes: bytes(space.f_blocks),
        free_bytes: bytes(space.f_bfree),
        available_bytes: bytes(if is_root { space.f_bfree } else { space.f_bavail }),
        total_files: space.f_files,
        free_files: space.f_ffree,
        available_files: if is_root { space.f_ffree } else { space.f_favail },
    }
}
