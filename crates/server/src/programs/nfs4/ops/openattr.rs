//! OPENATTR (RFC 8881 §18.17).

use protocol::nfs4::ops::open_state::OpenAttrArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

/// "If the server does not support named attributes for the current filehandle, an error of NFS4ERR_NOTSUPP will be
/// returned to the client" (§18.17.4). `named_attr` is false everywhere.
pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    OpenAttrArgs::decode(arguments)?;
    // A stale handle comes first.
    compound.attributes().await?;
    Err(Status::NOTSUPP.into())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn nothing_has_named_attributes() {
        let op = Op::OpenAttr(OpenAttrArgs { create_directory: true });
        assert_eq!(lab().status_at(&["export"], op), Status::NOTSUPP);
    }
}
