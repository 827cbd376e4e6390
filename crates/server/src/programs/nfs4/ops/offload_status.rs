//! OFFLOAD_STATUS (RFC 7862 §15.9): reports the progress of a background copy.

use protocol::nfs4::ops::copy::OffloadArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let OffloadArgs { stateid } = OffloadArgs::decode(arguments)?;
    let file = compound.file(Status::BAD_STATEID)?;
    let key = file.key(compound.server());
    let (count, status) =
        compound.state().offload_status(compound.client()?, compound.caller(), key, &stateid)?;
    reply.u64(count);
    // §15.9.3: "If the optional osr_complete field is present, the asynchronous operation has completed."
    reply.u32(u32::from(status.is_some()));
    if let Some(status) = status {
        reply.u32(status.0);
    }
    Ok(())
}
