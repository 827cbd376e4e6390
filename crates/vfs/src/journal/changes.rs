//! Changes of one object: logged, or made durable in the back end.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::files::Unstable;
use super::log::{JournalCounts, Reservation};
use super::record::{Action, Record};
use super::{Journaled, Order, error_of};
use crate::{
    Attributes, Authority, Backend, Change, Context, Credentials, Error, FileKind, GroupCommit, Handle,
    Payload, ReadRequest, Result, SetAttributes, SetTime, Stability, Timestamp, Written,
};

/// Maximum number of bytes of a WRITE that is logged. Larger ones gain less: the file system writes them in one piece.
pub(super) const WRITE_BYTES_MAX: usize = 128 << 10;

/// A change in the back end whose sync is deferred.
struct Deferred {
    group: Arc<GroupCommit>,
    context: Context,
}

impl Deferred {
    fn of(context: &Context) -> Self {
        let group = Arc::new(GroupCommit::default());
        let context = Context { group: Some(Arc::clone(&group)), ..context.clone() };
        Self { group, context }
    }
}

impl<B: Backend> Journaled<B> {
    /// A stable WRITE.
    pub(super) async fn write_stable(
        &self,
        context: Context,
        file: Handle,
        (offset, data): (u64, Bytes),
        (stability, authority): (Stability, Authority),
    ) -> Result<Written> {
        let order = self.files.lock(&file).await;
        let reservation = if data.len() <= WRITE_BYTES_MAX {
            self.reserve(&order, Record::bytes_max(data.len()))
        } else {
            None
        };
        let Some(reservation) = reservation else {
            return self
                .unlogged(&context, order, |context| async move {
                    self.inner.write(&context, &file, offset, &data, stability, authority).await
                })
                .await;
        };
        let deferred = Deferred::of(&context);
        let written = self.inner.write(&deferred.context, &file, offset, &data, stability, authority).await?;
        if written.count == 0 {
            return Ok(written);
        }
        let data = data.slice(..written.count as usize);
        let record = record(&context, file, &written.change.after, Action::Write { offset, data });
        let number = self.append(&order, &deferred, [(reservation, record)]);
        drop(order);
        self.answer(&context, number, written).await
    }

    /// An unstable WRITE.
    pub(super) async fn write_unstable(
        &self,
        context: Context,
        file: Handle,
        (offset, data): (u64, Bytes),
        authority: Authority,
    ) -> Result<Written> {
        if !self.files.has_room(&file) {
            return self.write_stable(context, file, (offset, data), (Stability::DataSync, authority)).await;
        }
        let written =
            self.inner.write(&context, &file, offset, &data, Stability::Unstable, authority).await?;
        Ok(self.note_written(&file, offset, written))
    }

    /// Notes data that a COMMIT has to make stable. Even if the back end did that already, an older change in the log could replace them.
    pub(super) fn note_written(&self, file: &Handle, offset: u64, mut written: Written) -> Written {
        let end = offset.saturating_add(written.count.into());
        if written.count > 0 {
            self.files.note_unstable(file, Some(offset..end));
            written.stability = Stability::Unstable;
        }
        written
    }

    /// COMMIT.
    pub(super) async fn commit_known(
        &self,
        context: &Context,
        file: &Handle,
        range: (u64, u64),
    ) -> Result<Change> {
        let order = self.files.lock(file).await;
        let (ranges, version) = match order.unstable() {
            (Unstable::Ranges(ranges), version) if !ranges.is_empty() || order.is_logged() => {
                (ranges, version)
            }
            _ => return self.commit_much(context, file, range, order).await,
        };
        let bytes = |range: &Range<u64>| Record::bytes_max((range.end - range.start) as usize);
        let reservations: Option<Vec<_>> =
            ranges.iter().map(|range| self.reserve(&order, bytes(range))).collect();
        let Some(reservations) = reservations else {
            return self.commit_much(context, file, range, order).await;
        };
        let deferred = Deferred::of(context);
        let change = self.inner.commit(&deferred.context, file, range.0, range.1).await?;
        let mut records = Vec::new();
        for (range, reservation) in ranges.into_iter().zip(reservations) {
            let (offset, data) = (range.start, self.read_back(file, range, context.now).await?);
            records
                .push((reservation, record(context, *file, &change.after, Action::Write { offset, data })));
        }
        self.append(&order, &deferred, records);
        self.files.clear_unstable(file, version);
        // Also the frames of other COMMITs, whose data are not unstable any more.
        let number = order.last();
        drop(order);
        self.answer(context, number, change).await
    }

    /// A COMMIT in the back end.
    async fn commit_much(
        &self,
        context: &Context,
        file: &Handle,
        (offset, count): (u64, u64),
        order: Order<'_>,
    ) -> Result<Change> {
        if order.is_logged() {
            self.empty_log().await?;
        }
        let (_, version) = order.unstable();
        // Other COMMITs of the file share its sync.
        drop(order);
        // Not deferred: afterwards other COMMITs do not wait for these data.
        let context = Context { group: None, ..context.clone() };
        let change = self.inner.commit(&context, file, offset, count).await?;
        self.files.clear_unstable(file, version);
        Ok(change)
    }

