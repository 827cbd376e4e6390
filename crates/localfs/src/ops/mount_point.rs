use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use vfs::{Error, Result};

use crate::errno::translate;
use crate::mounts::MountPoint;
use crate::name::Name;
use crate::streams;
use crate::sys;
use crate::volume::Volume;

impl Volume {
    /// Returns the mount point at the path `below` the exported directory, which goes through this file system.
    ///
    /// # Errors
    /// Those of looking it up.
    pub(crate) fn mount_point(&self, below: &Path) -> Result<MountPoint> {
        self.act_as_server();
        let name = below.file_name().ok_or(Error::BadName)?;
        let mut directory = Arc::clone(&self.root);
        for part in below.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(part) = part else { return Err(Error::BadName) };
            directory = self.find(&directory, &Name::new(part.as_bytes())?)?;
        }
        self.sync_index()?;
        let stream = self.open_directory(&directory)?;
        let mut buffer = vec![0; streams::BUFFER_BYTES];
        loop {
            let filled = sys::getdents64(stream.as_fd(), &mut buffer).map_err(translate)?;
            if filled == 0 {
                return Err(Error::NotFound);
            }
            // Only a listing has the number of the covered directory.
            let mut entries = streams::entries(&buffer[..filled]);
            if let Some(entry) = entries.find(|entry| entry.name.to_bytes() == name.as_bytes()) {
                return Ok(MountPoint { directory: directory.handle, covered_fileid: entry.inode });
            }
        }
    }
}
