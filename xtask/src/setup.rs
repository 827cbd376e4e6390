//! `cargo xtask setup`: Debian packages and crates.io programs that the tests need, each with the reason.

use std::process::{Command, Stdio};

use crate::report::{Outcome, Tally};
use crate::tools::{TOOLS, Tool};

/// Options of `cargo xtask setup`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Print missing packages and programs; install nothing
    #[arg(long)]
    list: bool,
}

struct Package {
    name: &'static str,
    why: &'static str,
}

const fn package(name: &'static str, why: &'static str) -> Package {
    Package { name, why }
}

const PACKAGES: &[Package] = &[
    package("user-mode-linux", "a Linux kernel as a process: the NFS client of the kernel tests"),
    package("kmod", "loads the NFS modules in that kernel"),
    package("iproute2", "the TAP device between that kernel and the server"),
    package("nfs-common", "mount.nfs in that kernel"),
    package("btrfs-progs", "a small file system with a quota, for a real EDQUOT"),
    package("prometheus", "promtool checks the metrics"),
    package("git", "clone and fsck on the mount"),
    package("rsync", "copies a tree to the mount"),
    package("gcc", "builds a C program on the mount; links the Rust crates"),
    package("libc6-dev", "headers for that program"),
    package("make", "builds that program"),
    package("fuse3", "fusermount3, with which users without rights mount"),
    package("tar", "packs and unpacks a tree on the mount"),
    package("sqlite3", "two processes use one database on the mount; transactions of the bench"),
    package("libacl1-dev", "pjdfstest links it"),
    package("acl", "getfacl and setfacl on the mount"),
    package("nfs4-acl-tools", "nfs4_getfacl and nfs4_setfacl on the mount"),
    package("attr", "getfattr and setfattr on the mount"),
    package("libnfs-utils", "a second, independent NFS client in user space"),
    package("libnfs-dev", "headers of that client, for a program that longlink compares with"),
    package("libkrb5-dev", "headers of the Kerberos library, with which the tests build the server"),
    package("libclang-dev", "parses those headers for that build"),
    package("krb5-kdc", "the key distribution center for Kerberos mounts"),
    package("krb5-admin-server", "creates principals and keys there"),
    package("krb5-user", "kinit and klist in the Kerberos tests"),
    package("tshark", "dissects captured packets; a malformed one fails a test"),
    package("systemd", "systemd-analyze rates the exposure of contrib/enfys.service"),
    package("nfs-ganesha", "the user-space server that the bench and `cargo xtask peers` compare with"),
    package("nfs-ganesha-vfs", "its back end for a directory"),
    package("rpcbind", "NFS-Ganesha does not start without it; locks of version 3 are found by it"),
    package("nfs-kernel-server", "rpc.nfsd, which starts the kernel's server for the bench"),
    package("quota", "sets quotas of a file system, and asks for them on a client"),
    package("e2fsprogs", "mkfs.ext4 for the files of that server"),
    package(
        "qemu-system-arm",
        "an emulated machine without an operating system, on which a boot loader runs",
    ),
    package("u-boot-qemu", "that boot loader: a client of versions 2 and 3 over UDP"),
    package("chromium-headless-shell", "a browser that shows the report of the bench"),
    package(
        "fio",
        "its converter reads the results of the bench; its data rates are compared with the bench's",
    ),
    package("bonnie++", "its rates of creation, stat and deletion are compared with the bench's"),
];

/// Prints and installs missing packages and programs.
pub(crate) fn run(options: &Options) -> Outcome {
    // Packages first: the programs need their libraries.
    packages(options)?;
    tools(options)?;
    Ok(Tally::default())
}

fn packages(options: &Options) -> Result<(), String> {
    let wanted: Vec<&Package> = PACKAGES.iter().collect();
    if !has_program("dpkg-query") {
        return Err(format!("setup supports only Debian packages; install by hand: {}", names(&wanted)));
    }
    let missing: Vec<&Package> = wanted.into_iter().filter(|package| !is_installed(package.name)).collect();
    for package in &missing {
        println!("needs {:<16} {}", package.name, package.why);
    }
    if missing.is_empty() {
        println!("setup: every package is installed");
        return Ok(());
    }
    if options.list {
        return Ok(());
    }
    if !is_root() {
        return Err(format!(
            "setup must run as root to install; run: sudo apt-get install {}",
            names(&missing)
        ));
    }
    install(&missing)?;
    let is_new = |name: &str| missing.iter().any(|package| package.name == name) && has_program("systemctl");
    for (package, what) in
        [("nfs-ganesha", "NFS-Ganesha on port 2049"), ("prometheus", "Prometheus on port 9090")]
    {
        if is_new(package) {
            println!("note: Debian starts {what}: systemctl disable --now {package}");
        }
    }
    Ok(())
}

fn tools(options: &Options) -> Result<(), String> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !tool.is_installed()).collect();
    for tool in &missing {
        println!("needs {:<16} {}", tool.name, tool.why);
        if !options.list {
            tool.install()?;
        }
    }
    if missing.is_empty() {
        println!("setup: every program of crates.io is installed");
    }
    Ok(())
}

fn install(missing: &[&Package]) -> Result<(), String> {
    // A new image has no package lists, and those of an old image may name removed versions.
    apt(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(missing.iter().map(|package| package.name));
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    let status = Command::new("apt-get")
        .arg("-qq")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("apt-get: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("apt-get {} failed: {status}", arguments[0])) }
}

fn is_installed(package: &str) -> bool {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

/// Returns whether a program is in PATH or in Debian's directories for root.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin".into(), "/sbin".into()]);
    places.iter().any(|place| place.join(name).is_file())
}

/// Returns whether this process may install packages and create network namespaces.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn names(packages: &[&Package]) -> String {
    packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_listed_once_with_a_reason() {
        for (index, package) in PACKAGES.iter().enumerate() {
            assert!(!package.why.is_empty(), "{} has no reason", package.name);
            assert!(
                PACKAGES[..index].iter().all(|other| other.name != package.name),
                "{} twice",
                package.name
            );
        }
    }

    #[test]
    fn unknown_package_is_not_installed() {
        assert!(!is_installed("enfys-no-such-package"));
    }

    #[test]
    fn finds_programs_by_name() {
        assert!(has_program("sh"));
        assert!(!has_program("enfys-no-such-program"));
    }
}
