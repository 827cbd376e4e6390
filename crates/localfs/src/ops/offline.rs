//! Questions of the server itself about a file whose content may be elsewhere: its mark, and its path.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use vfs::{Error, Handle, Op, Peer, Result};

use crate::errno::translate;
use crate::volume::Volume;
use crate::xattr_target::Target;

impl Volume {
    /// Returns whether an object has an extended attribute; `name` is the full name.
    pub(crate) fn has_xattr<'a>(self: &'a Arc<Self>, peer: Peer, file: &Handle, name: &CStr) -> Op<'a, bool> {
        let make_job = || {
            let (file, name): (_, CString) = (*file, name.to_owned());
            move |volume: &Arc<Self>| volume.has_xattr_now(&file, &name)
        };
        self.run_read(peer, || self.has_xattr_now(file, name), make_job)
    }

    fn has_xattr_now(&self, file: &Handle, name: &CStr) -> Result<bool> {
        let object = self.object(file)?;
        self.act_as_server();
        // Without a buffer only the length is returned.
        match Target::of(object.file()).get(name, &mut []) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(translate(error)),
        }
    }

    /// Returns a descriptor of an object, with O_PATH, and a path that leads to it now. Blocks.
    pub(crate) fn named(&self, file: &Handle) -> Result<(OwnedFd, PathBuf)> {
        let object = self.object(file)?;
        let open = object.file();
        self.act_as_server();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(open.name_in_proc(), flags, Mode::empty()).map_err(translate)?;
        let path = rustix::fs::readlink(open.name_in_proc(), Vec::new()).map_err(translate)?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes()));
        // The path of a removed file has a suffix, and may be another file's.
        let (of_path, own) = (rustix::fs::lstat(&path), rustix::fs::fstat(&descriptor).map_err(translate)?);
        match of_path {
            Ok(found) if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino) => Ok((descriptor, path)),
            Ok(_) | Err(Errno::NOENT) => Err(Error::Stale),
            Err(error) => Err(translate(error)),
        }
    }
}
