//! A symbolic link in the state directory is not followed: it could make the server create, truncate or trust a file elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use store::reply_log::FileReplyLog;
use store::state_dir::StateDir;
use store::state_log::FileStateLog;

#[test]
fn no_symbolic_link_is_followed() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, target) = (directory.path().join("state"), outside.path().join("target"));
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&target, [7; 16]).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    let link = |name: &str| std::os::unix::fs::symlink(&target, path.join(name)).unwrap();
    link("lock");
    assert!(StateDir::open(&path).unwrap_err().contains("symbolic link"));
    fs::remove_file(path.join("lock")).unwrap();
    let state = StateDir::open(&path).unwrap();
    link("handle.key");
    assert!(state.identity().unwrap_err().contains("handle.key: it is a symbolic link"));
    fs::remove_file(path.join("handle.key")).unwrap();
    link("handle.new");
    assert!(state.identity().unwrap_err().contains("symbolic link"));
    link("clean.verifier");
    assert_eq!(state.take_clean_verifier(), Ok(None));
    for name in ["replies.log", "state.log", "state.log.new"] {
        link(name);
    }
    assert!(FileReplyLog::open(&path.join("replies.log")).is_err());
    // The old content is ignored, and the spare file is not made through the other link.
    let (_, recovered) = FileStateLog::open(&path.join("state.log"), true).unwrap();
    assert!(recovered.entries.is_empty() && recovered.damage.is_some());
    assert_eq!(fs::read(&target).unwrap(), [7; 16], "nothing was written outside");
}
