//! Sessions: negotiation, workers, stop.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::abi::{InHeader, opcode};
use crate::channel::{Channel, Pending};
use crate::device::{Device, Received};
use crate::filesystem::{Filesystem, dispatch};
use crate::flags::Capabilities;
use crate::hand_over::{Carried, HandOver};
use crate::interrupt::{Interrupts, watch};
use crate::negotiate::{Config, MAX_WRITE_MAX, MAX_WRITE_MIN, State, WORKERS_MAX, invalid, negotiate};
use crate::notify::Notifier;
use crate::request::{decode_forgets, decode_interrupt, split_header};
use crate::sys::Interruption;

mod buffers;

use buffers::Buffers;

/// Time between two signals to a worker that does not stop: it served a request when the last one came.
const STOP_INTERVAL: Duration = Duration::from_micros(200);

/// A mount whose requests are not served yet.
#[derive(Debug)]
pub struct Session {
    channels: Vec<Arc<Channel>>,
    state: State,
    carried: Vec<Carried>,
}

impl Session {
    /// Negotiates with the kernel on a fresh descriptor, as [`mount`](crate::mount) returns it. Waits for the kernel's INIT, which comes
    /// with the mount.
    ///
    /// # Errors
    /// `InvalidInput` if `config` exceeds a bound; `Unsupported` if the kernel is older than Linux 5.4; `NotConnected` if the file system
    /// is unmounted; errors of the device.
    pub fn new(device: OwnedFd, config: &Config) -> io::Result<Self> {
        let is_valid = (MAX_WRITE_MIN..=MAX_WRITE_MAX).contains(&config.max_write)
            && config.workers.get() <= WORKERS_MAX;
        if !is_valid {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "max_write must be {MAX_WRITE_MIN} to {MAX_WRITE_MAX} bytes and workers at most {WORKERS_MAX}"
                ),
            ));
        }
        let first = Channel::new(Device::from_fd(device));
        let state = negotiate(&first, config)?;
        let mut channels = vec![Arc::new(first)];
        for _ in 1..config.workers.get() {
            channels.push(Arc::new(Channel::new(channels[0].device().try_clone()?)));
        }
        Ok(Self { channels, state, carried: Vec::new() })
    }

    /// Continues a mount that another process, or a stopped session of this one, handed over. Requests that were handed over with
    /// it are served first.
    ///
    /// # Errors
    /// `InvalidData` if the description is not valid.
    pub fn resume(hand_over: HandOver) -> io::Result<Self> {
        let HandOver { devices, state, carried } = hand_over;
        state.validate()?;
        if devices.is_empty() || carried.iter().any(|request| request.channel as usize >= devices.len()) {
            return Err(invalid("the hand-over has no descriptor for a request"));
        }
        let channels = devices.into_iter().map(|fd| Arc::new(Channel::new(Device::from_fd(fd)))).collect();
        Ok(Self { channels, state, carried })
    }

    /// Continues a mount whose process crashed, on descriptors that were kept elsewhere (systemd's store). Requests that the crashed
    /// process did not answer are sent again by the kernel (Linux 6.9 and later, marked by [`Caller::is_resent`](crate::Caller)); older
    /// kernels end them with ECONNABORTED.
    ///
    /// # Errors
    /// As [`resume`](Self::resume); errors of the device.
    pub fn recover(devices: Vec<OwnedFd>, state: State) -> io::Result<Self> {
        let resends = state.capabilities.contains(Capabilities::HAS_RESEND);
        let mut session = Self::resume(HandOver { devices, state, carried: Vec::new() })?;
        if resends && session.notifier().resend().is_ok() {
            return Ok(session);
        }
        // The kernel ends the requests of a descriptor when it is closed, and the mount lives while one is open.
        let clones: io::Result<Vec<_>> = session
            .channels
            .iter()
            .map(|old| Ok(Arc::new(Channel::new(old.device().try_clone()?))))
            .collect();
        session.channels = clones?;
        Ok(session)
    }

    /// Returns the negotiated properties.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns a handle for notifications; it remains valid while the session serves.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.channels[0]), &self.state)
    }

    /// Returns a copy of each descriptor, to be kept elsewhere for [`recover`](Self::recover).
    ///
    /// # Errors
    /// EMFILE.
    pub fn duplicate_devices(&self) -> io::Result<Vec<OwnedFd>> {
        self.channels.iter().map(|channel| channel.device().duplicate()).collect()
    }

    /// Starts the threads that serve requests.
    ///
    /// # Errors
    /// EAGAIN if a thread cannot be started.
    pub fn serve<F: Filesystem>(mut self, filesystem: Arc<F>) -> io::Result<Serving> {
        let carried = std::mem::take(&mut self.carried);
        let (interrupts, watched) = Interrupts::new(self.channels.clone());
        let interrupts = Arc::new(interrupts);
        let shared = Arc::new(Shared {
            filesystem: Arc::clone(&filesystem),
            buffers: Buffers::new(self.state.buffer_size(), self.channels.len()),
            setxattr_ext: self.state.capabilities.contains(Capabilities::SETXATTR_EXT),
            interrupts: Arc::clone(&interrupts),
            is_stopping: Arc::default(),
        });
        let is_stopping = Arc::clone(&shared.is_stopping);
        // Workers that run already end after their next request.
        let stop = |_: &io::Error| is_stopping.store(true, Ordering::SeqCst);
        let mut workers = Vec::with_capacity(self.channels.len());
        let running = Arc::new(Running::default());
        for (number, channel) in self.channels.iter().enumerate() {
            let own = carried.iter().filter(|request| request.channel as usize == number);
            let own: Vec<Carried> = own.cloned().collect();
            let (shared, channel) = (Arc::clone(&shared), Arc::clone(channel));
            let running = Arc::clone(&running);
            let run = move || {
                let _running = running;
                shared.run(&channel, own)
            };
            workers.push(Builder::new().name(format!("fuse-{number}")).spawn(run).inspect_err(stop)?);
        }
        let watcher = Builder::new().name("fuse-interrupts".to_owned());
        let watcher = watcher.spawn(move || watch(&watched)).inspect_err(stop)?;
        // A stopped session may have left requests that were interrupted.
        for unique in self.channels.iter().flat_map(|channel| channel.interrupted()) {
            interrupts.interrupt(unique);
        }
        let watcher = Watcher { interrupts, thread: Some(watcher) };
        let running = Arc::downgrade(&running);
        Ok(Serving { session: self, workers, watcher, filesystem, is_stopping, running })
    }
}

