//! COMMIT: syncs the whole file for any range, because `sync_file_range` makes nothing durable. Does nothing
//! if all writes are durable already.

use std::sync::Arc;

use vfs::{Change, Context, Error, Handle, Op, Result};

use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::object::Object;
use crate::sync_state::Extent;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn commit<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change> {
        let make_job = || {
            let file = *file;
            move |volume: &Arc<Self>| volume.check_commit(&file, offset, count)
        };
        let caller = SyncCaller::of(context);
        let in_place = || self.check_commit(file, offset, count);
        self.run_op((OpKind::Read, context.peer), in_place, make_job, move |(object, change)| {
            match object.sync_state.unsynced_change() {
                Some(unsynced) => self.answer_when_synced(caller, (object, unsynced, Extent::Data), change),
                None => Op::ok(change),
            }
        })
    }

    fn check_commit(&self, file: &Handle, offset: u64, count: u64) -> Result<(Arc<Object>, Change)> {
        let object = self.object(file)?;
        object.require_regular()?;
        // RFC 8881 §18.3.3: a range beyond 64 bits is NFS4ERR_INVAL.
        offset.checked_add(count).ok_or(Error::Invalid)?;
        let snapshot = self.stat(&object)?;
        Ok((object, Self::no_change(&snapshot)))
    }
}
