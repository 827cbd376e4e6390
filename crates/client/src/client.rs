//! A client of one server: the versions of the protocol behind one set of operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::types::Status;
use protocol::{nfs2, nfs3, nfs4, nfsacl, nlm};

use crate::acl::Acl;
use crate::attributes::{Attributes, Before, Changed, SetAttributes, Timestamp};
use crate::background::Background;
use crate::calls::open_connection;
use crate::config::{Caller, Config, Version};
use crate::delegations::{DelegatedCache, DelegationCounts, Held, Kind};
use crate::directory_watches::{DirectoryEvent, DirectoryWatch};
use crate::engine::{CallError, ConnectionId, Engine, Label, Traffic};
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::{LockConflict, LockKind, LockOwner, LockRange, Locked};
use crate::many::{ListPart, NewDirectory, NewEntry, NewFile, ReadFile, Whole};
use crate::nfs3::Nfs3;
use crate::nfs4::Nfs4;
use crate::results::{
    CommitReply, Creation, DirPage, FileHandle, FsInfo, FsStat, NewObject, Object, OpenMode, OpenState,
    Opened, ReadReply, Stability, WriteReply,
};
use crate::url::Transport;

mod hand_over;
mod singles;
mod version4;

/// Maximum number of connections to one server (`nconnect`), as in Linux.
pub const CONNECTIONS_MAX: usize = 16;

/// A client of one server. Clones are the same client.
///
/// The transport runs the [`Engine`]; the owner must also poll [`Self::run`], which keeps the session.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    config: Arc<Config>,
    version: Version,
    protocol: Protocol,
    files_opened: AtomicU64,
    background: Background,
}

enum Protocol {
    /// Version 3 or 2.
    Nfs3(Nfs3),
    Nfs4(Arc<Nfs4>),
}

impl Client {
    /// Connects, with the version that the configuration names, or the highest that the server has.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server has no configured version, or the reason why it cannot be reached.
    pub async fn connect(engine: Arc<Engine>, config: Config) -> Result<Self, OpError> {
        let config = Arc::new(config);
        let count = config.connections.clamp(1, CONNECTIONS_MAX);
        let wanted: &[Version] = match (&config.version, config.transport) {
            (None, Transport::Tcp) => &Version::ALL,
            (None, Transport::Udp) => &[Version::V3],
            (Some(version), Transport::Udp) if version.minor().is_some() => {
                // RFC 7530 §3.1, RFC 8881 §2.9.1: the transport must avoid congestion.
                return Err(OpError::Invalid(Errno::EPROTONOSUPPORT, "NFS version 4 has no UDP: use TCP"));
            }
            (Some(version), _) => std::slice::from_ref(version),
        };
        let connections = (0..count)
            .map(|_| open_connection(&engine, config.transport, config.port, config.retry))
            .collect::<Result<Vec<ConnectionId>, _>>()?;
        let mut outcome = Err(OpError::Unsupported("this version of NFS"));
        for version in wanted {
            // All of version 4 is at one port. Older versions may have another, which the port mapper knows.
            if matches!(outcome, Err(OpError::Call(CallError::Unreachable(_)))) && version.minor().is_some() {
                continue;
            }
            outcome = Self::connect_with(&engine, &config, &connections, *version).await;
            let goes_on = match &outcome {
                Err(OpError::Unsupported(_)) => true,
                Err(OpError::Call(CallError::Unreachable(_))) => config.port == protocol::nfs3::PORT,
                _ => false,
            };
            if !goes_on {
                break;
            }
        }
        outcome
    }

