//! NFS version 4, minor versions 0 to 2: RFC 7531, RFC 5662, RFC 7863, with extended attributes (RFC 8276), umask
//! (RFC 8275), delegated times and offline files (RFC 9754), and flexible files (RFC 8435).
//!
//! The three minor versions share one set of types; [`ops::TABLE`] has the minor versions of each operation. Names are those of
//! the RFCs without prefixes (`sr_status_flags` is [`ops::session::SequenceOk::status_flags`]).

pub mod attributes;
mod bitmap;
pub mod callback;
pub mod compound;
pub mod layout;
mod macros;
mod opnum;
pub mod ops;
mod status;
pub mod types;

/// RPC program of NFS.
pub const PROGRAM: u32 = 100_003;
/// Its version 4.
pub const VERSION: u32 = 4;
/// `NFSPROC4_NULL`.
pub const PROC_NULL: u32 = 0;
/// `NFSPROC4_COMPOUND`.
pub const PROC_COMPOUND: u32 = 1;
