//! WANT_DELEGATION (RFC 8881 §18.49): grants a delegation without an OPEN.

use std::sync::Arc;

use protocol::nfs4::ops::delegation::{DelegationClaim, WantDelegationArgs};
use protocol::nfs4::ops::open::{
    DelegationType, DelegationWant, NoDelegation, OpenDelegation, ShareAccess, WhyNoDelegation,
};
use protocol::nfs4::types::Status;
use vfs::{Authority, FileKind, OpenAccess};
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::delegation::{DelegationRequest, delegate};
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let WantDelegationArgs { want, claim } = WantDelegationArgs::decode(arguments)?;
    let (access, want) = wanted(want.want(), &claim)?;
    let client = Arc::clone(compound.client()?);
    let reclaim = matches!(claim, DelegationClaim::Previous(_));
    compound.state().admit_open(compound.now(), &client, &[], reclaim)?;
    let file = compound.file(Status::ISDIR)?;
    let attributes = compound.attributes().await?;
    let refusal = match attributes.kind {
        _ if access.is_empty() => Some(WhyNoDelegation::CANCELLED),
        FileKind::Regular => None,
        FileKind::Directory => Some(WhyNoDelegation::IS_DIR),
        // "Write delegations are not available for file types that are not writable" (§18.49.3).
        _ if want == DelegationWant::WRITE_DELEG => Some(WhyNoDelegation::WRITE_DELEG_NOT_SUPP_FTYPE),
        _ => Some(WhyNoDelegation::NOT_SUPP_FTYPE),
    };
    if let Some(why) = refusal {
        OpenDelegation::NoneExt(NoDelegation::Other(why.0)).encode(reply);
        return Ok(());
    }
    let writes = access.contains(ShareAccess::WRITE);
    if writes && file.export.options.read_only {
        // An OPEN would fail with ROFS, which §15.2 does not list for this operation.
        OpenDelegation::NoneExt(NoDelegation::Resource(false)).encode(reply);
        return Ok(());
    }
    // The caller needs the rights of an OPEN; nothing stays open.
    let open = OpenAccess { read: true, write: writes };
    let context = compound.context(file.export);
    file.export.backend.open(&context, &file.handle, open, Authority::Caller).await?;
    // RFC 9754 §5: timestamp delegations come with an OPEN.
    let asked = DelegationRequest { access, want, times: false, reclaim };
    delegate(compound, &client, &file, asked, &attributes).await.encode(reply);
    // As for OPEN: attributes read before the grant may be outdated.
    compound.forget_fresh();
    Ok(())
}

/// Returns the wanted access (`None` to cancel) and the want.
///
/// # Errors
/// INVAL if no delegation is requested: §18.49.3 permits READ, WRITE, ANY and CANCEL. NOTSUPP for a delegation from before the client's
/// own restart, which is not kept.
fn wanted(
    want: DelegationWant,
    claim: &DelegationClaim,
) -> std::result::Result<(ShareAccess, DelegationWant), Status> {
    use DelegationType as Type;
    use DelegationWant as Want;
    match (claim, want) {
        (DelegationClaim::DelegatePrevFh, _) => Err(Status::NOTSUPP),
        (_, Want::CANCEL) => Ok((ShareAccess::empty(), want)),
        // For ANY, a read delegation conflicts with fewer clients.
        (DelegationClaim::Fh, Want::READ_DELEG | Want::ANY_DELEG) => Ok((ShareAccess::READ, want)),
        (DelegationClaim::Fh, Want::WRITE_DELEG) => Ok((ShareAccess::BOTH, want)),
        // A reclaim wants the delegation that was held.
        (DelegationClaim::Previous(held), Want::READ_DELEG | Want::WRITE_DELEG | Want::ANY_DELEG) => {
            match *held {
                Type::READ | Type::READ_ATTRS_DELEG => Ok((ShareAccess::READ, Want::READ_DELEG)),
                Type::WRITE | Type::WRITE_ATTRS_DELEG => Ok((ShareAccess::BOTH, Want::WRITE_DELEG)),
                _ => Err(Status::INVAL),
            }
        }
        _ => Err(Status::INVAL),
    }
}