    async fn connect_with(
        engine: &Arc<Engine>,
        config: &Arc<Config>,
        connections: &[ConnectionId],
        version: Version,
    ) -> Result<Self, OpError> {
        let protocol = match version {
            Version::V2 | Version::V3 => {
                let (engine, config) = (Arc::clone(engine), Arc::clone(config));
                Protocol::Nfs3(Nfs3::establish(engine, config, connections.to_vec(), version).await?)
            }
            Version::V40 | Version::V41 | Version::V42 => {
                let (engine, config) = (Arc::clone(engine), Arc::clone(config));
                let minor = version.minor().unwrap_or(1);
                let nfs4 = Nfs4::establish(engine, config, connections.to_vec(), minor).await?;
                Protocol::Nfs4(Arc::new(nfs4))
            }
        };
        let (engine, config) = (Arc::clone(engine), Arc::clone(config));
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                config,
                version,
                protocol,
                files_opened: AtomicU64::new(0),
                background: Background::default(),
            }),
        })
    }

    /// Keeps leases and sessions, writes behind and reads ahead until the client is closed. Poll it together with the transport.
    pub async fn run(&self) {
        let keep = async {
            match &self.inner.protocol {
                Protocol::Nfs3(nfs3) => nfs3.run().await,
                Protocol::Nfs4(nfs4) => nfs4.run().await,
            }
        };
        self.inner.background.run(keep).await;
    }

    /// Returns the background work of [`Self::run`].
    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }

    /// Destroys the client's state at the server, and ends the engine. Close all files before.
    pub async fn close(&self) -> Result<(), OpError> {
        self.inner.background.awaited_ended().await;
        let outcome = match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.leave().await,
            Protocol::Nfs4(nfs4) => nfs4.leave().await,
        };
        self.inner.engine.shut_down();
        outcome
    }

    /// Returns the version in use.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inner.version
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns whether both are the same client.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// Returns whether calls come from a port above 1023, which servers may refuse.
    pub(crate) fn has_unprivileged_port(&self) -> bool {
        self.inner.engine.has_unprivileged_port()
    }

    /// Returns the number of requests in flight, and of those that had to wait for a slot so far. In versions 3 and 4.0, as many
    /// requests as [`Config::v3_calls`] allows have a slot each.
    #[must_use]
    pub fn slot_use(&self) -> (usize, usize) {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.slot_use(),
            Protocol::Nfs4(nfs4) => nfs4.slot_use(),
        }
    }

    /// Returns a number for an open file, which no other file of this client has.
    pub(crate) fn next_file_number(&self) -> u64 {
        self.inner.files_opened.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the numbers of delegations so far.
    #[must_use]
    pub fn delegation_counts(&self) -> DelegationCounts {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => DelegationCounts::default(),
            Protocol::Nfs4(nfs4) => nfs4.delegations.counts(),
        }
    }

    /// Returns the numbers of delegations of directories so far; none of them has local opens.
    #[must_use]
    pub fn directory_delegation_counts(&self) -> DelegationCounts {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => DelegationCounts::default(),
            Protocol::Nfs4(nfs4) => nfs4.delegations.directory_counts(),
        }
    }

    /// Returns the attributes of a directory, and the number of its delegation if the server grants one.
    pub(crate) async fn delegate_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
    ) -> Result<(Attributes, Option<u64>), OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => Ok((nfs3.get_attributes(caller, directory).await?, None)),
            Protocol::Nfs4(nfs4) => nfs4.delegate_directory(caller, directory).await,
        }
    }

    /// Adds a cache that uses delegations.
    pub(crate) fn add_cache(&self, cache: Weak<dyn DelegatedCache>) {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => {}
            Protocol::Nfs4(nfs4) => nfs4.delegations.add_cache(cache),
        }
    }

    /// Returns the delegation of a file that is held.
    pub(crate) fn delegation(&self, handle: &FileHandle) -> Option<Held> {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => None,
            Protocol::Nfs4(nfs4) => nfs4.delegation(handle).filter(|_| nfs4.delegations.has_cache()),
        }
    }

    /// Runs `action` if the file has a delegation for writing, which is not recalled before its end. `action` must not call this
    /// client.
    pub(crate) fn under_write_delegation<T>(
        &self,
        handle: &FileHandle,
        action: impl FnOnce() -> T,
    ) -> Option<T> {
        self.delegation(handle)?;
        match &self.inner.protocol {
            Protocol::Nfs3(_) => None,
            Protocol::Nfs4(nfs4) => {
                nfs4.delegations.under(handle, self.inner.engine.now(), |kind| kind == Kind::Write, action)
            }
        }
    }

    /// Notes that a program changes a file's content now.
    pub(crate) fn note_modified(&self, handle: &FileHandle) {
        if let Protocol::Nfs4(nfs4) = &self.inner.protocol
            && let Some(now) = self.inner.engine.time_of_day()
        {
            nfs4.delegations.note_modified(handle, now);
        }
    }

    /// Returns whether this client keeps the times of changes of a file, because of its delegation.
    pub(crate) fn keeps_times(&self, handle: &FileHandle) -> bool {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => false,
            Protocol::Nfs4(nfs4) => nfs4.delegations.keeps_times(handle),
        }
    }

    /// Returns the time of a file's last change, if this client keeps it.
    pub(crate) fn kept_time(&self, handle: &FileHandle) -> Option<Timestamp> {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => None,
            Protocol::Nfs4(nfs4) => nfs4.delegations.modified(handle),
        }
    }

    /// Opens a file without a request, if a delegation allows it.
    pub(crate) fn open_delegated(
        &self,
        caller: &Caller,
        handle: FileHandle,
        mode: OpenMode,
    ) -> Option<OpenState> {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => None,
            Protocol::Nfs4(nfs4) => nfs4.open_delegated(caller, handle, mode),
        }
    }

    /// As [`Self::give_back`], if the delegation is one for reading.
    pub(crate) async fn give_back_read(&self, handle: &FileHandle) {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => {}
            Protocol::Nfs4(nfs4) => nfs4.give_back_read(handle).await,
        }
    }

    /// Returns the delegation of a file to the server, if there is one, and waits until this is done.
    pub(crate) async fn give_back(&self, handle: &FileHandle) {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => {}
            Protocol::Nfs4(nfs4) => nfs4.give_back(handle).await,
        }
    }

    /// Begins the return of a delegation, if there is one.
    pub(crate) fn begin_give_back(&self, handle: &FileHandle) {
        if let Protocol::Nfs4(nfs4) = &self.inner.protocol {
            nfs4.delegations.give_back(handle);
        }
    }

    /// Notes that the mode, the owner or the access control list of a file has changed: the server checks later opens.
    pub(crate) fn forget_permissions(&self, handle: &FileHandle) {
        match &self.inner.protocol {
            Protocol::Nfs3(_) => {}
            Protocol::Nfs4(nfs4) => nfs4.delegations.forget_permissions(handle),
        }
    }

    /// Returns the traffic so far, by operation: procedures of version 3, and compounds of version 4 as their
    /// main operation. Calls that create and keep connections and sessions are counted in `other`.
    #[must_use]
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        let traffic = self.inner.engine.traffic();
        traffic.into_iter().map(|(label, traffic)| (operation_name(label), traffic)).collect()
    }

    /// Returns the object at a path of the server: an exported directory, or anything below one.
    pub async fn mount(&self, caller: &Caller, path: &[&[u8]]) -> Result<Object, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.mount(caller, path).await,
            Protocol::Nfs4(nfs4) => nfs4.lookup_from_root(caller, path).await,
        }
    }

    /// As [`Self::mount`]; returns the properties of the object's file system too.
    pub(crate) async fn mount_with_info(
        &self,
        caller: &Caller,
        path: &[&[u8]],
    ) -> Result<(Object, FsInfo), OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => {
                let object = nfs3.mount(caller, path).await?;
                Ok((object, nfs3.fs_info(caller, object.handle).await?))
            }
            Protocol::Nfs4(nfs4) => nfs4.mount(caller, path).await,
        }
    }

    /// Sets the time for which the server keeps state without requests of the client.
    pub(crate) fn set_lease(&self, seconds: u32) {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) if seconds > 0 => nfs4.set_lease(Duration::from_secs(seconds.into())),
            Protocol::Nfs3(_) | Protocol::Nfs4(_) => {}
        }
    }

    /// Returns the access control lists of an object: POSIX lists in version 3, the list of version 4 in version 4.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server does not have them.
    pub async fn get_acl(&self, caller: &Caller, handle: FileHandle) -> Result<Acl, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.get_acl(caller, handle).await,
            Protocol::Nfs4(nfs4) => nfs4.get_acl(caller, handle).await,
        }
    }

    /// Sets the access control lists of an object, and returns its attributes if the server sends them.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server does not have lists of this kind.
    pub async fn set_acl(
        &self,
        caller: &Caller,
        handle: FileHandle,
        acl: &Acl,
    ) -> Result<Option<Attributes>, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.set_acl(caller, handle, acl).await,
            Protocol::Nfs4(nfs4) => nfs4.set_acl(caller, handle, acl).await,
        }
    }
}

