use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::gss::Gss;
use crate::listing_cache::ListingCache;
use crate::remote_read::Fetches;
use crate::replay::crash_replay;
use crate::replay::crash_replay::CallLog;
use crate::replay::reply_cache::ReplyCache;
use crate::state::{Records, State};
use crate::{ExportTable, LOG_LINES_A_SECOND, Metrics, Observer, Settings, Throttle};

/// The part of the reply cache, as a divisor, for version 4.0's WRITEs.
const WRITE_REPLY_SHARE: usize = 8;

/// The data of a server that its operations use. [`Server`](crate::Server) adds the data that dispatch and the driver need.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) exports: ArcSwap<ExportTable>,
    pub(crate) metrics: Metrics,
    pub(crate) reply_cache: ReplyCache,
    /// Replies to WRITEs of version 4.0. They have a cache of their own, so that one client's stream of WRITEs does not evict
    /// the REMOVEs and RENAMEs of others.
    pub(crate) write_reply_cache: ReplyCache,
    /// Clients, sessions, opens, locks and delegations.
    pub(crate) state: State,
    /// Replies to READDIR that may be sent again.
    pub(crate) listings: ListingCache,
    /// READs of copies from other servers.
    pub(crate) fetches: Fetches,
    /// The key of the digests that identify calls; see [`crash_replay::secret`].
    pub(crate) call_secret: [u8; 16],
    /// The log of non-idempotent calls that outlives the process.
    pub(crate) journal: Option<CallLog>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The authentication of callers; none without a mechanism.
    pub(crate) gss: Option<Gss>,
    /// The limit of log lines that clients cause.
    pub(crate) throttle: Throttle,
}

impl Shared {
    /// `reply_bytes` is the memory for the reply caches here.
    pub(crate) fn new(settings: Settings, exports: ExportTable, reply_bytes: usize) -> Self {
        let write_bytes = settings.reply_cache_bytes / WRITE_REPLY_SHARE;
        let call_secret = crash_replay::secret(&settings.handle_key);
        let gss = settings.gss.clone().map(|mechanism| Gss::new(mechanism, settings.secret, call_secret));
        Self {
            reply_cache: ReplyCache::new(reply_bytes - write_bytes),
            write_reply_cache: ReplyCache::new(write_bytes),
            state: State::new(&settings, Records::default(), Duration::ZERO),
            listings: ListingCache::new(settings.cached_listings_bytes),
            fetches: Fetches::default(),
            call_secret,
            journal: None,
            settings,
            exports: ArcSwap::from_pointee(exports),
            metrics: Metrics::default(),
            observer: None,
            gss,
            throttle: Throttle::new(LOG_LINES_A_SECOND),
        }
    }

    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the current exports.
    pub(crate) fn exports(&self) -> Arc<ExportTable> {
        self.exports.load_full()
    }
}
