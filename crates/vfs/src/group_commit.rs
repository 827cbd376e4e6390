//! Group commit: the changes of several operations become durable together, before their request is answered.

use core::any::Any;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Error, Peer, Thread};

/// Makes deferred changes durable: a backend, for its own changes.
pub trait Committer: Send + Sync + 'static {
    /// A change that was made, and is not durable yet.
    type Change: Send + 'static;

    /// Makes `changes` durable. Each comes with the number of its operation, in ascending order. `thread` and `peer` are those of
    /// the request.
    fn commit(self: Arc<Self>, changes: Vec<(u32, Self::Change)>, thread: Thread, peer: Peer) -> Committing;
}

/// Waits until changes are durable.
pub type Committing = Pin<Box<dyn Future<Output = Result<(), NotDurable>> + Send>>;

/// The first operation whose changes are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotDurable {
    /// Its number.
    pub operation: u32,
    /// Why they are not durable.
    pub error: Error,
}

/// Collects the changes of one request that are to become durable together.
///
/// A backend that finds it in the [`Context`](crate::Context) of an operation may answer before the change is durable, if it
/// [defers](Self::defer) the change. The caller sends no answer before [`Self::commit`]. Each operation defers only a few changes,
/// so that the number of operations bounds them.
#[derive(Default)]
pub struct GroupCommit {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the running operation.
    operation: u32,
    /// The number of the last operation that deferred a change.
    last: Option<u32>,
    groups: Vec<Box<dyn Group>>,
}

impl GroupCommit {
    /// Sets the number of the operation whose changes follow. Numbers ascend.
    pub fn begin_operation(&self, number: u32) {
        self.state.lock().operation = number;
    }

    /// Returns the number of the running operation, if it has deferred a change; otherwise its changes are durable.
    #[must_use]
    pub fn deferred(&self) -> Option<u32> {
        let state = self.state.lock();
        state.last.filter(|last| *last == state.operation)
    }

    /// Returns the number of the last operation with a deferred change; `None` if nothing waits for [`Self::commit`].
    #[must_use]
    pub fn last_deferred(&self) -> Option<u32> {
        self.state.lock().last
    }

    /// Defers a change of the running operation.
    pub fn defer<C: Committer>(&self, committer: &Arc<C>, change: C::Change) {
        let state = &mut *self.state.lock();
        let operation = state.operation;
        state.last = Some(operation);
        for group in &mut state.groups {
            let group: &mut dyn Any = &mut **group;
            if let Some(group) = group.downcast_mut::<ChangesOf<C>>()
                && Arc::ptr_eq(&group.committer, committer)
            {
                group.changes.push((operation, change));
                return;
            }
        }
        let (committer, changes) = (Arc::clone(committer), vec![(operation, change)]);
        state.groups.push(Box::new(ChangesOf { committer, changes }));
    }

    /// Takes the deferred changes of another request, as changes of the running operation.
    pub fn absorb(&self, other: &Self) {
        let groups = core::mem::take(&mut *other.state.lock()).groups;
        let state = &mut *self.state.lock();
        for group in groups {
            state.last = Some(state.operation);
            let operation = state.operation;
            let joined =
                state.groups.iter_mut().try_fold(group, |group, own| match own.join(group, operation) {
                    Some(group) => Ok(group),
                    None => Err(()),
                });
            if let Ok(mut group) = joined {
                group.renumber(operation);
                state.groups.push(group);
            }
        }
    }

    /// Makes all deferred changes durable, also those after a failure.
    ///
    /// # Errors
    /// The first operation with a change that is not durable.
    pub async fn commit(&self, thread: Thread, peer: Peer) -> Result<(), NotDurable> {
        let groups = {
            let mut state = self.state.lock();
            state.last = None;
            core::mem::take(&mut state.groups)
        };
        let mut first: Option<NotDurable> = None;
        for group in groups {
            if let Err(failed) = group.commit(thread, peer).await
                && first.is_none_or(|first| failed.operation < first.operation)
            {
                first = Some(failed);
            }
        }
        first.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("GroupCommit")
            .field("operation", &state.operation)
            .field("last_deferred", &state.last)
            .finish_non_exhaustive()
    }
}

/// The deferred changes of one backend, whatever its type.
trait Group: Any + Send {
    /// Adds the changes of another group, as changes of this operation. Returns the group if it is of another backend.
    fn join(&mut self, other: Box<dyn Group>, operation: u32) -> Option<Box<dyn Group>>;

