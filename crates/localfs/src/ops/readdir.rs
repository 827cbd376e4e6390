//! READDIR and READDIRPLUS.
//!
//! Cookies are the positions of the file system itself, which common ones keep stable while entries come and go
//! (ext4: a hash of the name; XFS: the place in the directory; btrfs and tmpfs: a counter). So they are valid after a
//! restart, and the verifier is constant.
//!
//! The visitor is called on the connection's thread. The pool reads entries and attributes that are not cached, many
//! at once.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

use vfs::{Attributes, Context, Entry, Error, Handle, Op, ReadDir, ReadDirEnd, Result, Verifier};

use crate::blocking::OpKind;
use crate::cached_names::NameHasher;
use crate::change::present_ns;
use crate::name::Name;
use crate::nonblocking::{self, InPlace};
use crate::object::{Object, OpenFile};
use crate::permission::{EXECUTE, READ};
use crate::streams::{Stream, cookie_of, position_of};
use crate::volume::Volume;

/// Constant, because cookies do not depend on anything that changes.
const VERIFIER: Verifier = [0; 8];

/// Part of a volume's descriptors that may be streams.
const STREAMS_PART: usize = 4;
/// Entries whose attributes the pool reads at once: about as many as fill a reply.
const FETCHED_ENTRIES: usize = 128;

type Visit<'a> = &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send);

/// A listing in progress.
#[derive(Debug)]
struct Listing {
    directory: Arc<Object>,
    attributes: Attributes,
    stream: Stream,
    /// Whether handles and attributes are wanted.
    plus: bool,
    /// Handles and attributes of the next entries, without `.` and `..`.
    fetched: VecDeque<Option<(Handle, Attributes)>>,
}

