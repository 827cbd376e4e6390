//! READDIR through the [listing cache](crate::listing_cache): replies that are sent again, and replies that are stored.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::types::ClientId;
use vfs::{Access, Attributes, Context, EntriesWatch, Entry, Handle};

use crate::Export;
use crate::listing_cache::{Form, Holder, Key, Lookup, MAX_EXCEPT, Page};
use crate::request::Request;

/// How a READDIR is answered.
pub(crate) enum Way<'r> {
    /// By a cached reply, with the current attributes of the directory.
    Tell(bytes::Bytes, Attributes),
    /// By reading the directory; the keeper, if any, caches the reply.
    Look(Option<Keeper<'r>>),
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
    /// Notes an entry as the backend shows it.
    pub(crate) fn saw(&mut self, entry: &Entry<'_>) {
        self.may_be_kept &= match &entry.object {
            Some((_, attributes)) => self.watch.is_final(attributes),
            None => !self.form.plus,
        };
    }

    /// Excludes a client that may have to see something else.
    pub(crate) fn except(&mut self, client: ClientId) {
        if self.except.len() <= MAX_EXCEPT && !self.except.contains(&client) {
            self.except.push(client);
        }
    }

    /// Notes that the reply holds something that only the caller sees.
    pub(crate) fn spoil(&mut self) {
        self.may_be_kept = false;
    }

    /// Stores the reply, given in parts.
    pub(crate) fn keep(self, told: &[&[u8]]) {
        if !self.may_be_kept {
            return;
        }
        let Self { request, grants, except, .. } = self;
        let page = Page { bytes: told.concat().into(), made: request.now.monotonic, grants, except };
        request.server.listings.put(&self.key, self.form, &self.watch, page);
        request.server.metrics.kept_listings_made.fetch_add(1, Relaxed);
    }
}

/// Returns how to answer a READDIR that passed its own checks. `holder` is the caller if it may see something else than others.
pub(crate) async fn way<'r>(
    request: &'r Request<'r>,
    export: &Export,
    context: &Context,
    directory: &Handle,
    form: Form,
    holder: Option<Holder>,
) -> Way<'r> {
    let server = request.server;
    let key = Key { export: export.id, directory: *directory };
    let now = request.now.monotonic;
    let watch = match server.listings.find(&key, &form, holder, &request.exports, now) {
        Lookup::Nothing => return Way::Look(None),
        Lookup::Watched(watch) => watch,
        Lookup::Wanted => {
            // A caller who may not list the directory causes no watch.
            if may_list(export, context, directory).await.is_none() {
                return Way::Look(None);
            }
            let watch = export.backend.watch_entries(context, directory).await.ok().flatten();
            let Some(watch) = watch else { return Way::Look(None) };
            server.listings.watch(key, &watch, &request.exports, now);
            watch
        }
        Lookup::Page(watch, page) => {
            let Some(attributes) = may_list(export, context, directory).await else {
                return Way::Look(None);
            };
            // After the check of the directory, so that the entries are at least as new.
            if watch.is_unchanged() {
                server.metrics.kept_listings_told.fetch_add(1, Relaxed);
                return Way::Tell(page, attributes);
            }
            watch
        }
    };
    if !watch.is_unchanged() {
        server.listings.has_changed(&key, &watch);
        return Way::Look(None);
    }
    // Before the directory is read.
    let grants = server.state.grants();
    Way::Look(Some(Keeper { request, key, form, watch, may_be_kept: true, grants, except: Vec::new() }))
}

/// Returns the directory's attributes if the caller may list it and look its entries up.
async fn may_list(export: &Export, context: &Context, directory: &Handle) -> Option<Attributes> {
    let all = Access::READ | Access::LOOKUP;
    let (granted, attributes) = export.backend.access(context, directory, all).await.ok()?;
    (granted == all).then_some(attributes)
}

#[cfg(test)]
mod tests;