    /// Reads what is to be logged.
    async fn read_back(&self, file: &Handle, range: Range<u64>, now: Timestamp) -> Result<Bytes> {
        let context = Context::new(Credentials::root().into(), now);
        let count = (range.end - range.start) as u32;
        let request =
            ReadRequest { offset: range.start, count, may_splice: false, authority: Authority::Opened };
        let mut into = BytesMut::new();
        let read = self.inner.read(&context, file, request, &mut into).await?;
        match read.payload {
            Payload::Appended => Ok(into.freeze()),
            Payload::Bytes(bytes) => Ok(bytes),
            Payload::Range(_) => Err(Error::ServerFault),
        }
    }

    /// SETATTR.
    pub(super) async fn set(
        &self,
        context: &Context,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Result<Change> {
        let order = self.files.lock(file).await;
        let Some(reservation) = self.reserve(&order, Record::bytes_max(0)) else {
            return self
                .unlogged(context, order, |context| async move {
                    self.inner.setattr(&context, file, set, guard, authority).await
                })
                .await;
        };
        let deferred = Deferred::of(context);
        let change = self.inner.setattr(&deferred.context, file, set, guard, authority).await?;
        // See `before_removal`, which does not cover other kinds.
        if change.after.kind != FileKind::Regular {
            drop((order, reservation));
            Self::make_durable(context, &deferred.group).await?;
            return Ok(change);
        }
        let record = record(context, *file, &change.after, values(set, &change.after));
        let number = self.append(&order, &deferred, [(reservation, record)]);
        drop(order);
        self.answer(context, number, change).await
    }

    /// Prepares for a change of an object that is not logged. The change is to be made before the result is dropped.
    pub(super) async fn before_change(&self, file: &Handle) -> Result<Order<'_>> {
        let order = self.files.lock(file).await;
        if order.is_logged() {
            self.empty_log().await?;
        }
        Ok(order)
    }

    /// Prepares for the removal of a name. A back end may keep an object as long as its sync is deferred, and find it although it was
    /// removed.
    pub(super) async fn before_removal(
        &self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
    ) -> Result<Option<Order<'_>>> {
        match self.inner.lookup(context, directory, name).await {
            Ok(found) => self.before_change(&found.handle).await.map(Some),
            // The removal reports it.
            Err(_) => Ok(None),
        }
    }

    /// Makes a change that could have been logged durable in the back end.
    async fn unlogged<T, F: Future<Output = Result<T>>>(
        &self,
        context: &Context,
        order: Order<'_>,
        change: impl FnOnce(Context) -> F,
    ) -> Result<T> {
        JournalCounts::count(&self.log.counts().bypasses);
        self.checkpoints.want();
        if order.is_logged() {
            self.empty_log().await?;
        }
        let deferred = Deferred::of(context);
        let value = change(deferred.context).await?;
        // From here on, the order of changes does not depend on this one: it is made.
        drop(order);
        Self::make_durable(context, &deferred.group).await?;
        Ok(value)
    }

    /// Makes a change durable in the back end, or leaves that to the caller's group.
    async fn make_durable(context: &Context, changes: &GroupCommit) -> Result<()> {
        match &context.group {
            Some(group) => {
                group.absorb(changes);
                Ok(())
            }
            None => changes.commit(context.thread, context.peer).await.map_err(error_of),
        }
    }

    /// Reserves room for a record of an object.
    fn reserve(&self, order: &Order<'_>, bytes: usize) -> Option<Reservation<'_>> {
        if order.may_log() { self.log.reserve(bytes) } else { None }
    }

    /// Appends records of changes that were made. Returns the frame to wait for.
    fn append<'l>(
        &'l self,
        order: &Order<'_>,
        deferred: &Deferred,
        records: impl IntoIterator<Item = (Reservation<'l>, Record)>,
    ) -> u64 {
        let mut number = 0;
        {
            let pending = self.pending.lock();
            for (reservation, record) in records {
                number = reservation.append(&record);
                order.note_logged(number);
                JournalCounts::count(&self.log.counts().changes);
            }
            pending.absorb(&deferred.group);
        }
        if self.is_due() {
            self.checkpoints.want();
        }
        number
    }

    /// Answers when the frame is durable, or with the caller's other changes.
    async fn answer<T>(&self, context: &Context, number: u64, value: T) -> Result<T> {
        match &context.group {
            _ if number == 0 => {}
            Some(group) => group.defer(&self.log, number),
            None => self.log.wait(number).await?,
        }
        Ok(value)
    }
}

fn record(context: &Context, file: Handle, after: &Attributes, action: Action) -> Record {
    let caller = (context.credentials.uid, context.credentials.gid);
    Record { file, caller, modified: after.modified, action }
}

/// Returns the values that `set` gave a file, which has the attributes `after` now.
fn values(set: &SetAttributes, after: &Attributes) -> Action {
    // A change of the owner also changes set-ID bits.
    let sets_mode = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    Action::Set {
        mode: sets_mode.then_some(after.mode),
        uid: set.uid.map(|_| after.uid),
        gid: set.gid.map(|_| after.gid),
        size: set.size,
        accessed: set.accessed.map(|time| match time {
            SetTime::To(time) | SetTime::Kept(time) => time,
            SetTime::Now => after.accessed,
        }),
    }
}
