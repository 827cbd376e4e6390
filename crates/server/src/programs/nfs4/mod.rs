//! NFS version 4 (RFC 7530 for 4.0, RFC 8881 for 4.1): one operation, one file in `ops`.
//!
//! A call goes through [`serve`], which decodes its operations one by one as they run. The state of clients (leases,
//! sessions, opens, locks) is in [`state`], which is synchronous: no operation waits while it holds state.

mod absent;
mod acl;
pub(crate) mod attributes;
pub(crate) mod client_log;
pub(crate) mod compound;
mod conflicts;
pub(crate) mod delegation;
mod entry_attributes;
pub(crate) mod execute;
mod in_place;
mod ops;
mod sequencing;
mod serve;
mod set_attributes;
mod space;
pub(crate) mod status;
#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
pub(crate) use ops::getxattr::tests as xattr_tests;

pub(crate) use serve::{Begun, begin};
