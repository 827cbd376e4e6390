//! LOOKUP, and a path's chain of them (RFC 1813 §3.3.3).

use protocol::nfs3::LookupArgs;

use super::super::Nfs3;
use super::super::calls::from_wire;
use super::super::convert::entry_of;
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, Object};

impl Nfs3 {
    /// Looks up a name in a directory.
    pub(crate) async fn lookup(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Object, OpError> {
        let found = self.call(caller, &LookupArgs { what: entry_of(&directory, name)? }).await?;
        self.object(caller, from_wire(&found.object)?, &found.obj_attributes).await
    }

    /// Looks up names one after the other. Each needs the handle that the previous one returns, and so a round trip.
    pub(crate) async fn lookup_chain(
        &self,
        caller: &Caller,
        start: FileHandle,
        names: &[&[u8]],
    ) -> Result<Object, OpError> {
        let (mut handle, mut attributes) = (start, None);
        for name in names {
            let found = self.call(caller, &LookupArgs { what: entry_of(&handle, name)? }).await?;
            (handle, attributes) = (from_wire(&found.object)?, found.obj_attributes);
        }
        self.object(caller, handle, &attributes).await
    }
}
