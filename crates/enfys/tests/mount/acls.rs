//! Access control lists by getfacl(1), setfacl(1), nfs4_getfacl(1) and nfs4_setfacl(1).

use std::process::Command;

use crate::support::{Mounted, Server, can_mount, sh};

/// Returns whether a program is installed, and prints that it is not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: there is no {program}");
    }
    found
}

/// Prints `yes` or `no`: whether a user other than the owner can write to `f`, and read it.
const MAY: &str = "for u in 1234 1235; do python3 -c \"
import os
os.setgroups([]); os.setgid($u); os.setuid($u)
for mode in 'r+', 'r':
    try: open('f', mode).close(); print('yes', end=' ')
    except PermissionError: print('no', end=' ')\"; done";

#[test]
fn posix_lists_of_a_mount_of_version_3_are_those_of_the_server() {
    if !can_mount() || !has("setfacl") {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "3", &["-o", "acl"]);
    mounted
        .sh("echo text > f; chmod 640 f; mkdir d; setfacl -m u:1234:rw f; setfacl -m g:77:rx,d:u:1234:rwx d");
    let show = "getfacl -npc f d";
    let there = sh(&server.export(), show);
    assert!(there.contains("user:1234:rw-") && there.contains("default:user:1234:rwx"), "{there}");
    assert_eq!(mounted.sh(show), there);
    // The kernel checks by the list.
    assert_eq!(mounted.sh(MAY), "yes yes no no ");
    // Lists that the server changed, and new objects that inherit.
    sh(&server.export(), "setfacl -m u:1235:r f; chmod 600 d");
    mounted.sh("touch d/new");
    assert_eq!(mounted.sh("getfacl -npc d/new"), sh(&server.export(), "getfacl -npc d/new"));
    assert!(mounted.sh("getfacl -npc d/new").contains("user:1234:"));
    // Without a list only the mode counts.
    mounted.sh("setfacl -b f; setfacl -k d; chmod 604 f");
    let there = sh(&server.export(), show);
    assert!(!there.contains("1234:rw-") && !there.contains("default"), "{there}");
    assert_eq!(mounted.sh(show), there);
    assert_eq!(mounted.sh(MAY), "no yes no yes ");
    // A copy with its list.
    mounted.sh("setfacl -m u:1234:rw f; cp --preserve=mode f copy");
    assert!(sh(&server.export(), "getfacl -npc copy").contains("user:1234:rw-"));
    mounted.sh("! setfacl -m d:u:1:r f 2> /dev/null; ! getfattr --absolute-names -n user.a f 2> /dev/null");
    mounted.end();
}

#[test]
fn lists_below_version_4_2_need_an_option() {
    if !can_mount() || !has("setfacl") {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "3", &[]);
    mounted.sh("touch f; ! setfacl -m u:1234:rw f 2> /dev/null");
    mounted.end();
}

#[test]
fn lists_of_version_4_are_read_and_changed() {
    if !can_mount() || !has("nfs4_getfacl") {
        return;
    }
    for (version, options) in [("4.2", &[][..]), ("4.1", &["-o", "acl"])] {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, options);
        mounted.sh("echo text > f; chmod 640 f");
        let before = mounted.sh("nfs4_getfacl f");
        assert!(before.contains("A::OWNER@:") && before.contains("A::EVERYONE@:"), "{before}");
        mounted.sh("nfs4_setfacl -a A::1234:rwatTnNcCy f");
        assert!(mounted.sh("nfs4_getfacl f").contains("A::1234:rwa"), "{version}");
        let there = sh(&server.export(), "getfacl -npc f");
        assert!(there.contains("user:1234:rw-"), "{version}: {there}");
        sh(&server.export(), "setfacl -x u:1234 f; setfacl -m u:77:r f");
        let after = mounted.sh("nfs4_getfacl f");
        assert!(after.contains("A::77:r") && !after.contains("1234"), "{version}: {after}");
        mounted.end();
    }
}