    /// Makes all changes those of this operation.
    fn renumber(&mut self, operation: u32);

    fn commit(self: Box<Self>, thread: Thread, peer: Peer) -> Committing;
}

struct ChangesOf<C: Committer> {
    committer: Arc<C>,
    changes: Vec<(u32, C::Change)>,
}

impl<C: Committer> Group for ChangesOf<C> {
    fn join(&mut self, mut other: Box<dyn Group>, operation: u32) -> Option<Box<dyn Group>> {
        let changes: &mut dyn Any = &mut *other;
        match changes.downcast_mut::<Self>() {
            Some(changes) if Arc::ptr_eq(&changes.committer, &self.committer) => {
                self.changes.extend(changes.changes.drain(..).map(|(_, change)| (operation, change)));
                None
            }
            _ => Some(other),
        }
    }

    fn renumber(&mut self, operation: u32) {
        self.changes.iter_mut().for_each(|(number, _)| *number = operation);
    }

    fn commit(self: Box<Self>, thread: Thread, peer: Peer) -> Committing {
        self.committer.commit(self.changes, thread, peer)
    }
}

#[cfg(test)]
mod tests {
    use core::future::ready;

    use super::*;

    /// Fails for one operation, and keeps what it committed.
    #[derive(Default)]
    struct Disk {
        fails_at: Option<u32>,
        committed: Mutex<Vec<(u32, char)>>,
    }

    impl Committer for Disk {
        type Change = char;
        fn commit(self: Arc<Self>, changes: Vec<(u32, char)>, _: Thread, _: Peer) -> Committing {
            self.committed.lock().extend(changes);
            let failed = self.fails_at.map(|operation| NotDurable { operation, error: Error::Io });
            Box::pin(ready(failed.map_or(Ok(()), Err)))
        }
    }

    fn commit(group: &GroupCommit) -> Result<(), NotDurable> {
        let mut committing = core::pin::pin!(group.commit(Thread::Shared, Peer::default()));
        let mut context = core::task::Context::from_waker(core::task::Waker::noop());
        match committing.as_mut().poll(&mut context) {
            core::task::Poll::Ready(committed) => committed,
            core::task::Poll::Pending => panic!("the disks do not wait"),
        }
    }

    #[test]
    fn each_backend_commits_its_own_changes_once() {
        let (one, two) = (Arc::new(Disk::default()), Arc::new(Disk::default()));
        let group = GroupCommit::default();
        for (operation, disk, change) in [(1, &one, 'a'), (2, &two, 'b'), (4, &one, 'c')] {
            group.begin_operation(operation);
            group.defer(disk, change);
        }
        assert_eq!(group.last_deferred(), Some(4));
        assert_eq!(commit(&group), Ok(()));
        assert_eq!(*one.committed.lock(), [(1, 'a'), (4, 'c')]);
        assert_eq!(*two.committed.lock(), [(2, 'b')]);
        assert_eq!((group.last_deferred(), commit(&group)), (None, Ok(())));
        assert_eq!(one.committed.lock().len(), 2);
    }

    #[test]
    fn absorbed_changes_are_those_of_the_running_operation() {
        let (one, two) = (Arc::new(Disk::default()), Arc::new(Disk::default()));
        let (group, other) = (GroupCommit::default(), GroupCommit::default());
        group.defer(&one, 'a');
        other.defer(&one, 'b');
        other.defer(&two, 'c');
        group.begin_operation(5);
        group.absorb(&other);
        assert_eq!((group.deferred(), other.last_deferred()), (Some(5), None));
        assert_eq!(commit(&group), Ok(()));
        assert_eq!(*one.committed.lock(), [(0, 'a'), (5, 'b')]);
        assert_eq!(*two.committed.lock(), [(5, 'c')]);
        assert_eq!(commit(&other), Ok(()), "nothing is left");
        assert_eq!(two.committed.lock().len(), 1);
    }

    #[test]
    fn the_first_operation_that_failed_is_reported() {
        let failing = |operation| Arc::new(Disk { fails_at: Some(operation), ..Disk::default() });
        let (late, early, good) = (failing(7), failing(3), Arc::new(Disk::default()));
        let group = GroupCommit::default();
        group.defer(&late, 'a');
        group.defer(&early, 'b');
        group.defer(&good, 'c');
        assert_eq!(commit(&group), Err(NotDurable { operation: 3, error: Error::Io }));
        assert_eq!(good.committed.lock().len(), 1, "committed although others failed");
    }
}
