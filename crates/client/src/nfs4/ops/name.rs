//! LOOKUP, and a path's chain of them (RFC 8881 §18.13).

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::lookup::LookupArgs;

use super::super::Nfs4;
use super::super::convert::component;
use super::super::getattr::{get_attributes, take_object};
use super::super::wire::{Results, put};
use super::filesystem::get_info;
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, FsInfo, Object};

/// Operations of a chain apart from its LOOKUPs: SEQUENCE, PUTFH, GETFH, GETATTR, and one more at the end.
const CHAIN_EXTRA: usize = 5;

impl Nfs4 {
    /// Looks up names from the root of the server's tree, as [`Self::lookup_chain`].
    pub(crate) async fn lookup_from_root(&self, caller: &Caller, names: &[&[u8]]) -> Result<Object, OpError> {
        Ok(self.chain(caller, Op::PutRootFh, names, &[]).await?.0)
    }

    /// As [`Self::lookup_from_root`]; returns the properties of the object's file system too.
    pub(crate) async fn mount(&self, caller: &Caller, names: &[&[u8]]) -> Result<(Object, FsInfo), OpError> {
        let (object, mut results) =
            self.chain(caller, Op::PutRootFh, names, &[get_info(self.minor_version)]).await?;
        Ok((object, self.take_info(&mut results).await?))
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
        match results.skip_many(2).and_then(|()| take_object(&mut results)) {
            Ok(found) => Ok(found),
            Err(error) => Err(Box::pin(self.with_places(error, caller, put(directory), &[name])).await),
        }
    }

    /// Looks up names one after the other, in one compound for as many as the session allows.
    pub(crate) async fn lookup_chain(
        &self,
        caller: &Caller,
        start: FileHandle,
        names: &[&[u8]],
    ) -> Result<Object, OpError> {
        Ok(self.chain(caller, put(start), names, &[]).await?.0)
    }

    /// Looks up names from the object of `start`, and executes `last` on the object found. Returns its results.
    async fn chain(
        &self,
        caller: &Caller,
        mut start: Op,
        mut names: &[&[u8]],
        last: &[Op],
    ) -> Result<(Object, Results), OpError> {
        let operations = self.session().await?.limits.operations as usize;
        let room = operations.saturating_sub(CHAIN_EXTRA).max(1);
        loop {
            let (next, rest) = names.split_at(names.len().min(room));
            let mut ops = vec![start.clone()];
            for name in next {
                ops.push(Op::Lookup(LookupArgs { name: component(name)? }));
            }
            ops.extend([Op::GetFh, get_attributes()]);
            if rest.is_empty() {
                ops.extend_from_slice(last);
            }
            let mut results = self.read_only(caller, &ops).await?;
            let found = match results.skip_many(1 + next.len()).and_then(|()| take_object(&mut results)) {
                Ok(found) => found,
                Err(error) => return Err(Box::pin(self.with_places(error, caller, start, next)).await),
            };
            if rest.is_empty() {
                return Ok((found, results));
            }
            (start, names) = (put(found.handle), rest);
        }
    }
}
