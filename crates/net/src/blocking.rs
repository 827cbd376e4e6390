//! The client's library for programs without an async runtime.
//!
//! A [`Connection`] has a thread of its own, which carries the client's records and keeps its session. The library's futures need no
//! runtime: any thread may wait for one by [`wait`]. [`FileSystem`] and [`File`] do that for common calls; [`wait`] does it
//! for all others.
//!
//! ```
//! use net::blocking::Connection;
//!
//! let server = net::MemoryServer::start()?;
//! let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! fs.write(b"greeting", "Hello, world")?;
//! assert_eq!(fs.read(b"greeting")?, b"Hello, world");
//! connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`crate::guide`] has an example of each call.

mod calls;

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use bytes::Bytes;
use client::Client;
use client::attributes::{Attributes, SetAttributes};
use client::config::{Caches, Caller, Config};
use client::engine::{CallError, ConnectError, Engine};
use client::error::{Error, OpError};
use client::fs::{self, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::DirEntry;
use client::url::Url;
use tokio::sync::oneshot;

use crate::transport::{Route, SystemClock, run_transport};
use crate::{answer_host_calls, connect};

/// Waits until a future ends. A future of this library ends only while the [`Connection`] that it belongs to is open.
pub fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// A client of one server, with a thread that carries its records.
pub struct Connection {
    client: Client,
    carrier: Option<JoinHandle<()>>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// The thread cannot be started, or as [`Client::connect`].
    pub fn open(route: Route, config: Config) -> Result<Self, Error> {
        let server = Arc::clone(&config.server);
        let failed = |cause| Error { operation: "connect", path: None, server: Arc::clone(&server), cause };
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), first_xid(&config)));
        let (sender, receiver) = oneshot::channel();
        let carrier = carry(&engine, route, receiver).map_err(|_| {
            failed(OpError::Invalid(client::errno::Errno::EAGAIN, "the client's thread cannot be started"))
        })?;
        match wait(Client::connect(Arc::clone(&engine), config)) {
            Ok(client) => {
                // Fails only if the thread has ended.
                let _ = sender.send(client.clone());
                let keeper = client.clone();
                // Ends with the client.
                let keeping = thread::Builder::new().name("nfs keeper".into());
                if keeping.spawn(move || wait(keeper.run())).is_err() {
                    engine.shut_down();
                    let what = "the client's thread cannot be started";
                    return Err(failed(OpError::Invalid(client::errno::Errno::EAGAIN, what)));
                }
                Ok(Self { client, carrier: Some(carrier) })
            }
            Err(cause) => {
                engine.shut_down();
                let _ = carrier.join();
                Err(failed(cause))
            }
        }
    }

    /// Connects to the server of a URL, with the version of its options or the highest that the server has, and takes its path as
    /// root of a file system. The caller is this process, or the user of the options.
    ///
    /// # Errors
    /// EHOSTUNREACH if the host has no address, and as [`Self::open`] and [`Self::mount`].
    pub fn to(url: &Url) -> Result<(Self, FileSystem), Error> {
        let config = connect::config(url);
        let caches = Caches::new(config.caches.memory.clone(), &url.options);
        let config = Config { caches, ..config };
        let route = connect::route(url).map_err(|error| {
            let cause = CallError::Unreachable(ConnectError { reason: error.to_string().into() });
            let server = Arc::clone(&config.server);
            Error { operation: "connect", path: None, server, cause: cause.into() }
        })?;
        let mut versions = connect::versions(url).into_iter();
        let connection = loop {
            let version = versions.next().flatten();
            match Self::open(route.clone(), Config { version, ..config.clone() }) {
                Err(Error { cause: OpError::Unsupported(_), .. }) if versions.len() > 0 => {}
                opened => break opened?,
            }
        };
        let fs = connection.mount(connect::caller(&url.options), url.path())?;
        Ok((connection, fs))
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Takes a directory of the server as root of a file system.
    ///
    /// # Errors
    /// There is no such directory, or `caller` may not look it up.
    pub fn mount(&self, caller: Caller, path: &[u8]) -> Result<FileSystem, Error> {
        let (inner, name) = wait(fs::FileSystem::mount(self.client.clone(), caller, path))?;
        match name {
            None => Ok(FileSystem { inner }),
            Some(_) => Err(Error {
                operation: "mount",
                path: Some(path.to_vec()),
                server: Arc::clone(&self.client.config().server),
                cause: OpError::Invalid(client::errno::Errno::ENOTDIR, "not a directory"),
            }),
        }
    }

    /// Destroys the client's state at the server. Close all files before.
    ///
    /// # Errors
    /// As [`Client::close`]. The connection has ended anyway.
    pub fn close(mut self) -> Result<(), Error> {
        let left = wait(self.client.close());
        self.end();
        let server = Arc::clone(&self.client.config().server);
        left.map_err(|cause| Error { operation: "disconnect", path: None, server, cause })
    }

    fn end(&mut self) {
        self.client.engine().shut_down();
        if let Some(carrier) = self.carrier.take() {
            // A panic there has failed all calls already.
            let _ = carrier.join();
        }
    }
}

