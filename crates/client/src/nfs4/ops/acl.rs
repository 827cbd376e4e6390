//! Access control lists of version 4: the attribute `acl` (RFC 8881 §6.2.1).

use protocol::nfs4::attributes::acl::{Ace, AceFlags, AceMask, AceType, Acl as WireAcl};
use protocol::nfs4::attributes::{Attributes as WireAttributes, SetAttributes as WireSet, number};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::types::{Bitmap, Stateid, Utf8};

use super::super::Nfs4;
use super::super::getattr::{get_attributes, take_attributes};
use super::super::wire::{put, take};
use crate::acl::{Acl, Nfs4Ace};
use crate::attributes::Attributes;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::FileHandle;

const WHAT: &str = "access control lists";

impl Nfs4 {
    /// Returns the access control list of an object.
    pub(crate) async fn get_acl(&self, caller: &Caller, handle: FileHandle) -> Result<Acl, OpError> {
        let entries = self.acl_attributes(caller, handle, number::ACL).await?.acl;
        let entries = entries.ok_or(OpError::Unsupported(WHAT))?;
        Ok(Acl::Nfs4(entries.into_vec().into_iter().map(entry).collect()))
    }

    /// Returns the kinds of entries of the object's file system, by the bits of `aclsupport` (§6.2.1.2); 0 if it has no lists.
    pub(crate) async fn acl_support(&self, caller: &Caller, handle: FileHandle) -> Result<u32, OpError> {
        let attributes = self.acl_attributes(caller, handle, number::ACLSUPPORT).await?;
        Ok(attributes.aclsupport.map_or(0, |support| support.bits()))
    }

    async fn acl_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
        number: u32,
    ) -> Result<WireAttributes, OpError> {
        let get = Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[number]) });
        let mut results = self.read_only(caller, &[put(handle), get]).await?;
        results.skip()?;
        WireAttributes::from_file_attributes(&take!(results, GetAttr)?)
            .map_err(|_| OpError::BadReply("attributes that cannot be decoded"))
    }

    /// Sets the access control list of an object, which changes its mode too (§6.4.1.2), and returns its attributes.
    pub(crate) async fn set_acl(
        &self,
        caller: &Caller,
        handle: FileHandle,
        acl: &Acl,
    ) -> Result<Option<Attributes>, OpError> {
        let Acl::Nfs4(entries) = acl else {
            return Err(OpError::Unsupported("POSIX access control lists"));
        };
        let entries = entries.iter().map(wire_entry).collect::<Result<Vec<_>, _>>()?;
        let too_long = |_| OpError::Invalid(Errno::ENOSPC, "the access control list is too long");
        let acl = Some(WireAcl::new(entries).map_err(too_long)?);
        let attributes = WireSet { acl, ..WireSet::default() }.to_file_attributes();
        let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes });
        let mut results = self.change(caller, &[put(handle), set, get_attributes()]).await?;
        results.skip_many(2)?;
        take_attributes(&mut results).map(Some)
    }
}

fn entry(wire: Ace) -> Nfs4Ace {
    Nfs4Ace {
        kind: wire.ace_type.0,
        flags: wire.flags.bits(),
        mask: wire.mask.bits(),
        who: wire.who.into_bytes(),
    }
}

fn wire_entry(entry: &Nfs4Ace) -> Result<Ace, OpError> {
    Ok(Ace {
        ace_type: AceType(entry.kind),
        flags: AceFlags::from_bits_retain(entry.flags),
        mask: AceMask::from_bits_retain(entry.mask),
        who: Utf8::new(entry.who.clone())
            .map_err(|_| OpError::Invalid(Errno::EINVAL, "the name in an access control list is too long"))?,
    })
}