/// Byte-range locks.
impl Client {
    /// Locks a range of an open file, and waits for it if `wait`. Returns what is known about cached data of the file.
    ///
    /// An owner's locks are those of fcntl(2): a further lock of the owner replaces its locks in the range. They are
    /// reclaimed when the server restarts. If they cannot be, operations on the open file fail with [`OpError::LockLost`] until
    /// the owner unlocks the range or closes the file. Closing the file unlocks all that owners have locked through it.
    ///
    /// If the caller drops the future, the range is unlocked again as soon as the server's reply has arrived.
    ///
    /// # Errors
    /// Status DENIED (EAGAIN) if another owner has it and the caller does not wait; OPENMODE if the file is open for
    /// something else; EDEADLK if the server finds a deadlock; ENOLCK in version 3 if the server has no lock manager, or no room.
    #[allow(clippy::too_many_arguments, reason = "they are those of fcntl(2)")]
    pub async fn lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<Locked, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.lock(caller, handle, owner, range, kind, wait).await,
            Protocol::Nfs4(nfs4) => nfs4.lock(caller, handle, state, owner, range, kind, wait).await,
        }
    }

    /// Returns a lock that a lock of this owner would conflict with (fcntl(2), `F_GETLK`).
    ///
    /// # Errors
    /// ENOLCK as for [`Self::lock`].
    pub async fn test_lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.test_lock(caller, handle, owner, range, kind).await,
            Protocol::Nfs4(nfs4) => nfs4.test_lock(caller, handle, owner, range, kind).await,
        }
    }

    /// Unlocks a range; it need not contain locks. This happens even if the caller drops the future.
    ///
    /// # Errors
    /// ENOLCK as for [`Self::lock`].
    pub async fn unlock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<(), OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.unlock(caller, handle, owner, range).await,
            Protocol::Nfs4(nfs4) => nfs4.unlock(caller, handle, owner, range).await,
        }
    }

    /// Returns whether one of these owners has lost a lock of a file of version 3. In version 4 the open file knows.
    pub(crate) fn has_lost_lock(&self, handle: FileHandle, owners: &[LockOwner]) -> bool {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().has_lost(handle, owners),
            Protocol::Nfs4(_) => false,
        }
    }

    /// Answers a call that the server's lock manager or status monitor makes to this machine (GRANTED, SM_NOTIFY), as a
    /// record without its mark; `None` if it has no answer. Pass calls from the server's addresses only.
    #[must_use]
    pub fn answer_host_call(&self, record: Bytes) -> Option<Bytes> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().answer(record),
            Protocol::Nfs4(_) => None,
        }
    }

    /// Frees all locks that a client of this machine has at the server and that it did not unlock before it ended, in versions 2 and 3.
    /// `host_name` is that of its [`Config`]. In version 4 its lease ends.
    ///
    /// # Errors
    /// ENOLCK if the server has no lock manager; that it cannot be reached.
    pub async fn free_locks_of(&self, host_name: &[u8]) -> Result<(), OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().free_all(host_name).await,
            Protocol::Nfs4(_) => Ok(()),
        }
    }

    /// Waits until calls for [`Self::answer_host_call`] are useful, with the first lock of version 3. Nothing relies on them: without
    /// them waiters ask every 10 s, and restarts of the server are noticed by its connections.
    pub async fn host_calls_wanted(&self) {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().calls_wanted().await,
            Protocol::Nfs4(_) => std::future::pending().await,
        }
    }
}

