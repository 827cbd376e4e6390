//! Passes requests of the kernel to [`Files`], and replies back.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use fuse::{
    Answer, Caller, Copied, Created, Data, Entry, Errno, Filesystem, Forget, GrantedAttributes, Lock,
    LockKind, LockRange, NodeId, Opened, Readdir, Reply, Statistics, XattrReply,
};
use tokio::sync::mpsc;

use crate::files::{Files, Granted};

/// A file system whose operations run in an [`Executor`].
pub struct Adapter {
    files: Arc<Files>,
    /// The queue of requests; the kernel bounds the requests under way.
    queue: mpsc::UnboundedSender<Job>,
    active: Arc<AtomicUsize>,
}

/// Counts an operation until it is dropped.
struct Active(Arc<AtomicUsize>);

impl Active {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts an operation in the executor's thread, which keeps its future.
type Job = Box<dyn FnOnce() -> Task + Send>;
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs operations in one thread, which is that of the client's connections: their replies need no other one.
pub struct Executor {
    queue: mpsc::UnboundedReceiver<Job>,
}

impl Executor {
    /// Runs operations until the adapter is dropped. Must run in a [`tokio::task::LocalSet`].
    pub async fn run(mut self) {
        while let Some(job) = self.queue.recv().await {
            tokio::task::spawn_local(job());
        }
    }
}

/// The treatment of an operation whose program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It is abandoned: it changes nothing.
    GiveUp,
    /// It continues, and the state that it grants is released.
    Finish,
}

impl Adapter {
    /// Creates an adapter and the executor of its operations.
    pub fn new(files: Arc<Files>) -> (Self, Executor) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { files, queue: sender, active: Arc::default() }, Executor { queue: receiver })
    }

    /// Returns the number of operations that have not ended, those with an answer that is not needed any more among them.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Runs an operation and answers its request.
    fn run<T, W, F>(&self, reply: Reply<T>, wait: Wait, work: W)
    where
        T: Answer + Grant + 'static,
        W: FnOnce(Arc<Files>) -> F + Send + 'static,
        F: Future<Output = Result<T, Errno>> + 'static,
    {
        self.start(move |files| async move {
            let Some(result) = result_of(work(Arc::clone(&files)), &reply, wait).await else { return };
            let granted = result.as_ref().map_or(Granted::Nothing, Grant::granted);
            if reply.send(result).is_err() {
                files.take_back(granted).await;
            }
        });
    }

    /// Sets a lock; waits for it if the wait can be abandoned.
    fn lock(&self, request: Lock, reply: Reply<()>, wait: Wait) {
        self.start(move |files| async move {
            let locking = files.set_lock(&request, wait == Wait::GiveUp);
            let Some(result) = result_of(locking, &reply, wait).await else { return };
            let is_granted = result.is_ok() && request.range.kind != LockKind::Unlock;
            if reply.send(result).is_err() && is_granted {
                files.take_lock_back(&request).await;
            }
        });
    }

    fn start<W, F>(&self, work: W)
    where
        W: FnOnce(Arc<Files>) -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let files = Arc::clone(&self.files);
        let active = Active::new(&self.active);
        // Without an executor the mount has ended: a dropped reply is an error.
        let _ = self.queue.send(Box::new(move || {
            let work = work(files);
            Box::pin(async move {
                let _active = active;
                work.await;
            })
        }));
    }
}

/// Waits for an operation. `None` if it was abandoned.
async fn result_of<T: Answer>(
    work: impl Future<Output = Result<T, Errno>>,
    reply: &Reply<T>,
    wait: Wait,
) -> Option<Result<T, Errno>> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        match wait {
            Wait::GiveUp => reply.poll_unwanted(context).map(|()| None),
            Wait::Finish => Poll::Pending,
        }
    })
    .await
}

/// The state that an answer grants.
trait Grant {
    fn granted(&self) -> Granted {
        Granted::Nothing
    }
}

impl Grant for () {}
impl Grant for Data {}
impl Grant for Copied {}
impl Grant for GrantedAttributes {}
impl Grant for LockRange {}
impl Grant for XattrReply {}
impl Grant for u64 {}
impl Grant for Statistics {}

impl Grant for Entry {
    fn granted(&self) -> Granted {
        // Node 0 is a missing name.
        if self.node == NodeId(0) { Granted::Nothing } else { Granted::Lookups(vec![self.node]) }
    }
}

impl Grant for Opened {
    fn granted(&self) -> Granted {
        Granted::Open(self.handle)
    }
}

impl Grant for Created {
    fn granted(&self) -> Granted {
        Granted::Created(self.entry.node, self.opened.handle)
    }
}

/// Defines the methods that pass a request to the operation of the same name.
macro_rules! pass {
    ($($method:ident($request:ident) -> $answer:ty: $wait:ident;)*) => {
        $(
            fn $method(&self, caller: Caller, request: fuse::$request, reply: Reply<$answer>) {
                self.run(reply, Wait::$wait, move |files| async move { files.$method(caller, request).await });
            }
        )*
    };
}

impl Filesystem for Adapter {
    pass! {
        lookup(Lookup) -> Entry: Finish;
        getattr(Getattr) -> GrantedAttributes: GiveUp;
        setattr(Setattr) -> GrantedAttributes: Finish;
        readlink(Readlink) -> Data: GiveUp;
        symlink(Symlink) -> Entry: Finish;
        mknod(Mknod) -> Entry: Finish;
        mkdir(Mkdir) -> Entry: Finish;
        unlink(Unlink) -> (): Finish;
        rmdir(Rmdir) -> (): Finish;
        rename(Rename) -> (): Finish;
        link(Link) -> Entry: Finish;
        open(Open) -> Opened: Finish;
        read(Read) -> Data: GiveUp;
        write(Write) -> Copied: Finish;
        statfs(Statfs) -> Statistics: GiveUp;
        release(Release) -> (): Finish;
        fsync(Fsync) -> (): Finish;
        flush(Flush) -> (): Finish;
        opendir(Open) -> Opened: Finish;
        readdir(Readdir) -> Data: GiveUp;
        releasedir(Release) -> (): Finish;
        fsyncdir(Fsync) -> (): Finish;
        access(Access) -> (): GiveUp;
        create(Create) -> Created: Finish;
        getlk(Lock) -> LockRange: GiveUp;
        getxattr(Getxattr) -> XattrReply: GiveUp;
        listxattr(Listxattr) -> XattrReply: GiveUp;
        setxattr(Setxattr) -> (): Finish;
        removexattr(Removexattr) -> (): Finish;
        fallocate(Fallocate) -> (): Finish;
        lseek(Lseek) -> u64: GiveUp;
        copy_file_range(CopyFileRange) -> Copied: Finish;
    }

    fn readdirplus(&self, _: Caller, request: Readdir, reply: Reply<Data>) {
        self.start(move |files| async move {
            let listed = files.readdirplus(request).await;
            let (result, lookups) = match listed {
                Ok((data, lookups)) => (Ok(data), lookups),
                Err(error) => (Err(error), Vec::new()),
            };
            if reply.send(result).is_err() {
                files.take_back(Granted::Lookups(lookups)).await;
            }
        });
    }

    fn setlk(&self, _: Caller, request: Lock, reply: Reply<()>) {
        self.lock(request, reply, Wait::Finish);
    }

    fn setlkw(&self, _: Caller, request: Lock, reply: Reply<()>) {
        self.lock(request, reply, Wait::GiveUp);
    }

    fn forget(&self, forgets: &[Forget]) {
        self.files.forget(forgets);
    }
}
