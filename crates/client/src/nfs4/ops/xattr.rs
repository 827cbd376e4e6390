//! GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276 §8.4). Names are without `user.`.

use bytes::Bytes;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::xattr::{
    GetXattrArgs, ListXattrsArgs, RemoveXattrArgs, SetXattrArgs, SetXattrOption, XattrKey,
};
use protocol::nfs4::types::Status;
use xdr::Opaque;

use super::super::Nfs4;
use super::super::convert::changed;
use super::super::wire::{put, take};
use crate::attributes::Changed;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::FileHandle;
use crate::xattr::{NAMES_MAX, VALUE_MAX, XattrMode};

/// Maximum bytes of one part of a listing.
const PART_MAX: u32 = 64 << 10;
/// Bytes of a reply apart from the names.
const OVERHEAD: u32 = 1024;
const WHAT: &str = "extended attributes";

impl Nfs4 {
    /// Returns the value of an extended attribute.
    pub(crate) async fn get_xattr(
        &self,
        caller: &Caller,
        handle: FileHandle,
        name: &[u8],
    ) -> Result<Bytes, OpError> {
        self.needs_4_2(WHAT)?;
        let get = Op::GetXattr(GetXattrArgs { name: key(name)? });
        let mut results = self.read_only(caller, &[put(handle), get]).await?;
        results.skip()?;
        Ok(take!(results, GetXattr)?.into_bytes())
    }

    /// Sets an extended attribute.
    pub(crate) async fn set_xattr(
        &self,
        caller: &Caller,
        handle: FileHandle,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<Changed, OpError> {
        self.needs_4_2(WHAT)?;
        if value.len() > VALUE_MAX {
            return Err(OpError::Invalid(Errno::E2BIG, "the value is longer than 65,536 bytes"));
        }
        let option = match mode {
            XattrMode::Either => SetXattrOption::EITHER,
            XattrMode::Create => SetXattrOption::CREATE,
            XattrMode::Replace => SetXattrOption::REPLACE,
        };
        let value = Opaque::new(value).unwrap_or_default();
        let set = Op::SetXattr(SetXattrArgs { option, key: key(name)?, value });
        let mut results = self.change(caller, &[put(handle), set]).await?;
        results.skip()?;
        match take!(results, SetXattr) {
            Ok(change) => Ok(changed(change, None)),
            // It was created the first time.
            Err(OpError::Status(Status::EXIST)) if results.is_repeated => Ok(Changed::default()),
            Err(error) => Err(error),
        }
    }

    /// Lists the names of all extended attributes.
    pub(crate) async fn list_xattrs(
        &self,
        caller: &Caller,
        handle: FileHandle,
    ) -> Result<Vec<Bytes>, OpError> {
        self.needs_4_2(WHAT)?;
        let maxcount = (self.session().await?.limits.response.saturating_sub(OVERHEAD)).min(PART_MAX);
        let (mut names, mut cookie, mut length) = (Vec::new(), 0, 0);
        loop {
            let list = Op::ListXattrs(ListXattrsArgs { cookie, maxcount });
            let mut results = self.read_only(caller, &[put(handle), list]).await?;
            results.skip()?;
            let part = take!(results, ListXattrs)?;
            length += part.names.iter().map(|name| name.len() + 1).sum::<usize>();
            if length > NAMES_MAX {
                return Err(OpError::BadReply("more names of extended attributes than an object can have"));
            }
            let is_stuck = part.names.is_empty() || part.cookie == cookie;
            names.extend(part.names.into_vec().into_iter().map(|name| name.into_bytes()));
            if part.eof {
                return Ok(names);
            }
            if is_stuck {
                return Err(OpError::BadReply("a listing of extended attributes that does not end"));
            }
            cookie = part.cookie;
        }
    }

    /// Removes an extended attribute.
    pub(crate) async fn remove_xattr(
        &self,
        caller: &Caller,
        handle: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        self.needs_4_2(WHAT)?;
        let remove = Op::RemoveXattr(RemoveXattrArgs { name: key(name)? });
        let mut results = self.change(caller, &[put(handle), remove]).await?;
        results.skip()?;
        match take!(results, RemoveXattr) {
            Ok(change) => Ok(changed(change, None)),
            // It was removed the first time.
            Err(OpError::Status(Status::NOXATTR)) if results.is_repeated => Ok(Changed::default()),
            Err(error) => Err(error),
        }
    }
}

/// Checks a name, as Linux does.
fn key(name: &[u8]) -> Result<XattrKey, OpError> {
    if name.is_empty() || name.contains(&0) {
        return Err(OpError::Invalid(Errno::EINVAL, "not a name of an extended attribute"));
    }
    if name.len() > 255 {
        return Err(OpError::Invalid(Errno::ERANGE, "the name of the extended attribute is too long"));
    }
    XattrKey::new(Bytes::copy_from_slice(name))
        .map_err(|_| OpError::Invalid(Errno::ERANGE, "the name of the extended attribute is too long"))
}
