//! Tests of `enfys mount` with real programs on the mount. They need root and `/dev/fuse`.

mod acls;
mod crash;
mod disk_cache;
mod lifetime;
mod lock_calls;
mod memory;
mod messages;
mod overlay;
mod programs;
#[path = "../shared/promtool.rs"]
mod promtool;
mod replace;
mod service;
mod stats;
mod support;
mod watch;
