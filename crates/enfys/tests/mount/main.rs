//! Tests of `enfys mount` with real programs on the mount. They need root and `/dev/fuse`.

mod acls;
mod builds;
mod coherence;
mod crash;
mod dead_server;
mod disk_cache;
mod lifetime;
mod lock_calls;
mod locks;
mod lying;
mod mapping;
mod memory;
mod messages;
mod options;
mod overlay;
mod programs;
#[path = "../shared/promtool.rs"]
mod promtool;
mod quota;
mod replace;
mod service;
mod stats;
mod support;
mod user;
mod watch;
