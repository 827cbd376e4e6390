//! The handle of a path: MOUNT version 3 (RFC 1813 §5), found by the port mapper (RFC 1833 §3).

use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use protocol::mount::{self, DirPath, MountOk, MountResult, MountStat};
use protocol::nfs4::types::Status;
use protocol::{nfs3, portmap};
use rpc::auth::AuthFlavor;
use rpc::message::{RpcError, parse_reply};
use xdr::{Decode, Encode};

use super::calls::{Procedure, from_wire, start_record};
use super::{Nfs3, lacks_program};
use crate::config::Caller;
use crate::engine::{CallError, ConnectionId, Engine, RetryPolicy};
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Object;

/// Timeout of MOUNT and the port mapper, and retries. No data are lost if they fail, so that even a `hard` mount
/// does not wait for them without limit.
const SIDE_POLICY: RetryPolicy =
    RetryPolicy { timeout: Duration::from_secs(10), retries: Some(2), fails_fast: true };
/// Maximum number of mounts that are undone at the end.
const MOUNTS_MAX: usize = 1024;

/// The mounted paths and the ports of their MOUNT, to unmount them at the end. Linux's server counts the mounts of a path.
#[derive(Debug, Default)]
pub(super) struct MountPaths(Mutex<Vec<(u16, Vec<u8>)>>);

/// A connection to MOUNT or the port mapper, which is closed after use.
struct SideConnection<'a> {
    engine: &'a std::sync::Arc<Engine>,
    id: ConnectionId,
}

impl<'a> SideConnection<'a> {
    fn open(engine: &'a std::sync::Arc<Engine>, port: u16) -> Result<Self, OpError> {
        Ok(Self { engine, id: engine.open_connection(port, SIDE_POLICY)? })
    }

    async fn call<T: Decode>(
        &self,
        caller: &Caller,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> Result<T, OpError> {
        let call = self.engine.call(self.id, |xid| {
            let mut record = start_record(xid, caller, procedure);
            arguments.encode(record.writer());
            record.finish()
        });
        Ok(parse_reply(call.await?)?)
    }
}

impl Drop for SideConnection<'_> {
    fn drop(&mut self) {
        self.engine.close_connection(self.id);
    }
}

/// A possible location of MOUNT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Port(u16),
    PortMapper,
}

const fn procedure(procedure: mount::Proc) -> Procedure {
    Procedure { program: mount::PROGRAM, version: mount::VERSION_3, number: procedure.0 }
}

impl Nfs3 {
    /// Returns the object at a path of the server. Servers mount only directories, some only exports: the rest of the path is
    /// looked up below the nearest directory that can be mounted.
    pub(crate) async fn mount(&self, caller: &Caller, path: &[&[u8]]) -> Result<Object, OpError> {
        let mut outcome = Err(OpError::Unsupported("MOUNT version 3, or its port is not known"));
        for place in self.mount_places() {
            outcome = self.mount_at(caller, place, path).await;
            match &outcome {
                Err(error) if is_absent(error) => {}
                _ => return outcome,
            }
        }
        outcome
    }

    /// Returns the possible locations of MOUNT, in order. At an unusual NFS port there is a server that other servers' port
    /// mapper may not know.
    fn mount_places(&self) -> Vec<Place> {
        match self.config.mount_port {
            Some(port) => vec![Place::Port(port)],
            None if self.port == nfs3::PORT => vec![Place::PortMapper, Place::Port(self.port)],
            None => vec![Place::Port(self.port), Place::PortMapper],
        }
    }

    async fn mount_at(&self, caller: &Caller, place: Place, path: &[&[u8]]) -> Result<Object, OpError> {
        let port = match place {
            Place::Port(port) => port,
            Place::PortMapper => {
                let port = self.ask_port_mapper(mount::PROGRAM, mount::VERSION_3).await?;
                port.ok_or(OpError::Unsupported("MOUNT version 3"))?
            }
        };
        let (mounted, length) = self.mount_nearest(caller, port, path).await?;
        check_flavors(&mounted.auth_flavors)?;
        let handle = from_wire(&mounted.fhandle)?;
        self.lookup_chain(caller, handle, &path[length..]).await
    }

    /// Mounts the path, or else the nearest directory above it. Returns the number of the path's names in it.
    async fn mount_nearest(
        &self,
        caller: &Caller,
        port: u16,
        path: &[&[u8]],
    ) -> Result<(MountOk, usize), OpError> {
        let connection = SideConnection::open(&self.engine, port)?;
        let mut refused = None;
        for length in (0..=path.len()).rev() {
            let joined = join(&path[..length]);
            let Ok(directory) = DirPath::new(joined.clone()) else {
                refused.get_or_insert(OpError::Invalid(Errno::ENAMETOOLONG, "the path is too long"));
                continue;
            };
            match connection.call(caller, procedure(mount::Proc::MNT), &directory).await? {
                MountResult::Ok(mounted) => {
                    self.mounts.add(port, joined);
                    return Ok((mounted, length));
                }
                MountResult::Fail(status) => {
                    let may_be_above =
                        matches!(status, MountStat::NOENT | MountStat::NOTDIR | MountStat::ACCES);
                    let error = refused.get_or_insert(OpError::Status(Status(status.0))).clone();
                    if !may_be_above {
                        return Err(error);
                    }
                }
            }
        }
        Err(refused.unwrap_or(OpError::Status(Status::NOENT)))
    }

