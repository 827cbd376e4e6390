//! SETATTR (RFC 8881 §18.30).

use xdr::{Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::types::{Bitmap, HasStatus, Stateid, Status};

/// `SETATTR4args`. Current handle: the object.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetAttrArgs {
    /// Stateid to change the size, as in WRITE.
    pub stateid: Stateid,
    /// The attributes to set.
    pub attributes: FileAttributes,
}

/// `SETATTR4res`: the mask comes with every status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SetAttrResult {
    /// Its result.
    pub status: Status,
    /// Attributes that were set.
    pub attributes_set: Bitmap,
}

impl HasStatus for SetAttrResult {
    fn status(&self) -> Status {
        self.status
    }
}
