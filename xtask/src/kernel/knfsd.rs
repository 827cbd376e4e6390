//! The kernel's own server, to compare results with: a second guest, reached through the driver's namespace.
//!
//! It is not in the client's guest, because netem delays no packets to a guest's own address.

use std::path::Path;

use super::guest::Tap;
use super::matrix::Export;
use super::server::Directories;

/// The server guest's address.
pub(super) const ADDRESS: &str = "10.99.2.2";
/// Where the server guest has its exports, which version 3 clients see.
pub(super) const ROOT: &str = "/run/knfsd";
/// The device between the server guest and the driver's namespace.
pub(super) const TAP: Tap = Tap { name: "tap2", address: "10.99.2.1/24" };

/// Returns the shell command that boots the server guest. Its exported file system is an image of `directories`, which survives
/// when the guest is killed.
pub(super) fn command(
    export: Export,
    directories: &Directories,
    scripts_dir: &Path,
    mount_port: u16,
) -> String {
    let work = directories.work.display();
    let init = scripts_dir.join("knfsd.sh");
    let (init, tap, export) = (init.display(), TAP.name, export.name());
    // Without lazy initialization, which the tests would measure. The guest's memory is a file.
    format!(
        "image={work}/knfsd.img; [ -e $image ] || {{ truncate -s 4G $image; \
         mkfs.ext4 -q -N 100000 -E lazy_itable_init=0,lazy_journal_init=0 $image; }}; \
         TMPDIR={work}/memory exec linux.uml root=/dev/root rootfstype=hostfs rootflags=/ rw quiet mem=1G con=null con0=null,fd:1 \
         vec0:transport=tap,ifname={tap},depth=128,gro=1 uml_dir={work}/uml ubdb=$image init={init} \
         KNFSD_ROOT={ROOT} KNFSD_ADDRESS={ADDRESS} EXPORT_MODE={export} MOUNT_PORT={mount_port}"
    )
}