/// Belongs to the workers that still run. Its end wakes the task that waits for theirs.
#[derive(Debug, Default)]
struct Running(Mutex<Option<Waker>>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(waker) = self.0.get_mut().take() {
            waker.wake();
        }
    }
}

/// The thread that watches interrupted requests; ends when dropped.
#[derive(Debug)]
struct Watcher {
    interrupts: Arc<Interrupts>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.interrupts.stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A mount whose requests are served.
#[derive(Debug)]
pub struct Serving {
    session: Session,
    workers: Vec<JoinHandle<io::Result<()>>>,
    watcher: Watcher,
    /// Kept until requests are withdrawn: it may own replies, and a dropped reply answers EIO.
    filesystem: Arc<dyn Any + Send + Sync>,
    is_stopping: Arc<AtomicBool>,
    running: Weak<Running>,
}

impl Serving {
    /// Returns the negotiated properties.
    pub fn state(&self) -> &State {
        &self.session.state
    }

    /// Returns a handle for notifications.
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// Returns the number of requests that are not answered.
    pub fn pending(&self) -> usize {
        self.session.channels.iter().map(|channel| channel.pending_count()).sum()
    }

    /// Returns the number of requests that are not answered although the kernel interrupted them.
    pub fn interrupted(&self) -> usize {
        self.session.channels.iter().map(|channel| channel.interrupted().len()).sum()
    }

    /// Returns the number of requests of each worker since the start.
    pub fn requests(&self) -> Vec<u64> {
        self.session.channels.iter().map(|channel| channel.requests()).collect()
    }

    /// As [`Session::duplicate_devices`].
    ///
    /// # Errors
    /// EMFILE.
    pub fn duplicate_devices(&self) -> io::Result<Vec<OwnedFd>> {
        self.session.duplicate_devices()
    }

    /// Is ready when all workers have ended, so that [`Self::wait`] returns at once. Keeps the waker of the last call.
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(running) = self.running.upgrade() else { return Poll::Ready(()) };
        *running.0.lock() = Some(context.waker().clone());
        // If the last worker has ended meanwhile, dropping `running` wakes the task.
        Poll::Pending
    }

    /// Waits until the file system is unmounted, or its connection aborted.
    ///
    /// # Errors
    /// The first error of the device by which a worker ended.
    pub fn wait(self) -> io::Result<()> {
        self.join().map(drop)
    }

    /// Stops reading requests, and returns when no worker reads any more. The kernel keeps further requests; those that were read can
    /// still be answered. Workers that wait in the kernel are interrupted by SIGURG.
    ///
    /// # Errors
    /// An error of the device.
    pub fn stop(self) -> io::Result<Stopped> {
        self.is_stopping.store(true, Ordering::SeqCst);
        let interruption = Interruption::new();
        while let Some(worker) = self.workers.iter().find(|worker| !worker.is_finished()) {
            interruption.interrupt(worker);
            thread::sleep(STOP_INTERVAL);
        }
        drop(interruption);
        self.join()
    }

    fn join(self) -> io::Result<Stopped> {
        let mut result = Ok(());
        for worker in self.workers {
            let ended = worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        result?;
        Ok(Stopped { session: self.session, _watcher: self.watcher, _filesystem: self.filesystem })
    }
}

/// A mount whose requests are not read. Those that were read before can be answered. Dropping it, when all replies are sent or dropped,
/// makes the mount dead (ENOTCONN) unless it was handed over.
#[derive(Debug)]
pub struct Stopped {
    session: Session,
    _watcher: Watcher,
    _filesystem: Arc<dyn Any + Send + Sync>,
}

impl Stopped {
    /// Returns the number of requests that are not answered.
    pub fn pending(&self) -> usize {
        self.session.channels.iter().map(|channel| channel.pending_count()).sum()
    }