    /// Returns the port that the port mapper has for NFS version 3; `None` if there is none, or no port mapper.
    pub(super) async fn mapped_port(&self) -> Option<u16> {
        self.ask_port_mapper(nfs3::PROGRAM, nfs3::VERSION).await.ok().flatten()
    }

    async fn ask_port_mapper(&self, program: u32, version: u32) -> Result<Option<u16>, OpError> {
        let connection = SideConnection::open(&self.engine, portmap::PORT)?;
        let getport = Procedure {
            program: portmap::PROGRAM,
            version: portmap::VERSION,
            number: portmap::Proc::GETPORT.0,
        };
        let service = portmap::Mapping { program, version, protocol: portmap::Protocol::TCP, port: 0 };
        let port: u32 = connection.call(&Caller::anonymous(), getport, &service).await?;
        match u16::try_from(port) {
            Ok(0) => Ok(None),
            Ok(port) => Ok(Some(port)),
            Err(_) => Err(OpError::BadReply("a port above 65535")),
        }
    }

    /// Sends UMNT for each mounted path. Failures do not matter.
    pub(super) async fn unmount_all(&self) {
        let caller = &self.config.machine;
        let unmount = async |(port, paths): (u16, Vec<DirPath>)| {
            let Ok(connection) = SideConnection::open(&self.engine, port) else { return };
            let umnt = procedure(mount::Proc::UMNT);
            join_all(paths.iter().map(|path| connection.call::<()>(caller, umnt, path))).await;
        };
        join_all(self.mounts.take().into_iter().map(unmount)).await;
    }
}

impl MountPaths {
    fn add(&self, port: u16, path: Vec<u8>) {
        let mut paths = self.0.lock();
        if paths.len() < MOUNTS_MAX {
            paths.push((port, path));
        }
    }

    /// Takes all paths by the port of their MOUNT.
    fn take(&self) -> Vec<(u16, Vec<DirPath>)> {
        let mut by_port: Vec<(u16, Vec<DirPath>)> = Vec::new();
        let mut mounts = std::mem::take(&mut *self.0.lock());
        mounts.sort_unstable();
        for (port, path) in mounts {
            let Ok(path) = DirPath::new(path) else { continue };
            match by_port.last_mut() {
                Some((last, paths)) if *last == port => paths.push(path),
                _ => by_port.push((port, vec![path])),
            }
        }
        by_port
    }
}

/// Returns whether an error means that there is no MOUNT at this location.
fn is_absent(error: &OpError) -> bool {
    lacks_program(error)
        || matches!(
            error,
            OpError::Call(
                CallError::Unreachable(_) | CallError::TimedOut | CallError::Rpc(RpcError::Garbled(_))
            ) | OpError::Unsupported(_)
        )
}

/// Checks that the export takes one of the flavors of this client. An empty list has no meaning; servers that ignore
/// credentials return AUTH_NONE alone.
fn check_flavors(flavors: &[u32]) -> Result<(), OpError> {
    let is_ours = |flavor: &u32| [AuthFlavor::SYS.0, AuthFlavor::NONE.0].contains(flavor);
    if flavors.is_empty() || flavors.iter().any(is_ours) {
        return Ok(());
    }
    Err(OpError::Flavors(flavors.into()))
}

/// Returns a path as MOUNT takes it.
fn join(names: &[&[u8]]) -> Vec<u8> {
    let mut path: Vec<u8> = names.iter().flat_map(|name| [&b"/"[..], name].concat()).collect();
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_with_a_slash_in_front() {
        assert_eq!(join(&[]), b"/");
        assert_eq!(join(&[b"a", b"b c"]), b"/a/b c");
    }

    #[test]
    fn exports_must_take_a_flavor_of_this_client() {
        for taken in [&[][..], &[1], &[0], &[390_003, 1]] {
            assert_eq!(check_flavors(taken), Ok(()));
        }
        let error = check_flavors(&[390_003, 390_005, 77]).unwrap_err();
        assert_eq!(error.errno(), Errno::EACCES);
        assert_eq!(
            error.to_string(),
            "the export takes the security flavors krb5, krb5p, 77 only, and this client has sys"
        );
    }

    #[test]
    fn mounts_are_taken_by_port_as_often_as_made() {
        let mounts = MountPaths::default();
        for (port, path) in [(20048, b"/a"), (2049, b"/b"), (20048, b"/c"), (20048, b"/a")] {
            mounts.add(port, path.to_vec());
        }
        let path = |path: &'static [u8]| DirPath::from_static(path);
        let at_20048 = vec![path(b"/a"), path(b"/a"), path(b"/c")];
        assert_eq!(mounts.take(), [(2049, vec![path(b"/b")]), (20048, at_20048)]);
        assert!(mounts.take().is_empty());
    }
}
