//! The sandbox: the server drops capabilities, new privileges, system calls, and access to files outside the exports. This limits a client
//! that controls the server through a bug.
//!
//! All of this is permanent, and inherited by the programs that the server runs (getent(1)).

mod capabilities;
mod files;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod system_calls;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod system_calls {
    pub fn restrict() -> Result<(), String> {
        Err("no list of system calls for this architecture".into())
    }

    pub fn restrict_helper() -> Result<(), String> {
        restrict()
    }
}

pub use system_calls::restrict_helper;
use tracing::{info, warn};

use crate::cli::ServeArguments;
use crate::plan::Plan;

/// Restricts the process, and logs one line with the result. A part that this kernel or container does not support is logged, and is
/// not an error.
///
/// Must be called while the process has one thread: capabilities and Landlock belong to a thread, and later threads inherit them.
pub fn apply(plan: &Plan, arguments: &ServeArguments) {
    if !plan.sandbox {
        warn!(
            "no sandbox (--no-sandbox or `sandbox = false`): the server keeps all capabilities and system calls"
        );
        return;
    }
    // In this order: Landlock reads the capabilities, and the filter would refuse the system calls of the others.
    let files = files::restrict(plan, arguments);
    let capabilities = capabilities::reduce();
    let new_privileges = rustix::thread::set_no_new_privs(true);
    let system_calls = system_calls::restrict();
    let shown =
        |outcome: Result<&str, String>| outcome.map_or_else(|why| format!("off: {why}"), String::from);
    info!(
        capabilities = shown(capabilities.as_deref().map_err(String::clone)),
        no_new_privs = shown(new_privileges.map(|()| "on").map_err(|error| error.to_string())),
        seccomp = shown(system_calls.map(|()| "on")),
        landlock = shown(files.map(|()| "on")),
        "sandbox"
    );
}