    /// Returns the number of requests that are not answered, besides those that wait for a lock.
    pub fn unfinished(&self) -> usize {
        self.session.channels.iter().map(|channel| channel.pending_besides(opcode::SETLKW)).sum()
    }

    /// Returns the session, to serve further requests in this process. Requests that are not answered stay so; their replies
    /// are delivered.
    pub fn resume(self) -> Session {
        self.session
    }

    /// Takes all requests that are not answered, and returns them with the descriptors. Replies to them are not delivered from now on.
    /// If sending to another process fails, the result can be given to [`Session::resume`] in this one.
    ///
    /// # Errors
    /// EMFILE; then nothing is taken.
    pub fn hand_over(&self) -> io::Result<HandOver> {
        let devices = self.session.duplicate_devices()?;
        let mut carried = Vec::new();
        for (number, channel) in (0_u32..).zip(&self.session.channels) {
            let requests = channel.withdraw_all().into_iter();
            carried.extend(requests.map(|request| Carried {
                channel: number,
                is_interrupted: request.is_interrupted,
                message: request.message,
            }));
        }
        Ok(HandOver { devices, state: self.session.state.clone(), carried })
    }
}

/// State that workers share.
struct Shared<F> {
    filesystem: Arc<F>,
    buffers: Buffers,
    setxattr_ext: bool,
    interrupts: Arc<Interrupts>,
    is_stopping: Arc<AtomicBool>,
}

impl<F: Filesystem> Shared<F> {
    /// Reads and serves requests until the mount or the session ends.
    fn run(&self, channel: &Arc<Channel>, carried: Vec<Carried>) -> io::Result<()> {
        for request in carried {
            self.serve_and_survive(channel, request.message, request.is_interrupted);
        }
        let mut buffer = self.buffers.take();
        while !self.is_stopping.load(Ordering::SeqCst) {
            let received = channel.device().receive(&mut buffer);
            match received
                .inspect_err(|error| tracing::error!(%error, "cannot read requests of the kernel"))?
            {
                Received::Interrupted => {}
                Received::Ended => break,
                Received::Request(length) => {
                    let message = self.buffers.split(&mut buffer, length);
                    self.serve_and_survive(channel, message, false);
                }
            }
        }
        Ok(())
    }

    /// Serves a request. A panic of the file system does not end the worker: its reply was dropped, which answers EIO.
    fn serve_and_survive(&self, channel: &Arc<Channel>, message: Bytes, is_interrupted: bool) {
        let serve = AssertUnwindSafe(|| self.serve(channel, message, is_interrupted));
        if catch_unwind(serve).is_err() {
            tracing::error!("a request panicked; answered EIO");
        }
    }

    fn serve(&self, channel: &Arc<Channel>, message: Bytes, is_interrupted: bool) {
        let (header, arguments) = match split_header(message.clone()) {
            Ok(parts) => parts,
            Err(error) => {
                tracing::error!(length = message.len(), %error, "request of the kernel without a valid header");
                if let Ok((header, _)) = InHeader::read_from_prefix(&message) {
                    let _ = channel.write(header.unique, Err(Errno::IO));
                }
                return;
            }
        };
        match header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => match decode_forgets(&header, arguments) {
                Ok(forgets) => self.filesystem.forget(&forgets),
                Err(error) => tracing::error!(%error, "malformed FORGET"),
            },
            opcode::INTERRUPT => match decode_interrupt(&header, arguments) {
                // An INTERRUPT needs no reply, and ENOSYS would be the last one.
                Ok(unique) => self.interrupts.interrupt(unique),
                Err(error) => tracing::error!(%error, "malformed INTERRUPT"),
            },
            opcode::DESTROY => drop(channel.write(header.unique, Ok(&[]))),
            _ => self.execute(channel, &header, message, arguments, is_interrupted),
        }
    }

    fn execute(
        &self,
        channel: &Arc<Channel>,
        header: &InHeader,
        message: Bytes,
        arguments: Bytes,
        is_interrupted: bool,
    ) {
        let InHeader { unique, opcode, pid: tid, .. } = *header;
        channel.register(unique, Pending { message, opcode, tid, is_interrupted: false, waker: None });
        self.interrupts.registered(channel, unique);
        if let Err(error) = dispatch(&*self.filesystem, channel, header, arguments, self.setxattr_ext) {
            // Dropping the reply answered EIO.
            tracing::error!(opcode, %error, "malformed request of the kernel");
        }
        if is_interrupted {
            self.interrupts.interrupt(unique);
        }
        if opcode == opcode::FLUSH && channel.is_pending(unique) {
            self.interrupts.watch_flush(channel, unique, tid);
        }
    }
}
