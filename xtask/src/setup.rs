//! `cargo xtask setup`: the Debian packages and the programs of crates.io that the tests need, each with the reason.

use std::process::{Command, Stdio};

use crate::report::{Outcome, Tally};
use crate::tools::{TOOLS, Tool};

/// Options of `cargo xtask setup`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Also install the servers that `cargo xtask peers` measures against
    #[arg(long)]
    peers: bool,
    /// Print the table and what is missing; install nothing
    #[arg(long)]
    list: bool,
}

/// What a package is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Tests,
    Peers,
}

struct Package {
    name: &'static str,
    needed_for: For,
    why: &'static str,
}

const fn tests(name: &'static str, why: &'static str) -> Package {
    Package { name, needed_for: For::Tests, why }
}

const fn peers(name: &'static str, why: &'static str) -> Package {
    Package { name, needed_for: For::Peers, why }
}

const PACKAGES: &[Package] = &[
    tests(
        "user-mode-linux",
        "a Linux kernel that runs as a process: the real NFS client of the kernel tests",
    ),
    tests("kmod", "loads the NFS modules inside that kernel"),
    tests("iproute2", "the TAP device between that kernel and the server"),
    tests("nfs-common", "mount.nfs inside that kernel"),
    tests("btrfs-progs", "a small file system with a quota, so that EDQUOT comes from a real one"),
    tests("prometheus", "promtool, its own checker, judges the metrics"),
    tests("git", "clone and fsck on the mount"),
    tests("gcc", "builds a C program on the mount; links the Rust crates"),
    tests("libc6-dev", "headers for that program"),
    tests("make", "builds that program"),
    tests("tar", "packs and unpacks a tree on the mount"),
    tests("sqlite3", "two processes on one database on the mount"),
    tests("libacl1-dev", "pjdfstest links it"),
    tests("acl", "getfacl and setfacl on the mount"),
    tests("attr", "getfattr and setfattr on the mount"),
    tests("libnfs-utils", "a second NFS client, in user space, that nobody here wrote"),
    tests("libkrb5-dev", "headers of the Kerberos library: the tests build the server with it"),
    tests("libclang-dev", "reads those headers for that build"),
    tests("krb5-kdc", "the authority that Kerberos mounts need"),
    tests("krb5-admin-server", "makes the principals and their keys there"),
    tests("krb5-user", "kinit and klist inside the Kerberos tests"),
    tests("tshark", "dissects captured exchanges: a malformed packet fails a test"),
    tests("systemd", "systemd-analyze judges how exposed contrib/enfys.service is"),
    peers("nfs-ganesha", "the user-space server to measure against"),
    peers("nfs-ganesha-vfs", "its back end over a directory"),
    peers("rpcbind", "without it NFS-Ganesha does not start"),
];

/// Installs what is missing; says which and why first.
pub(crate) fn run(options: &Options) -> Outcome {
    // Programs are built with libraries that are packages.
    packages(options)?;
    tools(options)?;
    Ok(Tally::default())
}

fn packages(options: &Options) -> Result<(), String> {
    let wanted: Vec<&Package> =
        PACKAGES.iter().filter(|package| options.peers || package.needed_for == For::Tests).collect();
    if !has_program("dpkg-query") {
        return Err(format!("setup knows Debian's packages only; install by hand: {}", names(&wanted)));
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
    // A fresh image has no package lists, and an old one has lists that name versions already gone.
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

/// Whether a program of this name is on the PATH or where Debian keeps root's.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin".into(), "/sbin".into()]);
    places.iter().any(|place| place.join(name).is_file())
}

/// Whether this process may install packages and make network namespaces.
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
    fn every_package_is_named_once_and_says_why() {
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
    fn a_package_that_does_not_exist_is_not_installed() {
        assert!(!is_installed("enfys-no-such-package"));
    }

    #[test]
    fn finds_programs_by_name() {
        assert!(has_program("sh"));
        assert!(!has_program("enfys-no-such-program"));
    }
}
