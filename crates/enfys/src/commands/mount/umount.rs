//! `enfys umount`.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use store::error_text;

use super::control::client::ask;
use super::control::protocol::{Command, Reply};
use super::table;

/// Time after which the command prints why it has not ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// Further time for data that the server does not have yet. A dead server must not keep the command.
const WAIT_MAX: Duration = Duration::from_secs(10);

const HELP: &str = "\
Examples:
  enfys umount /mnt
      Unmount, without root where fusermount3 exists, and wait until the server has all data. umount(8) does not wait.
  enfys umount --force /mnt
      Unmount although the server is dead and programs wait for it. They get an error.
A mount whose process was killed is unmounted like any other.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct UmountArguments {
    /// Directory of the mount
    #[arg(value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,
    /// End all requests with an error, and unmount at once. Data that were not written are lost
    #[arg(short, long)]
    pub force: bool,
    /// Detach a mount that is in use; it ends with its last user
    #[arg(short, long)]
    pub lazy: bool,
}

/// Unmounts.
///
/// # Errors
/// One line about the first directory that fails.
pub fn run(arguments: &UmountArguments) -> Result<(), String> {
    arguments.directories.iter().try_for_each(|directory| unmount(directory, arguments))
}

fn unmount(directory: &Path, arguments: &UmountArguments) -> Result<(), String> {
    let shown = directory.display();
    let failed = |error: std::io::Error| format!("{shown}: cannot unmount: {}", error_text(&error));
    let path = table::absolute(directory).map_err(failed)?;
    let device = match table::find(&path).map_err(failed)? {
        None => return Err(format!("{shown}: not mounted")),
        Some(found) if !found.is_ours => {
            return Err(format!("{shown}: not a mount of enfys (type {}): use umount(8)", found.kind));
        }
        Some(found) => found.device,
    };
    let process = (!arguments.force && !arguments.lazy).then(|| process_of(directory)).flatten();
    if arguments.force {
        // Not every user may do this; the next step shows whether it was necessary.
        let _ = fuse::mount::abort(&path, device);
    }
    match fuse::mount::unmount(&path, arguments.lazy || arguments.force) {
        // The abort of its requests has ended the mount.
        Err(_) if arguments.force && table::find(&path).is_ok_and(|found| found.is_none()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Err(format!(
            "{shown}: in use (`fuser -vm {shown}` shows its users): end these programs, or use --lazy"
        )),
        result => result.map_err(failed),
    }?;
    if let Some((pid, process)) = process {
        await_end(&process, directory, pid);
    }
    Ok(())
}

/// Returns the process of a mount, if it answers and is visible here.
fn process_of(directory: &Path) -> Option<(u32, OwnedFd)> {
    let Ok((Reply::Stats(stats), _)) = ask(directory, Command::Stats) else { return None };
    let pid = stats.mount.pid;
    let process = pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
    Some((pid, process))
}

/// Waits until a mount's process has sent what the server does not have, and has ended; not for ever.
fn await_end(process: &OwnedFd, directory: &Path, pid: u32) {
    let has_ended = |limit: Duration| {
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)), Ok(1))
    };
    let shown = directory.display();
    if has_ended(PATIENCE) {
        return;
    }
    eprintln!("enfys: {shown}: unmounted; waiting for process {pid}, which sends the last data");
    if !has_ended(WAIT_MAX) {
        eprintln!("enfys: {shown}: process {pid} continues to send the last data for at most a minute");
    }
}
