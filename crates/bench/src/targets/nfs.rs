//! A server through Enfys's client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::{FileKind, SetAttributes, SetTime};
use client::cache::counts::Uses;
use client::cache::limiter::{Budget, Limiter};
use client::config::{Caches, Caller, Config, TRANSFER_MAX, Version};
use client::delegations::DelegationCounts;
use client::engine::{Engine, RetryPolicy, Traffic};
use client::error::{Error, OpError};
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::{OpenMode, Stability};
use client::url::{Host, ReaddirPlus, Url};
use net::transport::{Route, SystemClock, run_transport};
use rpc::auth::{AuthSys, GroupList, MAX_GROUPS};
use rustix::process::{getegid, geteuid, getgroups};
use tokio::task::JoinHandle;
use xdr::Opaque;

use super::{Buffer, Fault, Files, How, OpenFile, Status};
use crate::plan::{ClientOptions, NfsVersion};
use crate::result::{CacheUse, ClientCounters, Delegations, RequestCounters, SlotWaits};

/// The memory budget of a client in bytes. A half bounds data that are written and not committed: with less, workloads that never
/// sync would measure COMMITs too. Such data share the memory of the workload's block.
const MEMORY: u64 = 1 << 30;
/// Maximum bytes of a record from a server: a READ and its headers.
const RECORD_MAX: usize = TRANSFER_MAX as usize + (1 << 20);
/// Time until a silent server's connection is made again, unless the address has `timeo=`.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of timeouts until calls fail, unless the address has `retrans=`: a run must end.
const RETRIES: u32 = 1;

/// Time limit for the end of the use of a server.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server, with the parameters that all clients of a run share.
#[derive(Clone, Debug)]
pub struct Server {
    options: ClientOptions,
    addresses: Vec<IpAddr>,
    version: Version,
}

/// The files below one directory of a server.
#[derive(Clone)]
pub struct NfsFiles {
    fs: FileSystem,
    connected: Rc<Connected>,
    /// The path of the directory at the server.
    path: String,
}

/// A file of it.
pub struct NfsFile {
    file: File,
    /// The owner of its locks of bytes.
    locker: LockOwner,
}

struct Connected {
    client: Client,
    /// False with `nordirplus`.
    has_readdir_plus: bool,
    /// Directories that were entered, by path: all threads of a client share them.
    entered: tokio::sync::Mutex<BTreeMap<String, FileSystem>>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    /// Number of files that were opened.
    opened: Cell<u64>,
}

impl Server {
    /// Finds a server's addresses; `options` are further ones as in a URL's query. May query name services.
    ///
    /// # Errors
    /// Address or options are invalid, or this client does not support the version.
    pub fn resolve(address: &str, options: &str, version: NfsVersion) -> Result<Self, String> {
        let options = ClientOptions::parse(address, options)?;
        let url = &options.url;
        let version = match version {
            NfsVersion::V2 => Version::V2,
            NfsVersion::V3 => Version::V3,
            NfsVersion::V40 => Version::V40,
            NfsVersion::V41 => Version::V41,
            NfsVersion::V42 => Version::V42,
        };
        let addresses = match url.host() {
            Host::V4(address) => vec![IpAddr::V4(*address)],
            Host::V6(address, None) => vec![IpAddr::V6(*address)],
            Host::V6(_, Some(_)) => return Err(format!("{url}: addresses with a scope are not supported")),
            Host::Name(name) => {
                let found = (name.as_str(), 0).to_socket_addrs();
                let found = found.map_err(|error| format!("{name}: no address: {error}"))?;
                found.map(|address| address.ip()).collect()
            }
        };
        Ok(Self { options, addresses, version })
    }

