//! COMMIT: the whole file is synced, whatever the range (`sync_file_range` promises nothing durable), and nothing at
//! all where every write since the last sync is on stable storage already.

use std::sync::Arc;

use vfs::{Change, Context, Error, Handle, Op, Result};

use crate::durable::Caller;
use crate::object::Object;
use crate::sync_state::Extent;
use crate::turn::Turn;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn commit<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change> {
        let later = || {
            let file = *file;
            move |volume: &Arc<Self>| volume.judge_commit(&file, offset, count)
        };
        let caller = Caller::of(context);
        let now = || self.judge_commit(file, offset, count);
        self.take_turn((Turn::Look, context.peer), now, later, move |(object, change)| {
            match object.dirt.outstanding() {
                Some(outstanding) => Op::pending(async move {
                    self.make_durable(&object, outstanding, Extent::Data, caller).await?;
                    Ok(change)
                }),
                None => Op::ok(change),
            }
        })
    }

    fn judge_commit(&self, file: &Handle, offset: u64, count: u64) -> Result<(Arc<Object>, Change)> {
        let object = self.object(file)?;
        object.require_regular()?;
        // RFC 8881 §18.3.3: a range beyond 64 bits is NFS4ERR_INVAL.
        offset.checked_add(count).ok_or(Error::Invalid)?;
        let snapshot = self.stat(&object)?;
        Ok((object, Self::no_change(&snapshot)))
    }
}