/// Watched directories (RFC 8881 §10.9): versions 4.1 and 4.2, where the server has delegations of directories.
impl Client {
    /// Asks the server to tell of changes of the names in directories ([`Self::directory_events`]).
    ///
    /// # Errors
    /// The server or the version has no such delegations, or the status of a directory.
    pub async fn watch_directories(
        &self,
        caller: &Caller,
        directories: &[FileHandle],
    ) -> Vec<Result<DirectoryWatch, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.watch_directories(caller, directories).await,
            Protocol::Nfs3(_) => {
                let unsupported = || Err(OpError::Unsupported("directory delegations"));
                directories.iter().map(|_| unsupported()).collect()
            }
        }
    }

    /// Ends watches. Nothing happens to directories that are not watched.
    pub async fn unwatch_directories(&self, caller: &Caller, directories: &[FileHandle]) {
        if let Protocol::Nfs4(nfs4) = &self.inner.protocol {
            nfs4.unwatch_directories(caller, directories).await;
        }
    }

    /// Takes what the server has told about watched directories; waits for it. Only one task may wait. After
    /// [`DirectoryEvent::Recalled`] the watcher must call [`Self::unwatch_directories`].
    pub async fn directory_events(&self) -> Vec<(FileHandle, DirectoryEvent)> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.directory_events().await,
            Protocol::Nfs3(_) => std::future::pending().await,
        }
    }
}

/// Operations on many files ([`crate::many`]).
impl Client {
    /// Reads files from their start, whole if they are not longer than requested.
    pub async fn read_many(&self, caller: &Caller, files: &[ReadFile<'_>]) -> Vec<Result<Whole, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.read_many(caller, files).await,
            Protocol::Nfs3(_) => singles::read(self, caller, files).await,
        }
    }

