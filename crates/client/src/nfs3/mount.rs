//! The handle of a path: MOUNT version 3 (RFC 1813 §5), or version 1 for NFS version 2 (RFC 1094 appendix A), found by the port mapper
//! (RFC 1833 §3).

use futures_util::future::join_all;
use parking_lot::Mutex;
use protocol::mount::{self, DirPath, FhStatus, MountOk, MountResult, MountStat};
use protocol::nfs3::{self, FileHandle as WireHandle};
use protocol::nfs4::types::Status;
use rpc::auth::AuthFlavor;
use xdr::List;

use super::Nfs3;
use super::calls::from_wire;
use super::side::{Place, SideConnection, ask_port_mapper, is_absent};
use crate::calls::Procedure;
use crate::config::{Caller, Version};
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Object;

/// Maximum number of mounts that are undone at the end.
const MOUNTS_MAX: usize = 1024;

/// The mounted paths and the ports of their MOUNT, to unmount them at the end. Linux's server counts the mounts of a path.
#[derive(Debug, Default)]
pub(super) struct MountPaths(Mutex<Vec<(u16, Vec<u8>)>>);

impl Nfs3 {
    /// Returns the object at a path of the server. Servers mount only directories, some only exports: the rest of the path is
    /// looked up below the nearest directory that can be mounted.
    pub(crate) async fn mount(&self, caller: &Caller, path: &[&[u8]]) -> Result<Object, OpError> {
        let mut outcome = Err(OpError::Unsupported(match self.version {
            Version::V2 => "MOUNT version 1, or its port is not known",
            _ => "MOUNT version 3, or its port is not known",
        }));
        for place in Place::all(self.config.mount_port, self.port) {
            outcome = self.mount_at(caller, place, path).await;
            match &outcome {
                Err(error) if is_absent(error) => {}
                _ => return outcome,
            }
        }
        outcome
    }

    async fn mount_at(&self, caller: &Caller, place: Place, path: &[&[u8]]) -> Result<Object, OpError> {
        let program = (mount::PROGRAM, self.mount_procedure(mount::Proc::MNT).version);
        let transport = self.config.mount_transport;
        let port = place.port(&self.engine, transport, program, "this version of MOUNT").await?;
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
        let connection = SideConnection::open(&self.engine, self.config.mount_transport, port)?;
        let mut refused = None;
        for length in (0..=path.len()).rev() {
            let joined = join(&path[..length]);
            let Ok(directory) = DirPath::new(joined.clone()) else {
                refused.get_or_insert(OpError::Invalid(Errno::ENAMETOOLONG, "the path is too long"));
                continue;
            };
            match self.mnt(&connection, caller, &directory).await? {
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

    /// Calls MNT.
    async fn mnt(
        &self,
        connection: &SideConnection<'_>,
        caller: &Caller,
        directory: &DirPath,
    ) -> Result<MountResult, OpError> {
        let mnt = self.mount_procedure(mount::Proc::MNT);
        if mnt.version == mount::VERSION_3 {
            return connection.call(caller, mnt, directory).await;
        }
        Ok(match connection.call(caller, mnt, directory).await? {
            FhStatus::Ok(handle) => {
                let fhandle = WireHandle::new(&handle).unwrap_or_default();
                MountResult::Ok(MountOk { fhandle, auth_flavors: List::default() })
            }
            // The numbers that servers of both versions use are those of UNIX.
            FhStatus::Fail(errno) => MountResult::Fail(MountStat(errno)),
        })
    }

    fn mount_procedure(&self, procedure: mount::Proc) -> Procedure {
        let version = match self.version {
            Version::V2 => mount::VERSION_1,
            _ => mount::VERSION_3,
        };
        Procedure { program: mount::PROGRAM, version, number: procedure.0 }
    }

    /// Returns the port that the port mapper has for this version of NFS; `None` if there is none, or no port mapper.
    pub(super) async fn mapped_port(&self) -> Option<u16> {
        let (transport, version) = (self.config.transport, self.number());
        ask_port_mapper(&self.engine, transport, nfs3::PROGRAM, version).await.ok().flatten()
    }

    /// Sends UMNT for each mounted path. Failures do not matter.
    pub(super) async fn unmount_all(&self) {
        let caller = &self.config.machine;
        let unmount = async |(port, paths): (u16, Vec<DirPath>)| {
            let transport = self.config.mount_transport;
            let Ok(connection) = SideConnection::open(&self.engine, transport, port) else { return };
            let umnt = self.mount_procedure(mount::Proc::UMNT);
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
