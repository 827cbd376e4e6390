//! What the server gives up at the start, so that a client that takes it over by a bug gets little: capabilities, new
//! privileges, system calls, and files outside of the exports.
//!
//! Everything here is for good, and inherited by the programs that the server runs (getent(1)).

mod capabilities;
mod files;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod system_calls;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod system_calls {
    pub fn restrict() -> Result<(), String> {
        Err("no list of system calls for this processor".into())
    }
}

use tracing::{info, warn};

use crate::cli::ServeArguments;
use crate::plan::Plan;

/// Restricts the process and logs in one line what is in force. What this kernel or this container cannot do is said there
/// and is no error.
///
/// To be called while the process has one thread: capabilities and Landlock belong to a thread, and the threads that it
/// starts later inherit them.
pub fn apply(plan: &Plan, arguments: &ServeArguments) {
    if !plan.sandbox {
        warn!("no sandbox, as asked: the server keeps every capability and may make every system call");
        return;
    }
    // Landlock asks which capabilities there are, and a filter of system calls would refuse what the others need.
    let files = files::restrict(plan, arguments);
    let capabilities = capabilities::reduce();
    let new_privileges = rustix::thread::set_no_new_privs(true);
    let system_calls = system_calls::restrict();
    let said = |outcome: Result<&str, String>| outcome.map_or_else(|why| format!("off: {why}"), String::from);
    info!(
        capabilities = said(capabilities.as_deref().map_err(String::clone)),
        no_new_privs = said(new_privileges.map(|()| "on").map_err(|error| error.to_string())),
        seccomp = said(system_calls.map(|()| "on")),
        landlock = said(files.map(|()| "on")),
        "sandbox"
    );
}