    /// Creates files, or overwrites them, with all their data, which are stable afterwards. If a file fails, some of its
    /// data may have been written.
    pub async fn write_many(&self, caller: &Caller, files: &[NewFile<'_>]) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) if nfs4.has_sessions() => {
                let outcomes = nfs4.write_many(caller, files).await;
                // Caches do not learn of the changes.
                outcomes.iter().flatten().for_each(|object| _ = nfs4.delegations.give_back(&object.handle));
                outcomes
            }
            Protocol::Nfs4(nfs4) => {
                let mut outcomes = nfs4.write_many_v40(caller, files).await;
                singles::write_rest(self, caller, files, &mut outcomes).await;
                outcomes.into_iter().flatten().collect()
            }
            Protocol::Nfs3(_) => singles::write(self, caller, files).await,
        }
    }

    /// Creates empty files and other objects. A name that exists is an error (EEXIST), and its object is not changed.
    pub async fn create_many(&self, caller: &Caller, new: &[NewEntry<'_>]) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) if nfs4.has_sessions() => nfs4.create_many(caller, new).await,
            Protocol::Nfs4(_) | Protocol::Nfs3(_) => singles::create(self, caller, new).await,
        }
    }

    /// Lists parts of directories, with handles and attributes.
    pub async fn list_many(&self, caller: &Caller, parts: &[ListPart]) -> Vec<Result<DirPage, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.list_many(caller, parts).await,
            Protocol::Nfs3(_) => singles::list(self, caller, parts).await,
        }
    }

    /// Looks up names in directories.
    pub async fn stat_many(
        &self,
        caller: &Caller,
        names: &[(FileHandle, &[u8])],
    ) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.stat_many(caller, names).await,
            Protocol::Nfs3(_) => singles::in_flight(names, |name| self.lookup(caller, name.0, name.1)).await,
        }
    }

    /// Returns the attributes of objects.
    pub async fn get_attributes_many(
        &self,
        caller: &Caller,
        handles: &[FileHandle],
    ) -> Vec<Result<Attributes, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.get_attributes_many(caller, handles).await,
            Protocol::Nfs3(_) => {
                singles::in_flight(handles, |handle| self.get_attributes(caller, *handle)).await
            }
        }
    }

    /// Creates a file, or opens an existing one and empties it.
    async fn open_anew(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.open_anew(caller, directory, name, set).await,
            Protocol::Nfs4(nfs4) => {
                nfs4.open(caller, directory, name, OpenMode::WRITE, Creation::IfMissing, set).await
            }
        }
    }

    /// Creates directories.
    pub async fn create_directories(
        &self,
        caller: &Caller,
        directories: &[NewDirectory<'_>],
    ) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.create_directories(caller, directories).await,
            Protocol::Nfs3(_) => singles::create_directories(self, caller, directories).await,
        }
    }

    /// Removes names of files, or of empty directories if `directories`.
    pub async fn remove_many(
        &self,
        caller: &Caller,
        names: &[(FileHandle, &[u8])],
        directories: bool,
    ) -> Vec<Result<(), OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.remove_many(caller, names).await,
            Protocol::Nfs3(_) => singles::remove(self, caller, names, directories).await,
        }
    }

    /// Sets attributes of objects. A size is set without an open, which share reservations of others may forbid.
    pub async fn set_attributes_many(
        &self,
        caller: &Caller,
        objects: &[(FileHandle, SetAttributes)],
    ) -> Vec<Result<Attributes, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => {
                let outcomes = nfs4.set_attributes_many(caller, objects).await;
                // Caches do not learn of the changes.
                objects.iter().for_each(|(handle, _)| _ = nfs4.delegations.give_back(handle));
                outcomes
            }
            Protocol::Nfs3(_) => singles::set_attributes(self, caller, objects).await,
        }
    }
}

/// Defines operations that pass to the protocol in use.
macro_rules! operations {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// Operations. Each fails with the server's status, or the reason of a missing reply.
        impl Client {
            $(
                $(#[$meta])*
                #[allow(clippy::missing_errors_doc)]
                pub async fn $name(&self, caller: &Caller, $($argument: $type),*) -> Result<$result, OpError> {
                    match &self.inner.protocol {
                        Protocol::Nfs3(nfs3) => nfs3.$name(caller, $($argument),*).await,
                        Protocol::Nfs4(nfs4) => nfs4.$name(caller, $($argument),*).await,
                    }
                }
            )*
        }
    };
}