    /// Returns the options of its clients.
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Connects a client that shares nothing with others. Must run in a [`tokio::task::LocalSet`].
    ///
    /// # Errors
    /// If the server cannot be reached, refuses, or does not have the version.
    pub async fn connect(&self) -> Result<NfsFiles, Fault> {
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), random_u64() as u32));
        let url = &self.options.url;
        let reserved_port = url.options.reserved_port.unwrap_or(true);
        let route = Route { addresses: self.addresses.clone(), reserved_port, record_max: RECORD_MAX };
        let transport = tokio::task::spawn_local(run_transport(Arc::clone(&engine), route));
        let caller = caller(url);
        let client = match Client::connect(Arc::clone(&engine), self.config(caller.clone())).await {
            Ok(client) => client,
            Err(error) => {
                engine.shut_down();
                let _ = transport.await;
                return Err(refused(&format!("connect to {url}"), &error));
            }
        };
        let keeper = tokio::task::spawn_local({
            let client = client.clone();
            async move { client.run().await }
        });
        let tasks = RefCell::new(vec![keeper, transport]);
        let has_readdir_plus = url.options.readdir_plus != Some(ReaddirPlus::Never);
        let entered = Default::default();
        let connected = Rc::new(Connected {
            client: client.clone(),
            has_readdir_plus,
            entered,
            tasks,
            opened: Cell::default(),
        });
        let path = String::from_utf8_lossy(url.path()).trim_matches('/').to_owned();
        let mounted = FileSystem::mount(client, caller, path.as_bytes()).await;
        let (fs, name) = mounted.map_err(|error| fault(&error))?;
        if name.is_some() {
            return Err(Fault::new(format!("{url}: not a directory")));
        }
        Ok(NfsFiles { fs, connected, path })
    }

    fn config(&self, machine: Caller) -> Config {
        let ClientOptions { url, slots, v3_calls, caches, link: _ } = &self.options;
        let timeout = url.options.timeout_deciseconds;
        let timeout = timeout.map_or(TIMEOUT, |tenths| Duration::from_millis(u64::from(tenths) * 100));
        let retries = Some(url.options.retransmissions.unwrap_or(RETRIES));
        let memory = Limiter::new(Budget::new(MEMORY));
        let caches = match caches {
            true => Caches::new(memory, &url.options),
            false => Caches { memory, ..Caches::none() },
        };
        let owner = format!("enfys bench {} {:016x}", std::process::id(), random_u64());
        Config {
            version: Some(self.version),
            retry: RetryPolicy { timeout, retries, fails_fast: true },
            slots: *slots,
            v3_calls: *v3_calls,
            caches,
            host_name: Bytes::from_static(b"enfys-bench"),
            ..Config::new(&url.host().to_string(), owner.as_bytes(), random_u64().to_be_bytes(), machine)
        }
        .with_options(&url.options)
    }
}

/// Returns the caller: this process, or the user and group of the address.
fn caller(url: &Url) -> Caller {
    let options = &url.options;
    let own: Vec<u32> = getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect();
    // Another user's groups are unknown here.
    let groups = if options.uid.is_some() || options.gid.is_some() { Vec::new() } else { own };
    let groups = &groups[..groups.len().min(MAX_GROUPS)];
    Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"enfys-bench"),
        uid: options.uid.unwrap_or_else(|| geteuid().as_raw()),
        gid: options.gid.unwrap_or_else(|| getegid().as_raw()),
        gids: GroupList::new(groups).unwrap_or_default(),
    })
}

/// Returns a number that no other client has. Seeds of workloads do not depend on it.
fn random_u64() -> u64 {
    fastrand::Rng::new().u64(..)
}

fn range(bytes: &Range<u64>) -> Result<LockRange, Fault> {
    // A length of zero means all bytes that follow.
    let length = if bytes.end == u64::MAX { 0 } else { bytes.end - bytes.start };
    LockRange::new(bytes.start, length).map_err(|error| refused("lock", &error))
}

fn fault(error: &Error) -> Fault {
    Fault { errno: Some(error.errno().0), text: error.to_string() }
}

