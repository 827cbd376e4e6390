//! READDIR and READDIRPLUS.
//!
//! Cookies are the positions that the file system itself gives, which the common ones keep stable while entries come
//! and go (ext4: a hash of the name; XFS: place in the directory; btrfs and tmpfs: a counter). So they mean the same
//! after a restart, and the verifier is constant.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use vfs::{Attributes, Context, Entry, Error, Handle, ReadDir, ReadDirEnd, Result, Verifier};

use crate::name::Name;
use crate::object::Object;
use crate::permission::{EXECUTE, READ};
use crate::streams::{Stream, cookie_of, position_of};
use crate::volume::Volume;

/// Comes with every cookie: they do not depend on anything that could change.
const VERIFIER: Verifier = [0; 8];

type Visit<'a> = &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send);

impl Volume {
    pub(crate) fn readdir(
        &self,
        context: &Context,
        directory: &Handle,
        request: ReadDir,
        visit: Visit<'_>,
    ) -> Result<ReadDirEnd> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        position_of(request.cookie)?;
        if request.cookie != 0 && request.verifier != VERIFIER {
            return Err(Error::BadCookie);
        }
        // Attributes from before: what is listed is at least as new.
        let snapshot = self.stat(&directory)?;
        self.require(context, &directory, &snapshot, READ)?;
        let change = snapshot.attributes.change;
        let mut stream = match self.streams.take(&directory.handle, request.cookie) {
            Some(stream) if request.cookie != 0 => stream,
            _ => Stream::new(self.open_directory(&directory)?, request.cookie, change)?,
        };
        if self.has_stable_positions {
            stream.refresh(change)?;
        }
        // Entries are looked at as the caller, who needs permission to search for that.
        let brings_objects = request.plus && self.enter(context, &directory, EXECUTE).is_ok();
        let eof = self.visit_all(&directory, &mut stream, brings_objects, visit)?;
        if !eof && stream.cookie != 0 {
            self.streams.put(directory.handle, stream);
        }
        Ok(ReadDirEnd { eof, verifier: VERIFIER, directory: snapshot.attributes })
    }

    /// True at the end of the directory, false where the visitor has enough.
    fn visit_all(
        &self,
        directory: &Object,
        stream: &mut Stream,
        brings_objects: bool,
        visit: Visit<'_>,
    ) -> Result<bool> {
        loop {
            let Some(entry) = stream.next()? else { return Ok(true) };
            let (length, cookie) = (entry.length, cookie_of(entry.position));
            if !matches!(entry.name, b"." | b"..") {
                let object = if brings_objects { self.object_of_entry(directory, entry.name) } else { None };
                let fileid = object.as_ref().map_or(entry.inode, |(_, attributes)| attributes.fileid);
                if visit(Entry { name: entry.name, fileid, cookie, object }).is_break() {
                    return Ok(false);
                }
            }
            stream.delivered(length, cookie);
        }
    }

    /// Handle and attributes; none for what has gone meanwhile, must not be looked at, or is another file system.
    fn object_of_entry(&self, directory: &Object, name: &[u8]) -> Option<(Handle, Attributes)> {
        let name = Name::new(name).ok()?;
        // One descriptor for both, so that they are of the same object even while names change.
        let fd = self.open_path(directory, &name).ok()?;
        self.examine(fd.as_fd(), directory, &name).ok()
    }
}
