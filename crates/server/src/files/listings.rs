//! READDIR through the [listing cache](crate::listing_cache): replies that are sent again, and replies that are stored.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::types::ClientId;
use vfs::{Access, Attributes, Context, EntriesWatch, Entry, Handle};

use crate::Export;
use crate::listing_cache::{Form, Holder, Key, Lookup, MAX_EXCEPT, Page};
use crate::request::Request;

/// The source of the reply to a READDIR.
pub(crate) enum ListingSource<'r> {
    /// A cached reply, with the current attributes of the directory.
    Cached(bytes::Bytes, Attributes),
    /// The backend; the [`Keeper`], if any, caches the reply.
    Backend(Option<Keeper<'r>>),
}

/// Caches the reply to a READDIR.
pub(crate) struct Keeper<'r> {
    request: &'r Request<'r>,
    key: Key,
    form: Form,
    watch: Arc<dyn EntriesWatch>,
    may_be_kept: bool,
    grants: u64,
    except: Vec<ClientId>,
}

impl Keeper<'_> {
    /// Notes an entry of the backend.
    pub(crate) fn saw(&mut self, entry: &Entry<'_>) {
        self.may_be_kept &= match &entry.object {
            Some((_, attributes)) => self.watch.is_final(attributes),
            None => !self.form.plus,
        };
    }

    /// Excludes a client whose view may differ.
    pub(crate) fn except(&mut self, client: ClientId) {
        if self.except.len() <= MAX_EXCEPT && !self.except.contains(&client) {
            self.except.push(client);
        }
    }

    /// Notes that the reply depends on the caller.
    pub(crate) fn spoil(&mut self) {
        self.may_be_kept = false;
    }

    /// Stores the reply, given in parts.
    pub(crate) fn keep(self, parts: &[&[u8]]) {
        if !self.may_be_kept {
            return;
        }
        let Self { request, grants, except, .. } = self;
        let page = Page { bytes: parts.concat().into(), made: request.now.monotonic, grants, except };
        request.server.listings.put(&self.key, self.form, &self.watch, page);
        request.server.metrics.cached_listings_made.fetch_add(1, Relaxed);
    }
}

/// Returns the source of the reply to a READDIR that passed its own checks. `holder` is the caller if its view may differ.
pub(crate) async fn listing_source<'r>(
    request: &'r Request<'r>,
    export: &Export,
    context: &Context,
    directory: &Handle,
    form: Form,
    holder: Option<Holder>,
) -> ListingSource<'r> {
    let server = request.server;
    let key = Key { export: export.id, directory: *directory };
    let now = request.now.monotonic;
    let watch = match server.listings.find(&key, &form, holder, &request.exports, now) {
        Lookup::Nothing => return ListingSource::Backend(None),
        Lookup::Watched(watch) => watch,
        Lookup::Wanted => {
            // A caller who may not list the directory causes no watch.
            if may_list(export, context, directory).await.is_none() {
                return ListingSource::Backend(None);
            }
            let watch = export.backend.watch_entries(context, directory).await.ok().flatten();
            let Some(watch) = watch else { return ListingSource::Backend(None) };
            server.listings.watch(key, &watch, &request.exports, now);
            watch
        }
        Lookup::Page(watch, page) => {
            let Some(attributes) = may_list(export, context, directory).await else {
                return ListingSource::Backend(None);
            };
            // After the check of the directory, so that the entries are at least as new.
            if watch.is_unchanged() {
                server.metrics.cached_listings_used.fetch_add(1, Relaxed);
                return ListingSource::Cached(page, attributes);
            }
            watch
        }
    };
    if !watch.is_unchanged() {
        server.listings.has_changed(&key, &watch);
        return ListingSource::Backend(None);
    }
    // Before the directory is read.
    let grants = server.state.grants();
    ListingSource::Backend(Some(Keeper {
        request,
        key,
        form,
        watch,
        may_be_kept: true,
        grants,
        except: Vec::new(),
    }))
}

/// Returns the directory's attributes if the caller may list it and look its entries up.
async fn may_list(export: &Export, context: &Context, directory: &Handle) -> Option<Attributes> {
    let all = Access::READ | Access::LOOKUP;
    let (granted, attributes) = export.backend.access(context, directory, all).await.ok()?;
    (granted == all).then_some(attributes)
}

#[cfg(test)]
mod tests;
