//! LOOKUP, and a path's chain of them (RFC 8881 §18.13).

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::lookup::LookupArgs;

use super::super::Nfs4;
use super::super::convert::component;
use super::super::wire::put;
use super::{get_attributes, take_object};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, Object};

/// Operations of a chain apart from its LOOKUPs: SEQUENCE, PUTFH, GETFH, GETATTR.
const CHAIN_EXTRA: usize = 4;

impl Nfs4 {
    /// Returns the root of the server's tree.
    pub(crate) async fn root(&self, caller: &Caller) -> Result<Object, OpError> {
        let ops = [Op::PutRootFh, Op::GetFh, get_attributes()];
        let mut results = self.read_only(caller, &ops).await?;
        results.skip()?;
        take_object(&mut results)
    }

    /// Looks up a name in a directory.
    pub(crate) async fn lookup(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Object, OpError> {
        let lookup = Op::Lookup(LookupArgs { name: component(name)? });
        let ops = [put(directory), lookup, Op::GetFh, get_attributes()];
        let mut results = self.read_only(caller, &ops).await?;
        results.skip_many(2)?;
        take_object(&mut results)
    }

    /// Looks up names one after the other, in one compound for as many as the session allows. Returns how many were found,
    /// and the last object found; the error is about the next name.
    pub(crate) async fn lookup_chain(
        &self,
        caller: &Caller,
        start: FileHandle,
        names: &[&[u8]],
    ) -> Result<Object, OpError> {
        let room = self.session().await?.limits.operations as usize;
        let mut handle = start;
        let mut object = None;
        for chunk in names.chunks(room.saturating_sub(CHAIN_EXTRA).max(1)) {
            let mut ops = vec![put(handle)];
            for name in chunk {
                ops.push(Op::Lookup(LookupArgs { name: component(name)? }));
            }
            ops.extend([Op::GetFh, get_attributes()]);
            let mut results = self.read_only(caller, &ops).await?;
            results.skip_many(1 + chunk.len())?;
            let found = take_object(&mut results)?;
            handle = found.handle;
            object = Some(found);
        }
        match object {
            Some(object) => Ok(object),
            None => Ok(Object { handle: start, attributes: self.get_attributes(caller, start).await? }),
        }
    }
}
