//! OFFLOAD_CANCEL (RFC 7862 §15.8): ends a background copy, or the permission of COPY_NOTIFY.

use protocol::nfs4::ops::copy::OffloadArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let OffloadArgs { stateid } = OffloadArgs::decode(arguments)?;
    let file = compound.file(Status::BAD_STATEID)?;
    let key = file.key(compound.server());
    // "The client uses OFFLOAD_CANCEL and the stateid it used in the COPY_NOTIFY to inform the source" (§15.8.3).
    if compound.state().cancel_copy_notify(compound.client()?, compound.caller(), key, &stateid) {
        return Ok(());
    }
    let offload = compound.state().cancel_offload(compound.client()?, compound.caller(), key, &stateid)?;
    // The copy must not overwrite the client's next writes.
    offload.stopped().await;
    Ok(())
}
