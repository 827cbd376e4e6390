//! READLINK (RFC 8881 §18.24).

use crate::nfs4::types::{LinkText, Outcome};

/// `READLINK4res`: the link's text. No arguments. Current handle: the link.
pub type ReadLinkResult = Outcome<LinkText>;
