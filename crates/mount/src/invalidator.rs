//! The threads that drop what the kernel caches. The kernel waits for READs under way when it drops pages, and for operations on names of a
//! directory when it drops a name of it, so a thread that answers requests must not do it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use fuse::{NodeId, Notifier};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cached_names::{CachedName, CachedNames, Target};

/// An inode whose pages are dropped, and the operation that waits for it; without one, the inode is in [`Later`]. There are at most as many
/// as operations under way, which the kernel bounds, and inodes.
type Pages = (NodeId, Option<oneshot::Sender<()>>);

/// Inodes whose pages will be dropped, each once.
type Later = Arc<Mutex<HashSet<NodeId>>>;

/// What the kernel should drop if no program uses it.
#[derive(Debug, Default)]
pub(crate) struct Unused {
    /// Inodes to forget.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) names: Vec<CachedName>,
}

/// Work of the thread for names.
enum Work {
    /// There are at most as many as the lookups that ask for it.
    Drop(Unused),
    /// Look at [`Outdated`].
    Expire,
}

/// Inodes whose attributes the kernel must request again, with whether the names in them must be looked up again.
type Outdated = Arc<Mutex<HashMap<NodeId, bool>>>;

/// A handle to the threads, which end with it.
#[derive(Debug)]
pub(crate) struct Invalidator {
    notifier: Notifier,
    pages: mpsc::Sender<Pages>,
    later: Later,
    /// Has a thread of its own: a lock waits for pages, and must not wait for operations on names.
    names: mpsc::Sender<Work>,
    outdated: Outdated,
}

impl Invalidator {
    /// # Errors
    /// EAGAIN if a thread cannot be started.
    pub(crate) fn start(notifier: Notifier, cached: Arc<CachedNames>) -> io::Result<Self> {
        let (pages, requests) = mpsc::channel::<Pages>();
        let later = Later::default();
        let (own, own_later) = (notifier.clone(), Arc::clone(&later));
        thread::Builder::new().name("fuse-invalidate".to_owned()).spawn(move || {
            for (node, done) in requests {
                if done.is_none() {
                    own_later.lock().remove(&node);
                }
                report(own.invalidate_inode(node, 0, 0));
                // The waiting task may have stopped.
                let _ = done.map(|done| done.send(()));
            }
        })?;
        let (names, requests) = mpsc::channel::<Work>();
        let outdated = Outdated::default();
        let (own, own_outdated) = (notifier.clone(), Arc::clone(&outdated));
        thread::Builder::new().name("fuse-names".to_owned()).spawn(move || {
            for work in requests {
                match work {
                    Work::Drop(unused) => drop_unused(&own, &unused),
                    Work::Expire => {
                        let outdated = std::mem::take(&mut *own_outdated.lock());
                        outdated.into_iter().for_each(|(node, names)| expire(&own, &cached, node, names));
                    }
                }
            }
        })?;
        Ok(Self { notifier, pages, later, names, outdated })
    }

    /// Returns whether the kernel can be asked to forget inodes. Otherwise only their names can be dropped.
    pub(crate) fn forgets_nodes(&self) -> bool {
        self.notifier.can_prune()
    }

    /// Makes the kernel request attributes before it uses them again. Waits for no request.
    pub(crate) fn expire_attributes(&self, node: NodeId) {
        // A negative offset keeps pages.
        report(self.notifier.invalidate_inode(node, -1, 0));
    }

    /// As [`Self::expire_attributes`], and for the names of a directory too. Waits for nothing.
    pub(crate) fn expire(&self, node: NodeId, names: bool) {
        let mut outdated = self.outdated.lock();
        let is_first = outdated.is_empty();
        *outdated.entry(node).or_default() |= names;
        drop(outdated);
        if is_first {
            // The thread has ended with the mount.
            let _ = self.names.send(Work::Expire);
        }
    }

    /// Drops attributes and pages.
    pub(crate) async fn drop_pages(&self, node: NodeId) {
        let (done, is_done) = oneshot::channel();
        if self.pages.send((node, Some(done))).is_ok() {
            // The thread answers, or has ended with the mount.
            let _ = is_done.await;
        }
    }

    /// As [`Self::drop_pages`]. Waits for nothing.
    pub(crate) fn drop_pages_later(&self, node: NodeId) {
        if self.later.lock().insert(node) {
            // The thread has ended with the mount.
            let _ = self.pages.send((node, None));
        }
    }

    /// Makes the kernel drop what no program uses. Waits for nothing.
    pub(crate) fn drop_unused(&self, unused: Unused) {
        if !unused.nodes.is_empty() || !unused.names.is_empty() {
            // The thread has ended with the mount.
            let _ = self.names.send(Work::Drop(unused));
        }
    }
}

fn drop_unused(notifier: &Notifier, unused: &Unused) {
    if !unused.nodes.is_empty() {
        report(notifier.prune(&unused.nodes));
    }
    for (directory, name) in &unused.names {
        report(notifier.invalidate_entry(*directory, name));
    }
}

fn expire(notifier: &Notifier, cached: &CachedNames, node: NodeId, names: bool) {
    report(notifier.invalidate_inode(node, -1, 0));
    if !names {
        return;
    }
    for (name, target) in cached.of(node) {
        if notifier.can_expire() {
            report(notifier.expire_entry(node, &name));
        } else if target == Target::Absent {
            // A name of an object would be dropped, although programs use it.
            report(notifier.invalidate_entry(node, &name));
        }
    }
}

fn report(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "cannot invalidate in the kernel");
    }
}
