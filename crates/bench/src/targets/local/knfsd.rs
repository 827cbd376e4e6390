//! The kernel's server, in user-mode Linux: a Linux kernel that runs as a process, in a network namespace of its own.
//!
//! The guest sees this machine's files, read-only, for its programs. It exports a file system of its own on an image file. It is
//! reached through the server's end of a link, which forwards packets to it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::launch::{Address, Launch};

/// The guest's address, and that of the link's end in the guest's network.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Where the client's end of a link finds the guest.
pub const NETWORK: &str = "10.99.0.0/24";
/// The port of MOUNT.
const MOUNT_PORT: u16 = 20048;
/// Bytes of the exported file system. The image file is sparse.
const IMAGE_BYTES: u64 = 16 << 30;
/// Where the guest has mounted it.
const MOUNTED: &str = "/run/export";

/// Process 1 of the guest. The port of MOUNT is open when everything else is ready.
const INIT: &str = "\
#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t tmpfs run /run && mount -t tmpfs dev /dev
mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9; mknod /dev/ubdb b 98 16
# Debian keeps some modules where modprobe does not look.
kernel=$(uname -r)
mkdir -p /run/rpcbind /run/export /run/modules/lib/modules/$kernel
mount --bind /usr/lib/uml/modules/$kernel /run/modules/lib/modules/$kernel
modprobe -d /run/modules nfsd
mount -t nfsd nfsd /proc/fs/nfsd
[ ! -e /etc/nfs.conf ] || mount --bind /dev/null /etc/nfs.conf
mount -t tmpfs state /var/lib/nfs
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/nfsdcltrack
ip link set lo up; ip addr add @GUEST@/24 dev vec0; ip link set vec0 up; ip route add default via @HOST@
mount -t ext4 /dev/ubdb @MOUNTED@ || poweroff -f
rpcbind -w
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 '*:@MOUNTED@'
rpc.nfsd 8 || poweroff -f
# No client has state to reclaim.
echo Y >/proc/fs/nfsd/v4_end_grace
rpc.mountd --port @MOUNT_PORT@
exec sleep infinity
";

/// Makes the network between link and guest, then the guest in the shell's place.
const START: &str = "\
#!/bin/sh
export PATH=$PATH:/usr/sbin:/sbin
ip tuntap add tap0 mode tap && ip addr add @HOST@/24 dev tap0 && ip link set tap0 up || exit 1
echo 1 >/proc/sys/net/ipv4/ip_forward || exit 1
# The guest's memory is a file.
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm
exec linux.uml root=/dev/root rootfstype=hostfs rootflags=/ ro quiet mem=1G init='@PLACE@/init' ubdb='@PLACE@/image' \\
    vec0:transport=tap,ifname=tap0,depth=128,gro=1 con=null con0=null,fd:1
";

/// Writes the guest's file system and scripts, and returns how it is started.
///
/// # Errors
/// Those of files, and of `mkfs.ext4`.
pub(super) fn launch(place: &Path) -> Result<Launch, String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    // The path is a word of the kernel's command line.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if !place.to_string_lossy().chars().all(is_plain) {
        return Err(failed(place, &"the path has characters that a kernel's command line cannot have"));
    }
    let image = place.join("image");
    let sized = fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
    sized.map_err(|error| failed(&image, &error))?;
    // Whatever the file system delays until later would be measured.
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&image);
    let made = make.output().map_err(|error| failed(Path::new("mkfs.ext4"), &error))?;
    if !made.status.success() {
        return Err(failed(&image, &String::from_utf8_lossy(&made.stderr).trim()));
    }
    let filled = |text: &str| {
        text.replace("@GUEST@", &GUEST.to_string())
            .replace("@HOST@", &HOST.to_string())
            .replace("@MOUNTED@", MOUNTED)
            .replace("@MOUNT_PORT@", &MOUNT_PORT.to_string())
            .replace("@PLACE@", &place.display().to_string())
    };
    for (name, text) in [("init", INIT), ("start", START)] {
        let path = place.join(name);
        fs::write(&path, filled(text)).map_err(|error| failed(&path, &error))?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(|error| failed(&path, &error))?;
    }
    Ok(Launch::script(place.join("start")))
}

/// Returns where the guest is found, and what a version calls its export: version 4 has only the file system.
pub(super) fn address(is_version_4: bool) -> (Address, &'static str) {
    let server = SocketAddr::from((GUEST, protocol::nfs3::PORT));
    (Address { server, mount_port: MOUNT_PORT, metrics: None }, if is_version_4 { "/" } else { MOUNTED })
}
