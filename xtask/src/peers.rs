//! `cargo xtask peers`: builds the programs to compare and runs the comparison in its own namespaces.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::report::{Outcome, Tally, workspace_root};
use crate::setup::is_root;

/// Runs in new network, mount and process namespaces. NFS-Ganesha needs rpcbind, which would otherwise serve the whole machine, and
/// both leave files in `/run` and `/var/lib`. All servers end with the comparison.
///
/// The script sets TCP's default congestion control, cubic. BBR would pace loopback too, and its timer interrupts would count as
/// the server's CPU time.
const IN_NAMESPACE: &str = "\
ip link set lo up
for to in 127.0.0.0/8 127.0.0.1; do
    ip route change local $to dev lo table local congctl cubic || echo 'cannot set the congestion control; keeping that of the machine' >&2
done
mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind /run/ganesha
if [ -d /var/lib/nfs ]; then mkdir -p /var/lib/nfs/ganesha && mount -t tmpfs tmpfs /var/lib/nfs/ganesha; fi
ENFYS_PEERS_NAMESPACE=1 exec \"$@\"";

/// Options of `cargo xtask peers`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Options of the comparison itself, such as --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    comparison: Vec<OsString>,
}

/// Builds the release programs and compares.
pub(crate) fn run(options: &Options) -> Outcome {
    let root = workspace_root();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // Absolute, because the other build has another working directory.
    let target = std::path::absolute(target).map_err(|error| error.to_string())?;
    let for_peers = target.join("bench-peers");
    build(Command::new("cargo").current_dir(&root).args([
        "build",
        "--release",
        "-p",
        "enfys",
        "-p",
        "enfys-bench",
    ]))?;
    let mut nfs3_server = Command::new("cargo");
    nfs3_server.current_dir(root.join("bench-peers/nfs3_server")).args(["build", "--release", "--locked"]);
    let built = build(nfs3_server.arg("--target-dir").arg(&for_peers));
    if let Err(why) = built {
        eprintln!("skipping nfs3_server: {why}");
    }
    let mut arguments =
        vec![OsString::from("--nfs3-server"), for_peers.join("release/nfs3-server-peer").into()];
    arguments.extend(options.comparison.iter().cloned());
    let program = target.join("release/enfys-peers");
    let mut command = if is_root() { in_namespace() } else { Command::new("env") };
    let status = command.arg(program).args(arguments).status().map_err(|error| format!("run: {error}"))?;
    let mut tally = Tally::default();
    tally.count(status.success());
    Ok(tally)
}

fn build(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

fn in_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-euc",
        IN_NAMESPACE,
        "sh",
    ]);
    command
}
