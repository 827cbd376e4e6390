//! Watched directories: delegations of directories with notifications (RFC 8881 §10.9), and what the server has told about them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::types::{Handle, Stateid, Status};

/// Maximum number of events that wait for the watcher. Directories with more are compared as a whole.
const EVENTS_MAX: usize = 1 << 14;

/// What the server has told about a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryEvent {
    /// An entry was added, or has replaced another.
    Added(Bytes),
    /// An entry was removed.
    Removed(Bytes),
    /// An entry was renamed within the directory.
    Renamed {
        /// The name before.
        from: Bytes,
        /// The name after.
        to: Bytes,
    },
    /// The server recalls the delegation: the directory may have changed.
    Recalled,
    /// The server has forgotten the delegation, for instance by a restart: the directory may have changed.
    Lost,
}

/// The outcome of a request to watch a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryWatch {
    /// Changes will be events.
    Watched,
    /// The server does not watch this directory now.
    Unavailable,
}

/// The watched directories of a client.
#[derive(Debug, Default)]
pub(crate) struct DirectoryWatches {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Delegations that are held, by directory.
    held: HashMap<Handle, Stateid>,
    /// Directories for which a delegation is being requested: a notification can come before the reply.
    requested: HashSet<Handle>,
    events: VecDeque<(Handle, DirectoryEvent)>,
    waker: Option<Waker>,
}

impl Inner {
    fn push(&mut self, directory: Handle, event: DirectoryEvent) {
        self.events.push_back((directory, event));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn knows(&self, directory: &Handle, stateid: &Stateid) -> bool {
        match self.held.get(directory) {
            Some(held) => held.other == stateid.other,
            None => self.requested.contains(directory),
        }
    }
}

/// Requests for delegations that are under way.
pub(crate) struct Requests<'a> {
    watches: &'a DirectoryWatches,
    directories: Vec<Handle>,
}

impl Drop for Requests<'_> {
    fn drop(&mut self) {
        let mut inner = self.watches.inner.lock();
        self.directories.iter().for_each(|directory| _ = inner.requested.remove(directory));
    }
}

