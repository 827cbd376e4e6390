//! Copies in the background, and what other servers may read.

pub(crate) mod offload;
pub(crate) mod promise;
