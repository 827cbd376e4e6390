//! The second guest: another machine that mounts the same server, for tests that ask for it (`guest start`).
//!
//! It runs the same script as the first guest, with `GUEST=2`, and ends. `/var/lib/nfs` survives when it is killed, as the disk of a machine
//! does: what its status monitor has recorded there makes it notify the server when it is booted again.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::guest::{Guest, Tap, kernel_command};
use super::server::Directories;

/// The device between the second guest and the driver's namespace.
pub(super) const TAP: Tap = Tap { name: "tap3", address: "10.99.3.1/24" };
/// The second guest's address and the length of its prefix.
const ADDRESS: &str = "10.99.3.2/24";
/// Memory of the second guest: its programs are few.
const MEMORY: &str = "512M";
/// Maximum time that a test waits for the end of the second guest.
const END_LIMIT: Duration = Duration::from_secs(300);
/// Interval of checks whether it has ended.
const TICK: Duration = Duration::from_millis(50);

/// A guest that can be started, killed and awaited.
pub(super) struct Second {
    directories: Directories,
    scripts_dir: PathBuf,
    /// The core that it stays on.
    core: usize,
    guest: Option<Guest>,
}

impl Second {
    /// Creates it without starting it.
    pub(super) fn new(directories: &Directories, scripts_dir: PathBuf, core: usize) -> Second {
        Second { directories: directories.clone(), scripts_dir, core, guest: None }
    }

    /// Boots it to run the script of a test. Returns without waiting for the script.
    pub(super) fn start(&mut self, test: &str) -> Result<(), String> {
        if self.guest.is_some() {
            return Err("the second guest already runs".into());
        }
        let _ = fs::remove_file(self.status_file());
        let mut command = kernel_command(
            &self.directories,
            &self.scripts_dir.join("init.sh"),
            MEMORY,
            "second-console.log",
        )?;
        command
            .arg(format!("vec0:transport=tap,ifname={},depth=128,gro=1", TAP.name))
            .arg("GUEST=2")
            .arg(format!("GUEST_ADDRESS={ADDRESS}"))
            .arg(format!("GUEST_TEST={test}"))
            .arg(format!("GUEST_LOG={}", self.directories.work.join(log_of(test)).display()))
            .arg(format!("GUEST_STATUS={}", self.status_file().display()));
        self.guest = Some(Guest::start(command, self.core)?);
        Ok(())
    }

    /// Kills it like a machine that loses power.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.guest.take().ok_or("the second guest does not run")?.kill();
        Ok(())
    }

    /// Returns its result if it has ended: an error if its script has failed.
    fn ended(&mut self) -> Option<Result<(), String>> {
        let Some(guest) = &mut self.guest else {
            return Some(Err("the second guest does not run".into()));
        };
        if !guest.has_ended() {
            return None;
        }
        self.guest = None;
        let status = fs::read_to_string(self.status_file()).unwrap_or_default();
        if status.trim() == "0" {
            return Some(Ok(()));
        }
        Some(Err(format!("the second guest ended with status \"{}\"", status.trim())))
    }

    fn status_file(&self) -> PathBuf {
        self.directories.work.join("second.status")
    }
}

/// Returns where the output of a test's script on the second guest is, in the working directory.
pub(super) fn log_of(test: &str) -> String {
    format!("log/{test}-guest2.log")
}

/// Waits until the second guest has run its script, which must pass. The lock is free between checks, so that it can be killed meanwhile.
pub(super) fn wait(second: &Mutex<Second>) -> Result<(), String> {
    let deadline = Instant::now() + END_LIMIT;
    while Instant::now() < deadline {
        if let Some(result) = second.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).ended() {
            return result;
        }
        thread::sleep(TICK);
    }
    Err(format!("the second guest still runs after {} s", END_LIMIT.as_secs()))
}
