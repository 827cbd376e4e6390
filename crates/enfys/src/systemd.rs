//! Notifications to a service manager, if there is one: sd_notify(3).

use sd_notify::NotifyState;
use store::error_text;
use tracing::warn;

/// Reports that clients are served, at the start and after a reload.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that a reload begins; [`ready`] must follow.
pub fn reloading() {
    // sd_notify(3): RELOADING=1 needs MONOTONIC_USEC.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Reports that the server stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(error = error_text(&error), "cannot notify the service manager");
    }
}
