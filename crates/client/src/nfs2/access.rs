//! Permissions by the mode, which version 2's clients check themselves: it has no ACCESS.

use protocol::nfs3::{Access, Fattr, FileType};
use rpc::auth::{AuthSys, Identity, authenticate};

use crate::config::Caller;

/// Bits of one class in a mode.
const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
/// Execution by anyone.
const EXECUTE_ANY: u32 = 0o111;

/// Returns the permissions of the caller: those of the owner, the group or others (POSIX, "File Access Permissions"). The superuser
/// has all, but executes only what anybody may.
pub(super) fn permissions(caller: &Caller, attributes: &Fattr) -> Access {
    let mode = attributes.mode;
    let is_directory = attributes.file_type == FileType::DIR;
    let class = match authenticate(caller.credential()) {
        Ok(Identity::Sys(credential)) if credential.uid == 0 => match is_directory || mode & EXECUTE_ANY != 0
        {
            true => READ | WRITE | EXECUTE,
            false => READ | WRITE,
        },
        Ok(Identity::Sys(credential)) if credential.uid == attributes.uid => mode >> 6,
        Ok(Identity::Sys(credential)) if has_group(&credential, attributes.gid) => mode >> 3,
        _ => mode,
    };
    let of_file =
        [(READ, Access::READ), (WRITE, Access::MODIFY | Access::EXTEND), (EXECUTE, Access::EXECUTE)];
    let of_directory = [
        (READ, Access::READ),
        (WRITE, Access::MODIFY | Access::EXTEND | Access::DELETE),
        (EXECUTE, Access::LOOKUP),
    ];
    let table = if is_directory { of_directory } else { of_file };
    let granted = table.into_iter().filter(|(bit, _)| class & bit != 0);
    granted.fold(Access::empty(), |all, (_, access)| all | access)
}

fn has_group(credential: &AuthSys, gid: u32) -> bool {
    credential.gid == gid || credential.gids.contains(&gid)
}