/// Ends the connection. The server forgets the client after its lease.
impl Drop for Connection {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a transaction ID that a client of the same name has probably not used before: its verifier differs at each start.
fn first_xid(config: &Config) -> u32 {
    let [a, b, c, d, e, f, g, h] = config.verifier;
    u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h])
}

/// Starts the thread that carries records, and answers calls of the server to the connected client.
fn carry(
    engine: &Arc<Engine>,
    route: Route,
    connected: oneshot::Receiver<Client>,
) -> io::Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    let addresses = route.addresses.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("nfs transport".into()).spawn(move || {
        let answers = async {
            if let Ok(client) = connected.await {
                answer_host_calls(client, addresses).await;
            }
        };
        let carried = async {
            tokio::select! {
                () = run_transport(engine, route) => {}
                () = never_ending(answers) => {}
            }
        };
        tokio::task::LocalSet::new().block_on(&runtime, carried);
    })
}

async fn never_ending(work: impl Future<Output = ()>) {
    work.await;
    pending::<()>().await;
}

/// A directory of a server with everything below it, for one caller. Paths, symbolic links and errors are those of
/// [`client::fs::FileSystem`].
#[derive(Clone)]
pub struct FileSystem {
    inner: fs::FileSystem,
}

impl FileSystem {
    /// Returns the file system of the library.
    #[must_use]
    pub fn inner(&self) -> &fs::FileSystem {
        &self.inner
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: &[u8], options: &OpenOptions) -> Result<File, Error> {
        wait(self.inner.open(path, options)).map(|inner| File { inner })
    }

    /// Reads a whole file, which must fit in memory.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        wait(async {
            let file = self.inner.open(path, &OpenOptions::READ).await?;
            // A file that grows meanwhile is read up to its earlier size.
            let content = file.read_at(0, file.opened_attributes().size as usize).await;
            file.close().await?;
            Ok(content?.concat())
        })
    }

    /// Creates a file, or overwrites it, with this content, which is stable afterwards.
    ///
    /// # Errors
    /// As open(2), write(2) and fsync(2).
    pub fn write(&self, path: &[u8], content: impl Into<Bytes>) -> Result<(), Error> {
        let content = content.into();
        wait(async {
            let file = self.inner.open(path, &OpenOptions::CREATE).await?;
            let written = file.write_at(0, content).await;
            written.and(file.close().await)
        })
    }

    /// Returns the attributes at a path, following a symbolic link.
    ///
    /// # Errors
    /// As stat(2).
    pub fn stat(&self, path: &[u8]) -> Result<Attributes, Error> {
        wait(self.inner.stat(path))
    }

    /// Sets attributes, following a symbolic link.
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2), utimensat(2).
    pub fn set_attributes(&self, path: &[u8], set: &SetAttributes) -> Result<Attributes, Error> {
        wait(self.inner.set_attributes(path, set, true))
    }

    /// Lists a directory, without `.` and `..`.
    ///
    /// # Errors
    /// As opendir(3) and readdir(3).
    pub fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>, Error> {
        wait(self.inner.read_dir(path, false))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir(&self, path: &[u8], mode: u32) -> Result<(), Error> {
        wait(self.inner.mkdir(path, mode)).map(|_| ())
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: &[u8]) -> Result<(), Error> {
        wait(self.inner.unlink(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_dir(&self, path: &[u8]) -> Result<(), Error> {
        wait(self.inner.rmdir(path))
    }

    /// Renames, and replaces an existing object with the new name.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        wait(self.inner.rename(from, to))
    }
}

/// An open file. [`Self::close`] reports remaining errors of writing. A dropped file remains open at the server until the
/// client ends.
pub struct File {
    inner: fs::File,
}

impl File {
    /// Returns the file of the library.
    #[must_use]
    pub fn inner(&self) -> &fs::File {
        &self.inner
    }

    /// Reads `count` bytes at `offset`, or less at the end of the file.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_at(&self, offset: u64, count: usize) -> Result<Vec<u8>, Error> {
        wait(self.inner.read_at(offset, count)).map(|parts| parts.concat())
    }

    /// Writes all of `data` at `offset`. They are stable after [`Self::sync`].
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_at(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        wait(self.inner.write_at(offset, data.into()))
    }

    /// Makes all written data stable.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync(&self) -> Result<(), Error> {
        wait(self.inner.sync())
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn stat(&self) -> Result<Attributes, Error> {
        wait(self.inner.stat())
    }

    /// Locks a range, and waits until it is free.
    ///
    /// # Errors
    /// As fcntl(2) with `F_SETLKW`.
    pub fn lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<(), Error> {
        wait(self.inner.lock(owner, range, kind))
    }

    /// Locks a range if it is free.
    ///
    /// # Errors
    /// As fcntl(2) with `F_SETLK`.
    pub fn try_lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<(), Error> {
        wait(self.inner.try_lock(owner, range, kind))
    }

    /// Unlocks a range.
    ///
    /// # Errors
    /// As fcntl(2) with `F_UNLCK`.
    pub fn unlock(&self, owner: LockOwner, range: LockRange) -> Result<(), Error> {
        wait(self.inner.unlock(owner, range))
    }

    /// Makes all written data stable, and closes the file.
    ///
    /// # Errors
    /// As close(2).
    pub fn close(self) -> Result<(), Error> {
        wait(self.inner.close())
    }
}
