//! The orderly stop (SIGTERM, SIGINT).

use net::{Registered, Running};
use server::Server;
use tracing::{info, warn};

use super::create::DurableState;
use crate::exports::Backends;
use crate::signals::Signals;

/// Exit status after a second signal, if not everything was flushed.
const STOPPED_EARLY: i32 = 1;

/// Finishes calls, flushes file systems and stores the state that the next server needs. A second signal ends the process at once.
pub(super) async fn stop(
    running: Running,
    registered: Option<Registered>,
    signals: &mut Signals,
    server: &Server,
    backends: &Backends,
    state: &DurableState,
) -> Result<(), String> {
    let clock = running.clock();
    let orderly = async {
        let ended = tokio::task::spawn_blocking(move || {
            // Unregistering may take a while, so the listeners close first.
            running.shut_down();
            drop(registered);
        });
        ended.await.map_err(|error| format!("stopping: {error}"))?;
        // All calls are answered now, and no more arrive.
        let reclaimers = server.prepare_restart(clock.now()).await;
        if state.directory.is_some() {
            info!(clients = reclaimers.count, names = %reclaimers, "clients that may reclaim after the next start");
        }
        let verifier = backends.flush().await?;
        match (&state.directory, verifier) {
            (Some(directory), Some(verifier)) => directory.store_clean_verifier(verifier),
            _ => Ok(()),
        }
    };
    tokio::select! {
        result = orderly => result,
        () = signals.stop() => {
            warn!("second signal: stopping at once; data that were not flushed are lost if the machine crashes");
            std::process::exit(STOPPED_EARLY)
        }
    }
}
