//! CLONE (RFC 7862 §15.13): lets a file share the blocks of another.

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::space::CloneArgs;

use super::super::Nfs4;
use super::super::getattr::{get_attributes, get_change, take_attributes, take_change};
use super::super::wire::put;
use crate::attributes::{Before, Changed};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{FileHandle, OpenState, Ranges};

impl Nfs4 {
    /// Clones a range of one file into another.
    pub(crate) async fn clone_range(
        &self,
        caller: &Caller,
        source: (FileHandle, &OpenState),
        destination: (FileHandle, &OpenState),
        ranges: Ranges,
    ) -> Result<Changed, OpError> {
        self.needs_4_2("CLONE")?;
        let Ranges { source_offset, destination_offset, count } = ranges;
        self.with_stateid(destination.1, async |destination_stateid| {
            self.with_stateid(source.1, async |source_stateid| {
                let clone = CloneArgs {
                    source_stateid,
                    destination_stateid,
                    source_offset,
                    destination_offset,
                    count,
                };
                let ops = [
                    put(source.0),
                    Op::SaveFh,
                    put(destination.0),
                    get_change(),
                    Op::Clone(clone),
                    get_attributes(),
                ];
                let mut results = self.change(caller, &ops).await?;
                results.skip_many(3)?;
                let before = take_change(&mut results)?.map(Before::Change);
                results.skip()?;
                Ok(Changed { before, after: take_attributes(&mut results).ok(), ..Changed::default() })
            })
            .await
        })
        .await
    }
}
