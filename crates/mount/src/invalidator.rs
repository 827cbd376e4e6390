//! The thread that drops pages and inodes of the kernel. The kernel waits for READs under way when it drops pages, so a thread that
//! answers requests must not do it.

use std::io;
use std::sync::mpsc;
use std::thread;

use fuse::{NodeId, Notifier};
use tokio::sync::oneshot;

/// Work of the thread.
enum Drop {
    /// Drop the pages of an inode. There are at most as many as operations under way, which the kernel bounds.
    Pages(NodeId, oneshot::Sender<()>),
    /// Forget inodes that no program uses. There are at most as many as the lookups that ask for it.
    Unused(Vec<NodeId>),
}

/// A handle to the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Invalidator {
    notifier: Notifier,
    queue: mpsc::Sender<Drop>,
}

impl Invalidator {
    /// # Errors
    /// EAGAIN if the thread cannot be started.
    pub(crate) fn start(notifier: Notifier) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel::<Drop>();
        let own = notifier.clone();
        thread::Builder::new().name("fuse-invalidate".to_owned()).spawn(move || {
            for request in requests {
                match request {
                    Drop::Pages(node, done) => {
                        report(own.invalidate_inode(node, 0, 0));
                        // The waiting task may have stopped.
                        let _ = done.send(());
                    }
                    Drop::Unused(nodes) => report(own.prune(&nodes)),
                }
            }
        })?;
        Ok(Self { notifier, queue })
    }

    /// Makes the kernel request attributes before it uses them again. Waits for no request.
    pub(crate) fn expire_attributes(&self, node: NodeId) {
        // A negative offset keeps pages.
        report(self.notifier.invalidate_inode(node, -1, 0));
    }

    /// Drops attributes and pages.
    pub(crate) async fn drop_pages(&self, node: NodeId) {
        let (done, is_done) = oneshot::channel();
        if self.queue.send(Drop::Pages(node, done)).is_ok() {
            // The thread answers, or has ended with the mount.
            let _ = is_done.await;
        }
    }

    /// Makes the kernel forget inodes that no program uses. Waits for nothing.
    pub(crate) fn forget_unused(&self, nodes: Vec<NodeId>) {
        // The thread has ended with the mount.
        let _ = self.queue.send(Drop::Unused(nodes));
    }
}

fn report(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "cannot invalidate in the kernel");
    }
}
