//! GETATTR, SETATTR, ACCESS, READLINK (RFC 1813 §3.3.1, §3.3.2, §3.3.4, §3.3.5).

use bytes::Bytes;
use protocol::nfs3::{Access, AccessArgs, GetattrArgs, PostOpAttr, ReadlinkArgs, SetattrArgs};

use super::super::Nfs3;
use super::super::calls::to_wire;
use super::super::convert::{attributes, changed, post_op, set_attributes};
use crate::attributes::{Attributes, Before, Changed, SetAttributes};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, Object, OpenState};

impl Nfs3 {
    /// Returns an object's attributes.
    pub(crate) async fn get_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
    ) -> Result<Attributes, OpError> {
        attributes(&self.call(caller, &GetattrArgs { object: to_wire(&handle)? }).await?)
    }

    /// Sets attributes and returns all of them.
    pub(crate) async fn set_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        self.change_attributes(caller, handle, state, set).await.map(|(_, attributes)| attributes)
    }

    /// Sets attributes, and returns those before, if the server sends them, and those afterwards.
    pub(crate) async fn change_attributes(
        &self,
        caller: &Caller,
        handle: FileHandle,
        _state: &OpenState,
        set: &SetAttributes,
    ) -> Result<(Option<Before>, Attributes), OpError> {
        let object = to_wire(&handle)?;
        let arguments = |set| SetattrArgs { object, new_attributes: set_attributes(set), guard: None };
        let (first, second) = set.steps();
        let mut done = changed(&self.call(caller, &arguments(&first)).await?)?;
        if let Some(second) = second {
            let next = changed(&self.call(caller, &arguments(&second)).await?)?;
            // Another client may have changed the object in between.
            let is_joined = next.before.is_some() && next.before == done.after.as_ref().map(weak);
            done = Changed { before: done.before.filter(|_| is_joined), ..next };
        }
        let attributes = match done.after {
            Some(attributes) => attributes,
            None => self.get_attributes(caller, handle).await?,
        };
        Ok((done.before, attributes))
    }

    /// Returns the requested permissions that the caller has.
    pub(crate) async fn access(
        &self,
        caller: &Caller,
        handle: FileHandle,
        asked: u32,
    ) -> Result<(u32, Attributes), OpError> {
        let arguments = AccessArgs { object: to_wire(&handle)?, access: Access::from_bits_retain(asked) };
        let ok = self.call(caller, &arguments).await?;
        Ok((ok.access.bits() & asked, self.or_fetched(caller, handle, &ok.obj_attributes).await?))
    }

    /// Returns the content of a symbolic link.
    pub(crate) async fn read_link(&self, caller: &Caller, handle: FileHandle) -> Result<Bytes, OpError> {
        let ok = self.call(caller, &ReadlinkArgs { symlink: to_wire(&handle)? }).await?;
        Ok(ok.data.into_bytes())
    }

    /// Returns the attributes that came with a reply, or fetches them if the server has left them out.
    pub(super) async fn or_fetched(
        &self,
        caller: &Caller,
        handle: FileHandle,
        wire: &PostOpAttr,
    ) -> Result<Attributes, OpError> {
        match post_op(wire)? {
            Some(attributes) => Ok(attributes),
            None => self.get_attributes(caller, handle).await,
        }
    }

    /// Returns an object, whose attributes are fetched if the server has left them out.
    pub(super) async fn object(
        &self,
        caller: &Caller,
        handle: FileHandle,
        wire: &PostOpAttr,
    ) -> Result<Object, OpError> {
        Ok(Object { handle, attributes: self.or_fetched(caller, handle, wire).await? })
    }
}

/// Returns attributes in the form of weak cache consistency data.
fn weak(attributes: &Attributes) -> Before {
    Before::Weak { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
}
