//! What the servers that the bench starts need in addition to this program, with Debian's packages.

use std::path::Path;

/// Queries about the machine of a plan.
pub trait Machine {
    /// Returns whether a program is in the search path.
    fn has_program(&self, name: &str) -> bool;
    /// Returns whether a file exists.
    fn has_file(&self, path: &Path) -> bool;
    /// Checks that a directory can be written to.
    ///
    /// # Errors
    /// The reason.
    fn can_write(&self, directory: &Path) -> Result<(), String>;
    /// Returns whether a directory is on the file system of a server.
    fn is_remote(&self, directory: &Path) -> bool;
    /// Returns whether this process is root.
    fn is_root(&self) -> bool;
}

/// Something that a server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Its name.
    pub name: &'static str,
    /// Where it may be if it is no program; one of these files must exist.
    pub files: &'static [&'static str],
    /// Debian's packages that have it.
    pub packages: &'static str,
}

impl Requirement {
    /// Returns whether the machine has it.
    #[must_use]
    pub fn is_met(&self, machine: &impl Machine) -> bool {
        match self.files {
            [] => machine.has_program(self.name),
            files => files.iter().any(|file| machine.has_file(Path::new(file))),
        }
    }

    /// Returns how to install it.
    #[must_use]
    pub fn remedy(&self) -> String {
        format!("on Debian, `apt-get install {}`", self.packages)
    }
}

/// Returns a program.
const fn program(name: &'static str, packages: &'static str) -> Requirement {
    Requirement { name, files: &[], packages }
}

/// The program of the workload `database` with the engine `sqlite3`.
pub const SQLITE: Requirement = program("sqlite3", "sqlite3");
/// The program that `enfys bench honesty` compares data rates with.
pub const FIO: Requirement = program("fio", "fio");
/// The program that it compares operations on names with.
pub const BONNIE: Requirement = program("bonnie++", "bonnie++");

/// NFS-Ganesha with its VFS back end. Its version 3 needs a port mapper, which it gets for itself alone.
pub const GANESHA: &[Requirement] = &[
    program("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    Requirement {
        name: "libfsalvfs.so",
        files: &[
            "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so",
            "/usr/lib/aarch64-linux-gnu/ganesha/libfsalvfs.so",
            "/usr/lib/ganesha/libfsalvfs.so",
            "/usr/lib64/ganesha/libfsalvfs.so",
        ],
        packages: "nfs-ganesha-vfs",
    },
    program("rpcbind", "rpcbind"),
    program("unshare", "util-linux"),
    program("setpriv", "util-linux"),
];

/// The kernel's server in user-mode Linux.
pub const KNFSD: &[Requirement] = &[
    program("linux.uml", "user-mode-linux"),
    program("rpc.nfsd", "nfs-kernel-server"),
    program("rpcbind", "rpcbind"),
    program("mkfs.ext4", "e2fsprogs"),
    program("modprobe", "kmod"),
    program("ip", "iproute2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with some programs and files.
    struct Having(&'static [&'static str]);

    impl Machine for Having {
        fn has_program(&self, name: &str) -> bool {
            self.0.contains(&name)
        }
        fn has_file(&self, path: &Path) -> bool {
            self.0.iter().any(|known| Path::new(known) == path)
        }
        fn can_write(&self, _: &Path) -> Result<(), String> {
            Ok(())
        }
        fn is_remote(&self, _: &Path) -> bool {
            false
        }
        fn is_root(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_plugin_may_be_in_one_of_several_places() {
        let machine = Having(&["ganesha.nfsd", "/usr/lib/ganesha/libfsalvfs.so"]);
        let unmet: Vec<&str> =
            GANESHA.iter().filter(|need| !need.is_met(&machine)).map(|need| need.name).collect();
        assert_eq!(unmet, ["rpcbind", "unshare", "setpriv"]);
        assert_eq!(GANESHA[1].remedy(), "on Debian, `apt-get install nfs-ganesha-vfs`");
    }
}
