//! GET_DIR_DELEGATION (RFC 8881 §18.39): grants a delegation of a directory, with notifications.

use std::sync::Arc;

use protocol::nfs4::ops::delegation::{DirDelegation, GetDirDelegationArgs, GetDirDelegationOk};
use protocol::nfs4::types::{Bitmap, Handle, Status};
use vfs::{Attributes, FileKind};
use xdr::{Decode, Encode, Reader, Writer};

use super::readdir::verifier;
use crate::files::external_changes::{look_again, watch};
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{DelegationKind, GrantRequest};

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let args = GetDirDelegationArgs::decode(arguments)?;
    let attributes = compound.attributes().await?;
    if attributes.kind != FileKind::Directory {
        return Err(Status::NOTDIR.into());
    }
    let granted = match compound.current()? {
        Object::File(directory) => grant(compound, &directory, &attributes, &args).await?,
        // Pseudo directories change with the configuration, which cannot recall delegations.
        Object::Pseudo(_) => None,
    };
    // The client may cache only attributes that it reads after the grant.
    compound.forget_fresh();
    match granted {
        Some(granted) => {
            compound.set_stateid(granted.stateid);
            DirDelegation::Granted(granted).encode(reply);
            Ok(())
        }
        // §18.39.3: if the client wants a signal and the server "does not wish to honor the \"want\" or is
        // not able to do so, it returns the error NFS4ERR_DIRDELEG_UNAVAIL".
        None if args.signal_available => Err(Status::DIRDELEG_UNAVAIL.into()),
        None => {
            DirDelegation::Unavailable(false).encode(reply);
            Ok(())
        }
    }
}

async fn grant(
    compound: &Compound<'_>,
    directory: &File<'_>,
    attributes: &Attributes,
    args: &GetDirDelegationArgs,
) -> Result<Option<GetDirDelegationOk>> {
    let client = Arc::clone(compound.client()?);
    let wire = Object::File(*directory).seal(&compound.server().settings().handle_key);
    let Ok(handle) = Handle::new(&wire) else { return Ok(None) };
    // Before the grant: this may wait, and nothing must come between the grant and the reply.
    // A directory that the caller may not list is not delegated. An error would end Linux's compound, which continues with
    // GETATTR.
    let Ok(cookie_verifier) = verifier(compound, directory).await else { return Ok(None) };
    let notification_types =
        compound.state().granted_notifications(compound.now(), &client, args.notification_types);
    let kind = DelegationKind::Directory(notification_types);
    let epoch = compound.state().change_epoch(&directory.handle);
    let Ok(lookout) = watch(compound.request, &client, directory, (kind, false)).await else {
        return Ok(None);
    };
    let change = match &lookout {
        Some(_) => match look_again(compound.request, directory, attributes, false).await {
            Ok(seen) => seen.change,
            Err(_) => return Ok(None),
        },
        None => attributes.change,
    };
    let request = GrantRequest {
        times: None,
        kind,
        checked_access: 0,
        opener: compound.caller(),
        change,
        handle,
        inner: directory.handle,
        epoch,
        reclaim: false,
    };
    let key = directory.key(compound.server());
    let granted = compound.state().grant_delegation(
        compound.now(),
        &client,
        key,
        &request,
        compound.session(),
        lookout,
    );
    Ok(granted.ok().map(|stateid| GetDirDelegationOk {
        cookie_verifier,
        stateid,
        notification_types,
        child_attributes: Bitmap::EMPTY,
        directory_attributes: Bitmap::EMPTY,
    }))
}
