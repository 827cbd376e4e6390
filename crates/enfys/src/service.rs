//! What a service manager (systemd) is told, where there is one: sd_notify(3).

use sd_notify::NotifyState;
use store::error_text;
use tracing::warn;

/// Clients are answered; after a reload too.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The exports are read again; [`ready`] follows.
pub fn reloading() {
    // sd_notify(3): a service that says RELOADING=1 says when that was, too.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// No new calls are taken.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("the service manager could not be told: {}", error_text(&error));
    }
}
