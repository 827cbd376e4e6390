//! The default path of the state directory.

use std::path::PathBuf;

/// Returns the default path: `/var/lib/enfys` for root, else a directory below `$XDG_STATE_HOME` or `$HOME`.
///
/// # Errors
/// One line: there is no home directory.
pub fn default_path() -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/enfys"));
    }
    let state_home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = state_home.or(home);
    base.map(|base| base.join("enfys"))
        .ok_or_else(|| "no directory for durable state: give --state-dir, or set HOME".to_string())
}
