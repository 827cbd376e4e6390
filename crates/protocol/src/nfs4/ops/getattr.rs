//! GETATTR (RFC 8881 §18.7).

use xdr::{Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::types::{Bitmap, Outcome};

/// `GETATTR4args`. Current handle: the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetAttrArgs {
    /// Requested attributes.
    pub attributes: Bitmap,
}

/// `GETATTR4res`: the requested attributes that the file system supports.
pub type GetAttrResult = Outcome<FileAttributes>;
