//! Server and clients in one thread and virtual time; a seed determines a run.
//!
//! A [`World`](world::World) holds the whole server over a file system in memory, scripted clients, and a network that
//! delays, loses, duplicates and reorders messages, and breaks connections. Nothing reads a real clock: a run of hours
//! takes milliseconds. A [`scenario`] defines the clients and the properties that must hold.
#![forbid(unsafe_code)]

mod backchannel;
pub mod backend;
mod call_slot;
pub mod client;
mod cluster;
pub mod compounds;
mod copies;
mod copy_ops;
mod delegations;
mod exactly_once;
mod full_clients;
mod journal;
mod listings;
pub mod logs;
pub mod network;
pub mod nfs2;
pub mod nlm;
mod notices;
pub mod nsm;
mod peer;
mod raw_xdr;
mod reclaims;
pub mod rng;
pub mod rquota;
pub mod scenario;
mod shares;
mod transfers;
mod v40_peer;
mod waits;
pub mod world;

pub use full_clients::altered;
