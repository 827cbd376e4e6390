//! The thread that drops pages of the kernel. The kernel waits for READs under way when it drops pages, so a thread that
//! answers requests must not do it.

use std::io;
use std::sync::mpsc;
use std::thread;

use fuse::{NodeId, Notifier};
use tokio::sync::oneshot;

/// A request to drop the pages of an inode; at most as many as operations under way, which the kernel bounds.
type Drop = (NodeId, oneshot::Sender<()>);

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
            for (node, done) in requests {
                report(own.invalidate_inode(node, 0, 0));
                // The waiting task may have stopped.
                let _ = done.send(());
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
        if self.queue.send((node, done)).is_ok() {
            // The thread answers, or has ended with the mount.
            let _ = is_done.await;
        }
    }
}

fn report(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "cannot invalidate in the kernel");
    }
}
