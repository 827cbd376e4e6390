//! The handle of a path: MOUNT version 3 (RFC 1813 §5), found by the port mapper (RFC 1833 §3).

use futures_util::future::join_all;
use parking_lot::Mutex;
use protocol::mount::{self, DirPath, MountOk, MountResult, MountStat};
use protocol::nfs3;
use protocol::nfs4::types::Status;
use rpc::auth::AuthFlavor;

use super::Nfs3;
use super::calls::{Procedure, from_wire};
use super::side::{Place, SideConnection, ask_port_mapper, is_absent};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Object;

/// Maximum number of mounts that are undone at the end.
const MOUNTS_MAX: usize = 1024;

/// The mounted paths and the ports of their MOUNT, to unmount them at the end. Linux's server counts the mounts of a path.
#[derive(Debug, Default)]
pub(super) struct MountPaths(Mutex<Vec<(u16, Vec<u8>)>>);

const fn procedure(procedure: mount::Proc) -> Procedure {
    Procedure { program: mount::PROGRAM, version: mount::VERSION_3, number: procedure.0 }
}

impl Nfs3 {
    /// Returns the object at a path of the server. Servers mount only directories, some only exports: the rest of the path is
    /// looked up below the nearest directory that can be mounted.
    pub(crate) async fn mount(&self, caller: &Caller, path: &[&[u8]]) -> Result<Object, OpError> {
        let mut outcome = Err(OpError::Unsupported("MOUNT version 3, or its port is not known"));
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
        let program = (mount::PROGRAM, mount::VERSION_3);
        let port = place.port(&self.engine, program, "MOUNT version 3").await?;
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
        ask_port_mapper(&self.engine, nfs3::PROGRAM, nfs3::VERSION).await.ok().flatten()
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