operations! {
    /// Looks up a name in a directory.
    fn lookup(directory: FileHandle, name: &[u8]) -> Object;
    /// Looks up names one after the other, each in the object of the name before, without following symbolic links.
    fn lookup_chain(start: FileHandle, names: &[&[u8]]) -> Object;
    /// Returns an object's attributes.
    fn get_attributes(handle: FileHandle) -> Attributes;
    /// Sets attributes and returns all of them. `state` is that of an open file whose size is set.
    fn set_attributes(handle: FileHandle, state: &OpenState, set: &SetAttributes) -> Attributes;
    /// Sets attributes as [`Self::set_attributes`] does, and returns the attributes before, if the server sends them, and
    /// afterwards.
    fn change_attributes(handle: FileHandle, state: &OpenState, set: &SetAttributes) -> (Option<Before>, Attributes);
    /// Returns the caller's permissions among the requested ones ([`crate::results::access`]), and the attributes.
    fn access(handle: FileHandle, asked: u32) -> (u32, Attributes);
    /// Returns the content of a symbolic link.
    fn read_link(handle: FileHandle) -> Bytes;
    /// Opens a file by its name in a directory, and creates it with the attributes `set` on request.
    fn open(directory: FileHandle, name: &[u8], mode: OpenMode, creation: Creation, set: &SetAttributes) -> Opened;
    /// Opens a file by its handle. Version 4.0 can open files by name only: `name` is a directory and a name in it that the
    /// file probably has.
    fn open_handle(handle: FileHandle, name: Option<(FileHandle, &[u8])>, mode: OpenMode) -> Opened;
    /// Closes a file.
    fn close_file(handle: FileHandle, state: &OpenState) -> ();
    /// Reads at most `count` bytes.
    fn read(handle: FileHandle, state: &OpenState, offset: u64, count: u32) -> ReadReply;
    /// Writes the parts one after the other, without joining them; the server may write less than all.
    fn write_parts(handle: FileHandle, state: &OpenState, offset: u64, data: &[Bytes], stability: Stability) -> WriteReply;
    /// Makes written data stable; a count of 0 means all data after the offset.
    fn commit(handle: FileHandle, offset: u64, count: u32) -> CommitReply;
    /// Lists a part of a directory, of at most `bytes`, after a cookie with its verifier; with handles and attributes if
    /// `plus`.
    fn read_directory(directory: FileHandle, position: (u64, [u8; 8]), bytes: u32, plus: bool) -> DirPage;
    /// Creates an object that is not a regular file.
    fn create_object(directory: FileHandle, name: &[u8], kind: &NewObject, set: &SetAttributes) -> (Object, Changed);
    /// Removes the name of a file.
    fn remove_file(directory: FileHandle, name: &[u8]) -> Changed;
    /// Removes an empty directory.
    fn remove_directory(directory: FileHandle, name: &[u8]) -> Changed;
    /// Renames, and replaces an existing object with the new name. Returns the changes of the old and the new directory.
    fn rename(from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> (Changed, Changed);
    /// Gives a file another name.
    fn link(file: FileHandle, directory: FileHandle, name: &[u8]) -> Changed;
    /// Returns the properties of the object's file system.
    fn fs_info(handle: FileHandle) -> FsInfo;
    /// Returns the free space of the object's file system.
    fn fs_stat(handle: FileHandle) -> FsStat;
}

impl Client {
    /// Writes data; the server may write less than all.
    ///
    /// # Errors
    /// The server's status, or the reason of a missing reply.
    pub async fn write(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<WriteReply, OpError> {
        self.write_parts(caller, handle, state, offset, &[data], stability).await
    }
}

/// Returns the name of the operation for calls with a label.
fn operation_name(label: Label) -> String {
    let Label { program, version, number } = label;
    let known = match (program, version) {
        (nfs2::PROGRAM, nfs2::VERSION) => nfs2::Proc(number).name(),
        (nfs3::PROGRAM, nfs3::VERSION) => nfs3::Proc(number).name(),
        (nfs4::PROGRAM, nfs4::VERSION) => nfs4::types::OpNum(number).name(),
        (nfsacl::PROGRAM, _) => nfsacl::Proc(number).name(),
        (nlm::PROGRAM, _) => nlm::Proc(number).name(),
        (0, _) => Some("other"),
        _ => None,
    };
    known.map_or_else(|| format!("{program}.{version}.{number}"), str::to_owned)
}

/// Returns whether an error means that a name does not exist.
pub(crate) fn is_missing(error: &OpError) -> bool {
    matches!(error, OpError::Status(Status::NOENT))
}
