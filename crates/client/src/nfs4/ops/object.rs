//! GETATTR, SETATTR, ACCESS, READLINK (RFC 8881 §18.7, §18.30, §18.1, §18.24).

use bytes::Bytes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::access::{AccessArgs, AccessMask};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::types::Stateid;

use super::super::Nfs4;
use super::super::convert::set_attributes;
use super::super::getattr::{get_attributes, get_change, take_attributes, take_change};
use super::super::statuses::{Recovery, recovery};
use super::super::wire::{put, take};
use crate::attributes::{Attributes, Before, SetAttributes};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, OpenState};

impl Nfs4 {
    /// Returns an object's attributes.
    pub(crate) async fn get_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
    ) -> Result<Attributes, OpError> {
        let mut results = self.read_only(caller, &[put(handle), get_attributes()]).await?;
        results.skip()?;
        take_attributes(&mut results)
    }

    /// Sets attributes and returns all of them. Setting the size of an open file takes its state.
    pub(crate) async fn set_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        self.change_attributes(caller, handle, state, set).await.map(|(_, attributes)| attributes)
    }

    /// Sets attributes, and returns the change attribute before, if the server has one, and all attributes afterwards. The
    /// former is read in the same compound, though not atomically.
    pub(crate) async fn change_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        set: &SetAttributes,
    ) -> Result<(Option<Before>, Attributes), OpError> {
        let set_as = |stateid| {
            let mut ops = vec![put(handle), get_change()];
            ops.extend(set_ops(stateid, set));
            let changes = ops.len() - 2;
            ops.push(get_attributes());
            async move {
                let mut results = self.change(caller, &ops).await?;
                results.skip()?;
                let before = take_change(&mut results)?.map(Before::Change);
                results.skip_many(changes)?;
                Ok((before, take_attributes(&mut results)?))
            }
        };
        // §18.30.3: a change of the size needs a stateid as a WRITE does. By the anonymous one, a server could recall this client's
        // own delegation, and the operation would wait for itself.
        if state.file.is_none()
            && set.size.is_some()
            && let Some(stateid) = self.delegations.stateid_to_write(&handle, caller)
        {
            match set_as(stateid).await {
                Err(OpError::Status(status)) if recovery(status) == Recovery::Reopen => {
                    self.delegation_revoked(&handle, &stateid);
                }
                Err(OpError::Status(status)) if recovery(status) == Recovery::Retry => {}
                outcome => return outcome,
            }
        }
        self.with_guarded_stateid(state, set_as).await
    }

    /// Returns the caller's permissions among the requested ones.
    pub(crate) async fn access(
        &self,
        caller: &Caller,
        handle: FileHandle,
        asked: u32,
    ) -> Result<(u32, Attributes), OpError> {
        let access = Op::Access(AccessArgs { access: AccessMask::from_bits_retain(asked) });
        let mut results = self.read_only(caller, &[put(handle), access, get_attributes()]).await?;
        results.skip()?;
        let granted = take!(results, Access)?.access.bits() & asked;
        Ok((granted, take_attributes(&mut results)?))
    }

    /// Returns the content of a symbolic link.
    pub(crate) async fn read_link(&self, caller: &Caller, handle: FileHandle) -> Result<Bytes, OpError> {
        let mut results = self.read_only(caller, &[put(handle), Op::ReadLink]).await?;
        results.skip()?;
        results.next(|result| match result {
            OpResult::ReadLink(protocol::nfs4::types::Outcome::Ok(text)) => Some(text.into_bytes()),
            _ => None,
        })
    }
}

/// Returns the SETATTRs that set attributes of the current object, one or two: see [`SetAttributes::steps`].
pub(super) fn set_ops(stateid: Stateid, set: &SetAttributes) -> impl Iterator<Item = Op> + use<> {
    let (first, second) = set.steps();
    let setattr = move |set| Op::SetAttr(SetAttrArgs { stateid, attributes: set_attributes(&set) });
    std::iter::once(first).chain(second).map(setattr)
}
