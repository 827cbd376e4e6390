//! NFS version 4 (RFC 7530 for 4.0, RFC 8881 for 4.1): one operation, one file in `ops`.
//!
//! A call goes through [`serve`], which decodes its operations one by one as they run. What clients hold (leases,
//! sessions, opens, locks) is in [`state`], which is synchronous: no operation waits while it holds state.

mod acl;
mod attributes;
pub(crate) mod client_log;
mod compound;
mod delegation;
#[cfg(test)]
mod delegation_tests;
pub(crate) mod entries;
mod entry_attributes;
mod inter_server;
#[cfg(test)]
mod inter_server_tests;
mod lookout;
mod names;
pub(crate) mod object;
mod offload;
#[cfg(test)]
mod offload_tests;
mod ops;
#[cfg(test)]
mod path_tests;
pub(crate) mod pseudo;
#[cfg(test)]
mod recovery_tests;
pub(crate) mod right;
mod rows;
mod sequencing;
mod serve;
mod set_attributes;
pub(crate) mod settle;
pub mod state;
#[cfg(test)]
mod stateid_tests;
mod status;
mod take_back;
#[cfg(test)]
mod takeover_tests;
pub(crate) mod tenant;

#[cfg(test)]
pub(crate) use ops::getxattr::tests as xattr_tests;

pub(crate) use object::File;
pub use offload::Advanced;
pub use rows::executed_once;
pub(crate) use serve::{Begun, begin};