fn refused(operation: &str, error: &OpError) -> Fault {
    Fault { errno: Some(error.errno().0), text: format!("{operation}: {error}") }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl From<Uses> for CacheUse {
    fn from(Uses { hits, misses }: Uses) -> Self {
        Self { hits, misses }
    }
}

impl From<DelegationCounts> for Delegations {
    fn from(counts: DelegationCounts) -> Self {
        let DelegationCounts { held, granted, recalled, returned, lost, local_opens } = counts;
        Self { held: held as u64, granted, recalled, returned, lost, local_opens }
    }
}

impl From<Traffic> for RequestCounters {
    fn from(traffic: Traffic) -> Self {
        Self {
            requests: traffic.requests,
            retransmissions: traffic.retransmissions,
            timeouts: traffic.failures,
            errors: traffic.errors,
            bytes_sent: traffic.bytes_sent,
            bytes_received: traffic.bytes_received,
            queue_us: micros(traffic.queue_time),
            round_trip_us: micros(traffic.round_trip_time),
            execute_us: micros(traffic.execute_time),
        }
    }
}

fn status(attributes: &client::attributes::Attributes) -> Status {
    Status { size: attributes.size, is_directory: attributes.kind == FileKind::Directory }
}

impl NfsFiles {
    /// Takes a client that was made elsewhere, and its mounted file system. [`Files::leave`] is not for such a client.
    #[must_use]
    pub fn of(client: Client, fs: FileSystem) -> Self {
        let (entered, tasks) = Default::default();
        let opened = Cell::default();
        let connected = Connected { client, has_readdir_plus: true, entered, tasks, opened };
        Self { fs, connected: Rc::new(connected), path: String::new() }
    }
}

impl Files for NfsFiles {
    type File = NfsFile;

    async fn enter(&self, relative: &str) -> Result<Self, Fault> {
        let path = format!("{}/{relative}", self.path);
        let mut entered = self.connected.entered.lock().await;
        let fs = match entered.get(&path) {
            Some(fs) => fs.clone(),
            None => {
                // With the caches of the first: a client with several uses no delegations.
                let fs = self.fs.subdirectory(relative.as_bytes()).await.map_err(|error| fault(&error))?;
                entered.insert(path.clone(), fs.clone());
                fs
            }
        };
        drop(entered);
        Ok(Self { fs, connected: Rc::clone(&self.connected), path })
    }

    async fn open(&self, path: &str, how: How) -> Result<NfsFile, Fault> {
        let options = OpenOptions {
            mode: OpenMode { read: how.read, write: how.write },
            create: how.create,
            exclusive: None,
            truncate: how.truncate,
            permissions: 0o644,
            stability: if how.sync { Stability::FileSync } else { Stability::Unstable },
        };
        let file = self.fs.open(path.as_bytes(), &options).await.map_err(|error| fault(&error))?;
        let number = self.connected.opened.get() + 1;
        self.connected.opened.set(number);
        Ok(NfsFile { file, locker: LockOwner::Process(number) })
    }

    async fn stat(&self, path: &str) -> Result<Status, Fault> {
        self.fs
            .lstat(path.as_bytes())
            .await
            .map(|attributes| status(&attributes))
            .map_err(|error| fault(&error))
    }

    async fn list_names(&self, path: &str) -> Result<Vec<String>, Fault> {
        let entries = self.fs.read_dir(path.as_bytes(), false).await.map_err(|error| fault(&error))?;
        Ok(entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect())
    }

    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>, Fault> {
        let plus = self.connected.has_readdir_plus;
        let entries = self.fs.read_dir(path.as_bytes(), plus).await.map_err(|error| fault(&error))?;
        let mut listed = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let status = match entry.object {
                Some(object) => status(&object.attributes),
                // The server has sent no attributes with the name: a program requests them.
                None => self.stat(&format!("{path}/{name}")).await?,
            };
            listed.push((name, status));
        }
        Ok(listed)
    }

    async fn make_directory(&self, path: &str) -> Result<(), Fault> {
        self.fs.mkdir(path.as_bytes(), 0o755).await.map(|_| ()).map_err(|error| fault(&error))
    }

    async fn remove_directory(&self, path: &str) -> Result<(), Fault> {
        self.fs.rmdir(path.as_bytes()).await.map_err(|error| fault(&error))
    }

    async fn remove(&self, path: &str) -> Result<(), Fault> {
        self.fs.unlink(path.as_bytes()).await.map_err(|error| fault(&error))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), Fault> {
        self.fs.rename(from.as_bytes(), to.as_bytes()).await.map_err(|error| fault(&error))
    }

    async fn link(&self, from: &str, to: &str) -> Result<(), Fault> {
        self.fs.link(from.as_bytes(), to.as_bytes()).await.map_err(|error| fault(&error))
    }

    async fn symlink(&self, target: &str, path: &str) -> Result<(), Fault> {
        let made = self.fs.symlink(target.as_bytes(), path.as_bytes()).await;
        made.map(|_| ()).map_err(|error| fault(&error))
    }

    async fn read_link(&self, path: &str) -> Result<usize, Fault> {
        self.fs.read_link(path.as_bytes()).await.map(|link| link.len()).map_err(|error| fault(&error))
    }

    async fn set_mode(&self, path: &str, mode: u32) -> Result<(), Fault> {
        let set = SetAttributes::with_mode(mode);
        let set = self.fs.set_attributes(path.as_bytes(), &set, false).await;
        set.map(|_| ()).map_err(|error| fault(&error))
    }

    async fn set_size(&self, path: &str, size: u64) -> Result<(), Fault> {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let set = self.fs.set_attributes(path.as_bytes(), &set, false).await;
        set.map(|_| ()).map_err(|error| fault(&error))
    }

    async fn touch(&self, path: &str) -> Result<(), Fault> {
        let now = SetTime::Now;
        let set = SetAttributes { atime: now, mtime: now, ..SetAttributes::default() };
        let set = self.fs.set_attributes(path.as_bytes(), &set, false).await;
        set.map(|_| ()).map_err(|error| fault(&error))
    }

    async fn file_system_status(&self) -> Result<(), Fault> {
        self.fs.stat_fs(b"").await.map(|_| ()).map_err(|error| fault(&error))
    }

    fn traffic(&self) -> BTreeMap<String, RequestCounters> {
        let traffic = self.connected.client.traffic();
        traffic.into_iter().map(|(name, traffic)| (name, traffic.into())).collect()
    }

    fn counters(&self) -> Option<ClientCounters> {
        let client = &self.connected.client;
        let waits = client.engine().waits();
        // All directories that were entered share the mount's caches.
        let caches = self.fs.mounted().cache_counts();
        Some(ClientCounters {
            slots: SlotWaits {
                count: waits.count,
                sum_us: micros(waits.time),
                squares_us2: waits.squares * 1e12,
            },
            attributes: caches.attributes.into(),
            names: caches.names.into(),
            access: caches.access.into(),
            listings: caches.listings.into(),
            data_bytes: caches.data_bytes.into(),
            delegations: client.delegation_counts().into(),
            directory_delegations: client.directory_delegation_counts().into(),
        })
    }

    async fn leave(self) {
        // A server that does not answer forgets the client after its lease.
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.connected.client.close()).await;
        self.connected.client.engine().shut_down();
        let tasks = std::mem::take(&mut *self.connected.tasks.borrow_mut());
        for task in tasks {
            if tokio::time::timeout(LEAVE_TIMEOUT, task).await.is_err() {
                // It ends with the runtime.
                return;
            }
        }
    }
}