impl Volume {
    pub(crate) fn readdir<'a>(
        self: &'a Arc<Self>,
        context: &'a Context,
        directory: &Handle,
        request: ReadDir,
        visit: Visit<'a>,
    ) -> Op<'a, ReadDirEnd> {
        let make_job = || {
            let (context, directory) = (context.clone(), *directory);
            move |volume: &Arc<Self>| volume.begin_listing(&context, &directory, request)
        };
        let in_place = || self.begin_listing(context, directory, request);
        self.run_op((OpKind::Read, context.peer), in_place, make_job, move |mut listing| {
            match self.visit_in_place(context, &mut listing, visit) {
                Some(listed) => listed.map(|eof| self.end_listing(listing, eof)).into(),
                None => Op::pending(self.list_with_pool(context, listing, visit)),
            }
        })
    }

    fn begin_listing(&self, context: &Context, directory: &Handle, request: ReadDir) -> Result<Listing> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        position_of(request.cookie)?;
        if request.cookie != 0 && request.verifier != VERIFIER {
            return Err(Error::BadCookie);
        }
        // Read first: the entries are at least as new.
        let snapshot = self.stat(&directory)?;
        self.require(context, &directory, &snapshot, READ)?;
        let change = snapshot.attributes.change;
        let mut stream = match self.streams.take(&directory.handle, request.cookie) {
            Some(stream) if request.cookie != 0 => stream,
            _ => {
                let open = (self.open_directory(&directory)?, self.descriptors.count());
                Stream::new(open, request.cookie, change)?
            }
        };
        if self.has_stable_positions {
            stream.refresh(change)?;
        }
        let (attributes, plus) = (snapshot.attributes, request.plus);
        Ok(Listing { directory, attributes, stream, plus, fetched: VecDeque::new() })
    }

    fn end_listing(&self, listing: Listing, eof: bool) -> ReadDirEnd {
        if eof {
            listing.directory.cache_history.mark_cached();
        } else if listing.stream.cookie != 0 {
            let allowed = self.descriptors.share() / STREAMS_PART;
            self.streams.put(listing.directory.handle, listing.stream, allowed);
        }
        ReadDirEnd { eof, verifier: VERIFIER, directory: listing.attributes }
    }

    /// Alternates between the pool, which reads entries, and the visitor, which is called here.
    async fn list_with_pool(
        self: &Arc<Self>,
        context: &Context,
        mut listing: Listing,
        visit: Visit<'_>,
    ) -> Result<ReadDirEnd> {
        loop {
            let caller = context.clone();
            let fetch = move |volume: &Arc<Self>| volume.fetch_entries(&caller, listing);
            listing = self.read_on_pool(context.peer, fetch).await?;
            if let Some(listed) = self.visit_in_place(context, &mut listing, visit) {
                return listed.map(|eof| self.end_listing(listing, eof));
            }
        }
    }

    /// Reads at least the next entry.
    fn fetch_entries(&self, context: &Context, mut listing: Listing) -> Result<Listing> {
        if listing.stream.is_used_up() {
            listing.stream.fill()?;
        }
        if self.wants_objects(context, &listing) {
            let view = self.view(&listing.directory);
            let names = listing.stream.rest().map(|entry| entry.name).filter(|name| !is_dot(name));
            let fetch = |name| self.object_of_entry(&view, name);
            listing.fetched = names.take(FETCHED_ENTRIES).map(fetch).collect::<Result<_>>()?;
        }
        Ok(listing)
    }

    /// Entries are read as the caller, who needs permission to search.
    fn wants_objects(&self, context: &Context, listing: &Listing) -> bool {
        listing.plus && self.enter(context, &listing.directory, EXECUTE).is_ok()
    }

    /// Calls [`visit_entries`](Self::visit_entries) without blocking; `None` if it would block.
    fn visit_in_place(
        &self,
        context: &Context,
        listing: &mut Listing,
        visit: Visit<'_>,
    ) -> Option<Result<bool>> {
        let section = InPlace::begin(0);
        let listed = self.visit_entries(context, listing, visit);
        section.end().then_some(listed)
    }

    /// Returns true at the end of the directory, false if the visitor stops. After that, it can be
    /// called again.
    fn visit_entries(&self, context: &Context, listing: &mut Listing, visit: Visit<'_>) -> Result<bool> {
        let view = self.wants_objects(context, listing).then(|| self.view(&listing.directory));
        let unlisted = self.unlisted();
        let Listing { directory, stream, fetched, .. } = listing;
        loop {
            if stream.is_used_up() && !self.is_in_memory && !directory.cache_history.is_known_cached() {
                // A directory that was listed completely within the last minute counts as cached.
                nonblocking::require_blocking()?;
            }
            let Some(entry) = stream.next()? else { return Ok(true) };
            let (length, cookie) = (entry.length, cookie_of(entry.position));
            if !is_dot(entry.name) {
                let object = match (fetched.pop_front(), &view) {
                    (Some(fetched), _) => fetched,
                    (None, Some(view)) => self.object_of_entry(view, entry.name)?,
                    (None, None) => None,
                };
                if self.hides_entry(unlisted.as_deref(), directory, &entry) {
                    stream.delivered(length, cookie);
                    continue;
                }
                let fileid = object.as_ref().map_or(entry.inode, |(_, attributes)| attributes.fileid);
                if visit(Entry { name: entry.name.to_bytes(), fileid, cookie, object }).is_break() {
                    return Ok(false);
                }
            }
            stream.delivered(length, cookie);
        }
    }

    /// Returns a view for reading the entries of `directory` from now on.
    fn view(&self, directory: &Arc<Object>) -> View {
        View {
            directory: Arc::clone(directory),
            file: directory.file(),
            hasher: self.cached_names.hasher(directory),
            present_ns: present_ns(),
        }
    }

    /// Returns handle and attributes; `None` for an entry that was removed meanwhile, must not be seen, or is a mount
    /// point.
    ///
    /// # Errors
    /// See [`nonblocking::require_blocking`].
    fn object_of_entry(&self, view: &View, name: &CStr) -> Result<Option<(Handle, Attributes)>> {
        let is_name_cached =
            self.is_in_memory || self.cached_names.contains(view.hasher.hash_name(name.to_bytes()));
        if is_name_cached && let Ok(Some(seen)) = self.stat_name(view.file.as_fd(), name, view.present_ns) {
            return Ok(Some(seen));
        }
        self.object_of_name(view, name)
    }

    /// As [`Self::object_of_entry`], for an entry that may not be cached, or was created since the listing began.
    fn object_of_name(&self, view: &View, name: &CStr) -> Result<Option<(Handle, Attributes)>> {
        let View { directory, file, .. } = view;
        let Ok(name) = Name::new(name.to_bytes()) else { return Ok(None) };
        let mut opened = self.require_cached(directory, &name);
        if let Ok(None) = opened {
            if let Ok(Some(seen)) = self.stat_name(file.as_fd(), name.as_c_str(), present_ns()) {
                return Ok(Some(seen));
            }
            opened = self.open_path(directory, &name).map(Some);
        }
        // One descriptor for both, so that they are of the same object even while names change.
        match opened {
            Ok(fd) => Ok(fd.and_then(|fd| self.identify_opened(fd.as_fd(), directory, &name).ok())),
            Err(error) if nonblocking::would_block() => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// State that reading many entries of a directory shares.
struct View {
    directory: Arc<Object>,
    /// The directory's descriptor.
    file: Arc<OpenFile>,
    hasher: NameHasher,
    /// The clock of file times, before the first entry is read.
    present_ns: u64,
}

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
