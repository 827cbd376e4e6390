//! A client of one server: the versions of the protocol behind one set of operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::{nfs2, nfs3, nfs4, nfsacl, nlm};

use crate::acl::Acl;
use crate::attributes::{Attributes, Before, Changed, SetAttributes, Timestamp};
use crate::background::Background;
use crate::calls::open_connection;
use crate::config::{Caller, Config, Version};
use crate::delegations::{DelegatedCache, DelegationCounts, Held, Kind};
use crate::engine::{CallError, ConnectionId, Engine, Label, Traffic};
use crate::errno::Errno;
use crate::error::OpError;
use crate::nfs3::Nfs3;
use crate::nfs4::Nfs4;
use crate::results::{
    CommitReply, Creation, DirPage, FileHandle, FsInfo, FsStat, NewObject, Object, OpenMode, OpenState,
    Opened, ReadReply, Stability, WriteReply,
};
use crate::url::Transport;

mod hand_over;
mod locks;
mod many;
mod singles;
mod version4;
mod watching;

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