impl OpenFile for NfsFile {
    fn size(&self) -> u64 {
        self.file.opened_attributes().size
    }

    async fn read(&self, offset: u64, count: usize, buffer: &mut Buffer) -> Result<usize, Fault> {
        let parts = self.file.read_at(offset, count).await.map_err(|error| fault(&error))?;
        Ok(buffer.take_parts(parts))
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<usize, Fault> {
        let length = data.len();
        self.file.write_at(offset, data).await.map(|()| length).map_err(|error| fault(&error))
    }

    async fn sync(&self) -> Result<(), Fault> {
        self.file.sync().await.map_err(|error| fault(&error))
    }

    async fn lock_shared(&self) -> Result<(), Fault> {
        self.file.flock(LockKind::Shared).await.map_err(|error| fault(&error))
    }

    async fn unlock(&self) -> Result<(), Fault> {
        self.file.funlock().await.map_err(|error| fault(&error))
    }

    async fn try_lock_bytes(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool, Fault> {
        let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
        match self.file.try_lock(self.locker, range(&bytes)?, kind).await {
            Ok(()) => Ok(true),
            Err(error) if error.errno().0 == libc::EAGAIN => Ok(false),
            Err(error) => Err(fault(&error)),
        }
    }

    async fn unlock_bytes(&self, bytes: Range<u64>) -> Result<(), Fault> {
        self.file.unlock(self.locker, range(&bytes)?).await.map_err(|error| fault(&error))
    }

    async fn close(self) -> Result<(), Fault> {
        self.file.close().await.map_err(|error| fault(&error))
    }
}
