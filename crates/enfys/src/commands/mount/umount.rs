//! `enfys umount`.

use std::path::{Path, PathBuf};

use clap::Args;
use store::error_text;

use super::table;

const HELP: &str = "\
Examples:
  enfys umount /mnt
      Unmount, as `umount /mnt` does, without root where fusermount3 exists.
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
    }
}
