//! Mounts by a user without rights, by fusermount3, and by mount(8) with fstab(5). Both need files of root in the way: a mount
//! namespace of the test has them.

use std::path::Path;
use std::process::Command;

use crate::support::{ENFYS, Server, can_mount, sh};

/// Runs a script in a mount namespace of its own, and returns its output.
#[track_caller]
fn in_namespace(directory: &Path, script: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-euc", script]).current_dir(directory);
    let output = command.output().expect("unshare");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_user_without_rights_mounts_by_fusermount3() {
    if !can_mount() {
        return;
    }
    for version in ["3", "4.2"] {
        let server = Server::start();
        sh(&server.export(), "chmod 777 .");
        let top = tempfile::tempdir().expect("a temporary directory");
        // The device is everybody's on usual systems. The server serves users with an account: nobody.
        let script = format!(
            "mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse
             chmod 755 .; mkdir m run; chown 65534 m run; cp {ENFYS} enfys; PATH=$PWD:$PATH
             user() {{ XDG_RUNTIME_DIR=$PWD/run setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }}
             user enfys mount '{url}' m
             grep -q \"$PWD/m fuse\" /proc/self/mounts
             user sh -c 'echo text > m/f; sync m/f; stat -c %u m/f; enfys stats m | head -1 | grep -o nfs'
             # Even root may not look into it.
             ! ls m 2> /dev/null
             user enfys umount m
             user enfys mount '{url}' m
             user fusermount3 -u m
             ! grep -q \"$PWD/m fuse\" /proc/self/mounts",
            url = server.url("/export", version)
        );
        assert_eq!(in_namespace(top.path(), &script), "65534\nnfs\n", "{version}");
        assert_eq!(sh(&server.export(), "cat f; stat -c %u f"), "text\n65534\n");
    }
}

#[test]
fn mount_8_mounts_what_fstab_says() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    // mount(8) looks for helpers in /sbin only.
    let script = format!(
        "mkdir m upper work; ln -s {ENFYS} upper/mount.enfys
         mount -t overlay overlay -o lowerdir=$(realpath /sbin),upperdir=upper,workdir=work $(realpath /sbin)
         echo \"{url} $PWD/m enfys noauto,_netdev,nosuid,actimeo=1 0 0\" > fstab
         mount -T fstab $PWD/m
         grep -o \"$PWD/m fuse.enfys rw,nosuid\" /proc/self/mounts | wc -l
         echo text > m/f; sync m/f
         umount m; ! grep -q \"$PWD/m \" /proc/self/mounts",
        url = server.url("/export", "4.2")
    );
    assert_eq!(in_namespace(top.path(), &script), "1\n");
    assert_eq!(sh(&server.export(), "cat f"), "text\n");
}
