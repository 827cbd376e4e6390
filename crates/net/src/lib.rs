//! Listeners and connections on tokio, one current-thread runtime a core.
