//! READDIR through the [listing cache](crate::listing_cache): what is sent again, and what is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::types::ClientId;
use vfs::{Access, Attributes, Context, EntriesWatch, Entry, Handle};

use crate::Export;
use crate::listing_cache::{Form, Found, Holder, Key, MAX_EXCEPT, Page};
use crate::request::Request;

/// What a READDIR does.
pub(crate) enum Way<'r> {
    /// Tells this again, and this of the directory.
    Tell(bytes::Bytes, Attributes),
    /// Looks, and keeps what it tells where there is a keeper.
    Look(Option<Keeper<'r>>),
}

/// Keeps what a READDIR tells.
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
    /// An entry as it is.
    pub(crate) fn saw(&mut self, entry: &Entry<'_>) {
        self.may_be_kept &= match &entry.object {
            Some((_, attributes)) => self.watch.is_final(attributes),
            None => !self.form.plus,
        };
    }

    /// This client may have to be told otherwise.
    pub(crate) fn except(&mut self, client: ClientId) {
        if self.except.len() <= MAX_EXCEPT && !self.except.contains(&client) {
            self.except.push(client);
        }
    }

    /// Something was told that is the caller's own.
    pub(crate) fn spoil(&mut self) {
        self.may_be_kept = false;
    }

    /// What was told, one part behind the other.
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

/// How a READDIR that passed its own checks goes on; `holder` where the caller may be told otherwise than others.
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
        Found::Nothing => return Way::Look(None),
        Found::Watched(watch) => watch,
        Found::Wanted => {
            // Whoever may not list it shall not have it watched.
            if may_list(export, context, directory).await.is_none() {
                return Way::Look(None);
            }
            let watch = export.backend.watch_entries(context, directory).await.ok().flatten();
            let Some(watch) = watch else { return Way::Look(None) };
            server.listings.watch(key, &watch, &request.exports, now);
            watch
        }
        Found::Page(watch, page) => {
            let Some(attributes) = may_list(export, context, directory).await else {
                return Way::Look(None);
            };
            // Behind the look at the directory: what is told of the entries is at least as new.
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
    // Before anything is looked at.
    let grants = server.state.grants();
    Way::Look(Some(Keeper { request, key, form, watch, may_be_kept: true, grants, except: Vec::new() }))
}

/// The directory's attributes, where the caller may list it and look its entries up.
async fn may_list(export: &Export, context: &Context, directory: &Handle) -> Option<Attributes> {
    let all = Access::READ | Access::LOOKUP;
    let (granted, attributes) = export.backend.access(context, directory, all).await.ok()?;
    (granted == all).then_some(attributes)
}

#[cfg(test)]
mod tests;
