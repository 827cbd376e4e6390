//! Reload of the exports (SIGHUP).

use std::time::Duration;

use net::Running;
use server::Server;
use tracing::{info, warn};

use crate::cli::ServeArguments;
use crate::exports::{Backends, ExportPlan};
use crate::plan::Plan;

/// Time limit of a reload for calls that use the old exports.
const OLD_CALLS_TIMEOUT: Duration = Duration::from_secs(10);
const OLD_CALLS_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Replaces the exports. After an error, everything is as before.
pub(super) async fn reload(
    arguments: &ServeArguments,
    old: &Plan,
    (server, running): (&Server, &Running),
    backends: &mut Backends,
) -> Result<Plan, String> {
    let new = Plan::new(arguments)?;
    if new.wants_kerberos() && server.settings().gss.is_none() {
        return Err("Kerberos: the server's keys are read only at a start: restart the server".into());
    }
    let prepared = backends.prepare(&new.exports)?;
    new.warnings.iter().for_each(|warning| warn!("{warning}"));
    let fixed = old.fixed_differences(&new);
    if !fixed.is_empty() {
        warn!("changes of {} take effect at the next start", fixed.join(", "));
    }
    let (exports, removed) = backends.activate(&new.exports, prepared);
    if !running.introduce_hosts(server, &exports).await {
        warn!(
            "host names of some connected clients are unknown: their addresses decide until they reconnect"
        );
    }
    server.replace_exports(exports);
    if !old_calls_are_done(server).await {
        warn!("calls from before the reload still run: their writes to removed exports may be lost");
        backends.note_possible_loss();
    }
    backends.close(removed).await;
    let is_served = |export: &ExportPlan| new.exports.iter().any(|other| other.pseudo == export.pseudo);
    for export in old.exports.iter().filter(|export| !is_served(export)) {
        info!("reloaded: no longer serving {}", export.pseudo);
    }
    for export in &new.exports {
        info!("reloaded: serving {export}");
    }
    // The next reload compares fixed settings with those in effect.
    Ok(Plan { exports: new.exports, warnings: Vec::new(), ..old.clone() })
}

/// Waits until no call uses the old exports; false after the timeout.
async fn old_calls_are_done(server: &Server) -> bool {
    for _ in 0..OLD_CALLS_TIMEOUT.as_millis() / OLD_CALLS_POLL_INTERVAL.as_millis() {
        if !server.has_retired_exports() {
            return true;
        }
        tokio::time::sleep(OLD_CALLS_POLL_INTERVAL).await;
    }
    !server.has_retired_exports()
}
