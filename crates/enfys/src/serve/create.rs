//! Creates the server: its durable state, settings and logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::Clock;
use server::{ExportTable, HandleKey, Server, Settings, Versions};
use store::random;
use store::reply_log::{self, FileReplyLog, RecoveredCalls};
use store::state_dir::{Identity, StateDir};
use store::state_log::{self, FileStateLog, RecoveredState};
use store::synced_reply_log::SyncedReplyLog;
use tracing::{info, warn};

use crate::kerberos;
use crate::listen::{Bound, PortMapper};
use crate::metrics::Latencies;
use crate::name_services::id_names;
use crate::plan::Plan;

/// The state directory and what is read from it; random values without one.
#[derive(Debug)]
pub(super) struct DurableState {
    pub(super) directory: Option<StateDir>,
    /// The state log, until the server takes it.
    log: Option<Result<(FileStateLog, RecoveredState), String>>,
    identity: Identity,
    /// Random for each start.
    pub(super) instance: u64,
    /// The write verifier; changes after a stop that may have lost data.
    pub(super) verifier: [u8; 8],
}

impl DurableState {
    pub(super) fn open(plan: &Plan) -> Result<Self, String> {
        let instance: [u8; 8] = random()?;
        let directory = plan.state_dir.as_deref().map(StateDir::open).transpose()?;
        // Before the identity: a directory with an identity must have a log. If this fails, it has neither.
        let open_log = |directory: &StateDir| {
            FileStateLog::open(&state_log::path_in(directory.path()), directory.was_used())
        };
        let log = directory.as_ref().map(open_log);
        let (identity, verifier) = match &directory {
            Some(directory) => (directory.identity()?, directory.take_clean_verifier()?),
            None => (Identity::transient()?, None),
        };
        let verifier = verifier.unwrap_or(instance);
        Ok(Self { directory, log, identity, instance: u64::from_be_bytes(instance), verifier })
    }

    /// Returns the path of the state directory.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.path().into())
    }
}

/// Creates the server, and the histograms of its calls if metrics are served.
pub(super) fn server(
    plan: &Plan,
    bound: &Bound,
    state: &mut DurableState,
    exports: ExportTable,
) -> Result<(Arc<Server>, Option<Arc<Latencies>>), String> {
    let mut settings = Settings::new(
        HandleKey(state.identity.handle_key),
        state.instance,
        random()?,
        state.identity.server_id.to_vec(),
    );
    plan.apply_limits(&mut settings);
    settings.host_name = rustix::system::uname().nodename().to_bytes().to_vec();
    if let Some(domain) = &plan.id_domain {
        let names = id_names::read(domain).map_err(|why| plan.error("id-domain", why))?;
        let (users, groups) = names.len();
        info!(%domain, users, groups, "names of users and groups read");
        settings.id_names = Some(Arc::new(names));
    }
    settings.gss = kerberos::mechanism(plan).map_err(|why| plan.error("keytab", why))?;
    settings.quotas_over_udp = exports.has_quotas();
    settings.portmap = (bound.port_mapper == PortMapper::Own).then(|| bound.port());
    warn_of_long_handles(&settings, &exports);
    let server = with_logs(Server::new(settings, exports), plan, state);
    let latencies = plan.metrics.as_ref().map(|_| Arc::new(Latencies::default()));
    let server = match &latencies {
        Some(latencies) => server.with_observer(Arc::clone(latencies) as Arc<dyn server::Observer>),
        None => server,
    };
    Ok((Arc::new(server), latencies))
}

/// Warns of exports whose handles are too long for version 2.
fn warn_of_long_handles(settings: &Settings, exports: &ExportTable) {
    let has_v2 = settings.versions.contains(Versions::V2);
    for export in exports.iter().filter(|export| has_v2 || export.options.short_handles) {
        if settings.handle_key.seal_short(export.id, &export.backend.root()).is_none() {
            let path = &export.path;
            warn!("export {path}: its file system's handles do not fit 32 bytes: version 2 cannot serve it");
        }
    }
}

/// Gives the server its durable logs. It can serve without them.
fn with_logs(server: Server, plan: &Plan, state: &mut DurableState) -> Server {
    // The previous server has ended: this process has locked the directory.
    let server = match state.log.take() {
        Some(log) => with_state_log(server, log),
        None => server,
    };
    let Some(directory) = &state.directory else { return server };
    let path = reply_log::path_in(directory.path());
    if plan.persistent_sessions {
        with_synced_reply_log(server, &path)
    } else {
        with_reply_log(server, &path)
    }
}

/// Adds the state log. Without it, clients cannot reclaim after a restart.
fn with_state_log(server: Server, log: Result<(FileStateLog, RecoveredState), String>) -> Server {
    match log {
        Ok((log, recovered)) => {
            if let Some(damage) = recovered.damage {
                warn!("{damage}");
            }
            let entries = recovered.entries.into_iter().map(|(key, value)| (key.into(), value.into()));
            server.with_state_log(Arc::new(log), entries, Clock::start().now())
        }
        Err(why) => {
            warn!("no state log, clients cannot reclaim after a restart: {why}");
            server
        }
    }
}

/// Adds the reply log. Without it, a call that is repeated after a crash may fail although it was executed.
fn with_reply_log(server: Server, path: &Path) -> Server {
    match FileReplyLog::open(path) {
        Ok((log, recovered)) => server.with_reply_log(
            Arc::new(log),
            records(recovered).into_iter().map(Into::into),
            Clock::start().now(),
        ),
        Err(why) => {
            warn!("no reply log, calls that are repeated after a crash may fail: {why}");
            server
        }
    }
}

/// Adds the synced reply log. Without it, no session is persistent.
fn with_synced_reply_log(server: Server, path: &Path) -> Server {
    match SyncedReplyLog::open(path) {
        Ok((log, recovered)) => server.with_stable_log(
            Arc::new(log),
            records(recovered).into_iter().map(Into::into),
            Clock::start().now(),
        ),
        Err(why) => {
            warn!("no persistent sessions: {why}");
            with_reply_log(server, path)
        }
    }
}

/// Logs damage of a reply log, and returns its records.
fn records(recovered: RecoveredCalls) -> Vec<Vec<u8>> {
    if let Some(damage) = recovered.damage {
        warn!("{damage}");
    }
    if let Some(outdated) = recovered.outdated {
        info!("{outdated}");
    }
    recovered.records
}
