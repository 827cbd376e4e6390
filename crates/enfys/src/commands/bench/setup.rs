//! `enfys bench setup`: programs that measurements need in addition to this one.

use bench::plan::Machine as _;
use bench::runner::ThisMachine;
use rustix::fs::{Access, access};

use super::print;

/// A program: its purpose, and Debian's package.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("ganesha.nfsd", "NFS-Ganesha to compare with", "nfs-ganesha nfs-ganesha-vfs"),
    ("linux.uml", "the kernel's server and client without a mount here", "user-mode-linux"),
    ("mount.nfs", "mounted directories as targets", "nfs-common"),
    ("fio", "checks of data rates against another program", "fio"),
];

/// Prints the installed programs, and how to install missing ones.
pub fn run() -> Result<(), String> {
    let mut lines: Vec<String> =
        PROGRAMS.iter().map(|(name, purpose, package)| program(name, purpose, package)).collect();
    lines.push(match access("/dev/net/tun", Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => "found    /dev/net/tun (links: --delay, enfys bench link)".to_owned(),
        Err(error) => format!(
            "missing  /dev/net/tun (links: --delay, enfys bench link): {error}; as root: `modprobe tun`, or start the \
             container with `--device /dev/net/tun`"
        ),
    });
    if !ThisMachine.is_root() {
        lines.push(
            "note     without root: links need user namespaces (`unshare -rn true` must succeed), and caches cannot be dropped"
                .to_owned(),
        );
    }
    print(&lines.join("\n"))
}

fn program(name: &str, purpose: &str, package: &str) -> String {
    if ThisMachine.has_program(name) {
        format!("found    {name} ({purpose})")
    } else {
        format!("missing  {name} ({purpose}): on Debian, `apt-get install {package}`")
    }
}
