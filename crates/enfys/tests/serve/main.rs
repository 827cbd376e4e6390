//! Tests of the `enfys` binary: command line, calls over loopback, signals.
// Nothing is visible outside a test; here, `pub` means that other modules use it.
#![allow(unreachable_pub)]

mod abuse;
mod boot_loader;
mod client;
mod commands;
mod copies;
mod datagram_locks;
mod descriptors;
mod disk;
mod dissected;
mod documents;
mod first_hour;
mod full_disk;
mod hidden;
mod interrupted;
mod journal;
mod libnfs;
mod lifetime;
mod logs;
mod memory;
mod metrics;
mod offline;
mod outside;
mod peers;
mod persistent;
mod portmap;
#[path = "../shared/promtool.rs"]
mod promtool;
mod proxy;
mod quotas;
mod referrals;
mod refusals;
mod reload;
mod restart;
mod round_trips;
mod sandbox;
mod server;
mod service;
mod status;
mod submounts;
mod vanished;
mod waiting;