impl DirectoryWatches {
    /// Notes that delegations of directories are requested, as long as the result exists.
    pub(crate) fn request(&self, directories: &[Handle]) -> Requests<'_> {
        self.inner.lock().requested.extend(directories);
        Requests { watches: self, directories: directories.to_vec() }
    }

    /// Returns whether directories are watched, or will be.
    pub(crate) fn is_used(&self) -> bool {
        let inner = self.inner.lock();
        !(inner.held.is_empty() && inner.requested.is_empty())
    }

    /// Notes the end of a request.
    pub(crate) fn requested(&self, directory: Handle, granted: Option<Stateid>) {
        let mut inner = self.inner.lock();
        inner.requested.remove(&directory);
        if let Some(stateid) = granted {
            inner.held.insert(directory, stateid);
        }
    }

    /// Adds the events of a CB_NOTIFY.
    ///
    /// # Errors
    /// The status of the reply. DELAY if too many events wait: the server then recalls the delegation.
    pub(crate) fn notified(
        &self,
        directory: Handle,
        stateid: &Stateid,
        events: Vec<DirectoryEvent>,
    ) -> Result<(), Status> {
        let mut inner = self.inner.lock();
        if !inner.knows(&directory, stateid) {
            return Err(Status::BAD_STATEID);
        }
        if inner.events.len() + events.len() > EVENTS_MAX {
            return Err(Status::DELAY);
        }
        events.into_iter().for_each(|event| inner.push(directory, event));
        Ok(())
    }

    /// Notes that the server recalls a delegation. Returns whether there is one.
    pub(crate) fn recalled(&self, directory: Handle, stateid: &Stateid) -> bool {
        let mut inner = self.inner.lock();
        let is_known = inner.knows(&directory, stateid);
        if is_known {
            inner.push(directory, DirectoryEvent::Recalled);
        }
        is_known
    }

    /// Notes that the server wants the client to keep at most `keep` delegations.
    pub(crate) fn recall_any(&self, keep: usize) {
        let mut inner = self.inner.lock();
        let excess: Vec<Handle> = inner.held.keys().copied().skip(keep).collect();
        excess.into_iter().for_each(|directory| inner.push(directory, DirectoryEvent::Recalled));
    }

    /// Notes that the server has forgotten a delegation, or all of them.
    pub(crate) fn lost(&self, directory: Option<&Handle>) {
        let mut inner = self.inner.lock();
        let lost: Vec<Handle> = match directory {
            Some(directory) => inner.held.remove(directory).map(|_| *directory).into_iter().collect(),
            None => inner.held.drain().map(|(directory, _)| directory).collect(),
        };
        lost.into_iter().for_each(|directory| inner.push(directory, DirectoryEvent::Lost));
    }

    /// Takes delegations out, which will be returned.
    pub(crate) fn take(&self, directories: &[Handle]) -> Vec<(Handle, Stateid)> {
        let mut inner = self.inner.lock();
        directories.iter().filter_map(|directory| inner.held.remove_entry(directory)).collect()
    }

    /// Takes all delegations out.
    pub(crate) fn take_all(&self) -> Vec<(Handle, Stateid)> {
        self.inner.lock().held.drain().collect()
    }

    /// Returns the delegations that are held.
    pub(crate) fn held(&self) -> Vec<(Handle, Stateid)> {
        self.inner.lock().held.iter().map(|(directory, stateid)| (*directory, *stateid)).collect()
    }

    /// Takes the events so far; waits for one if there are none.
    pub(crate) fn poll_events(&self, context: &mut Context<'_>) -> Poll<Vec<(Handle, DirectoryEvent)>> {
        let mut inner = self.inner.lock();
        if inner.events.is_empty() {
            inner.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(inner.events.drain(..).collect())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker_ref;

    use super::*;

    const DIRECTORY: &[u8] = b"directory";

    fn stateid(number: u8) -> Stateid {
        Stateid { seqid: 1, other: [number; 12] }
    }

    fn events(watches: &DirectoryWatches) -> Vec<DirectoryEvent> {
        match watches.poll_events(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(events) => events.into_iter().map(|(_, event)| event).collect(),
            Poll::Pending => Vec::new(),
        }
    }

    #[test]
    fn a_notification_before_the_reply_to_its_request_counts() {
        let (watches, directory) = (DirectoryWatches::default(), Handle::new(DIRECTORY).unwrap());
        let added = || vec![DirectoryEvent::Added(Bytes::from_static(b"a"))];
        assert_eq!(watches.notified(directory, &stateid(1), added()), Err(Status::BAD_STATEID));
        let _requests = watches.request(&[directory]);
        assert_eq!(watches.notified(directory, &stateid(1), added()), Ok(()));
        watches.requested(directory, Some(stateid(1)));
        assert_eq!(watches.notified(directory, &stateid(2), added()), Err(Status::BAD_STATEID));
        assert_eq!(events(&watches), added());
    }

    #[test]
    fn events_have_a_bound_and_recalls_come_nevertheless() {
        let (watches, directory) = (DirectoryWatches::default(), Handle::new(DIRECTORY).unwrap());
        let _requests = watches.request(&[directory]);
        watches.requested(directory, Some(stateid(1)));
        let removed = || vec![DirectoryEvent::Removed(Bytes::from_static(b"a"))];
        let outcomes = (0..=EVENTS_MAX).map(|_| watches.notified(directory, &stateid(1), removed()));
        assert_eq!(outcomes.last(), Some(Err(Status::DELAY)));
        assert!(watches.recalled(directory, &stateid(1)));
        let events = events(&watches);
        assert_eq!((events.len(), events.last()), (EVENTS_MAX + 1, Some(&DirectoryEvent::Recalled)));
    }
}
