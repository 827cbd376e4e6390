//! READDIR and READDIRPLUS.
//!
//! Cookies are the positions that the file system itself gives, which the common ones keep stable while entries come
//! and go (ext4: a hash of the name; XFS: place in the directory; btrfs and tmpfs: a counter). So they mean the same
//! after a restart, and the verifier is constant.
//!
//! The visitor belongs to the connection's thread, and is called there. What it needs and memory has not, entries or
//! their attributes, the pool fetches for many of them at once.

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

/// Comes with every cookie: they do not depend on anything that could change.
const VERIFIER: Verifier = [0; 8];

/// Part of a volume's descriptors that may be streams.
const STREAMS_PART: usize = 4;
/// Entries whose attributes are fetched at once on the pool: about as many as fill a reply.
const FETCHED_ENTRIES: usize = 128;

type Visit<'a> = &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send);

/// A listing on its way, on whichever thread.
#[derive(Debug)]
struct Listing {
    directory: Arc<Object>,
    attributes: Attributes,
    stream: Stream,
    /// Whether handles and attributes are wanted.
    plus: bool,
    /// Those of the next entries, `.` and `..` left out.
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
        let later = || {
            let (context, directory) = (context.clone(), *directory);
            move |volume: &Arc<Self>| volume.begin_listing(&context, &directory, request)
        };
        let now = || self.begin_listing(context, directory, request);
        self.run_op((OpKind::Read, context.peer), now, later, move |mut listing| {
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
        // Attributes from before: what is listed is at least as new.
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

    /// OpKind by turn: the pool fetches, the visitor is called here.
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

    /// Has at least the next entry fetched.
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

    /// Entries are looked at as the caller, who needs permission to search for that.
    fn wants_objects(&self, context: &Context, listing: &Listing) -> bool {
        listing.plus && self.enter(context, &listing.directory, EXECUTE).is_ok()
    }

    /// [`visit_entries`](Self::visit_entries) without waiting; `None` where it would.
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

    /// True at the end of the directory, false where the visitor has enough. Where it gives up, it can go on later.
    fn visit_entries(&self, context: &Context, listing: &mut Listing, visit: Visit<'_>) -> Result<bool> {
        let view = self.wants_objects(context, listing).then(|| self.view(&listing.directory));
        let unlisted = self.unlisted();
        let Listing { directory, stream, fetched, .. } = listing;
        loop {
            if stream.is_used_up() && !self.is_in_memory && !directory.cache_history.is_known_cached() {
                // Whoever has seen all of a directory within the last minute will find it in memory.
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

    /// How the entries of `directory` are looked at from now on.
    fn view(&self, directory: &Arc<Object>) -> View {
        View {
            directory: Arc::clone(directory),
            file: directory.file(),
            hasher: self.cached_names.hasher(directory),
            present_ns: present_ns(),
        }
    }

    /// Handle and attributes; none for what has gone meanwhile, must not be looked at, or is another file system.
    ///
    /// # Errors
    /// See [`nonblocking::wait`].
    fn object_of_entry(&self, view: &View, name: &CStr) -> Result<Option<(Handle, Attributes)>> {
        let is_name_cached =
            self.is_in_memory || self.cached_names.contains(view.hasher.hash_name(name.to_bytes()));
        if is_name_cached && let Ok(Some(seen)) = self.stat_name(view.file.as_fd(), name, view.present_ns) {
            return Ok(Some(seen));
        }
        self.object_of_name(view, name)
    }

    /// The same of what may have to be fetched, or was made since the listing began.
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

/// What the looks at many entries of a directory have in common.
struct View {
    directory: Arc<Object>,
    /// Lent for all of them.
    file: Arc<OpenFile>,
    hasher: NameHasher,
    /// The clock that files get their times from, before the first look.
    present_ns: u64,
}

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
