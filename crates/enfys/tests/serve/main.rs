//! The `enfys` binary as people meet it: started, asked over loopback, told by signals, stopped.
// Nothing is reachable from outside a test; `pub` says here what other modules use.
#![allow(unreachable_pub)]

mod abuse;
mod client;
mod copies;
mod descriptors;
mod disk;
mod dissected;
mod documents;
mod first_hour;
mod full_disk;
mod hidden;
mod libnfs;
mod lifetime;
mod logs;
mod memory;
mod metrics;
mod outside;
mod peers;
mod persistent;
mod portmap;
mod refusals;
mod reload;
mod restart;
mod sandbox;
mod server;
mod service;
mod status;
mod submounts;
mod vanished;
mod waiting;
