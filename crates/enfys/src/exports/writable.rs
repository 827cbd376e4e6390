//! Whether clients can create files at the top of an export, by owner, mode and squashing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Access;
use server::{ExportOptions, Squash};

use super::plan::ExportPlan;

/// Write and search permission of one class of users, which creating a file in a directory needs.
const CREATE: u32 = 0o3;

/// Returns a warning if probably no client can create a file at the top of the export.
pub(super) fn warning(export: &ExportPlan, path: &Path, directory: &Metadata) -> Option<String> {
    let entries: Vec<_> = export.all_options().filter(|options| !options.read_only).collect();
    let first = *entries.first().filter(|_| !export.is_mounted_read_only)?;
    let shown = path.display();
    let (uid, gid, mode) = (directory.uid(), directory.gid(), directory.mode() & 0o7777);
    if rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let own = rustix::process::geteuid().as_raw();
        return Some(export.error(format!(
            "no client can write here: this server runs as uid {own}, which has no write permission for {shown} \
             (owner {uid}:{gid}, mode {mode:o}). Grant it, or serve with --read-only"
        )));
    }
    if entries.iter().any(|options| is_writable(options, uid, gid, mode)) || has_acl(path) {
        return None;
    }
    let anonymous = &first.anonymous;
    let who = match first.squash {
        Squash::All => "every user of every client acts",
        _ => "root on a client acts",
    };
    Some(export.error(format!(
        "probably no client can create files here: {shown} belongs to {uid}:{gid} with mode {mode:o}, and {who} as \
         {}:{}. Change the owner (chown USER {shown}) or the mode, or serve with --squash none, which lets root on \
         every client act as root",
        anonymous.uid, anonymous.gid
    )))
}

/// Returns whether root on a client, or some ordinary user, can create files in a directory of this owner and mode.
fn is_writable(options: &ExportOptions, uid: u32, gid: u32, mode: u32) -> bool {
    let may = |shift: u32| mode >> shift & CREATE == CREATE;
    let anonymous = &options.anonymous;
    let as_anonymous = match anonymous.uid {
        0 => true,
        owner if owner == uid => may(6),
        _ if anonymous.gid == gid => may(3),
        _ => may(0),
    };
    // Root's group has no ordinary members.
    let as_ordinary_user = uid != 0 && may(6) || gid != 0 && may(3) || may(0);
    match options.squash {
        Squash::None => true,
        Squash::Root => as_anonymous || as_ordinary_user,
        Squash::All => as_anonymous,
    }
}

/// Returns whether the directory has an access control list, which may allow more than the mode.
fn has_acl(path: &Path) -> bool {
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vfs::Credentials;

    use super::*;

    #[test]
    fn an_export_is_writable_if_some_user_can_create_files() {
        let writable = |squash, anonymous, (uid, gid, mode)| {
            let anonymous = Arc::new(Credentials { uid: anonymous, gid: anonymous, groups: Arc::from([]) });
            is_writable(&ExportOptions { squash, anonymous, ..ExportOptions::default() }, uid, gid, mode)
        };
        for (squash, anonymous, directory, expected) in [
            (Squash::Root, 65_534, (0, 0, 0o755), false),
            (Squash::Root, 65_534, (0, 0, 0o775), false),
            (Squash::Root, 65_534, (0, 0, 0o1777), true),
            (Squash::Root, 65_534, (0, 0, 0o756), false),
            (Squash::Root, 65_534, (0, 50, 0o775), true),
            (Squash::Root, 65_534, (0, 50, 0o755), false),
            (Squash::Root, 65_534, (1000, 1000, 0o755), true),
            (Squash::Root, 65_534, (1000, 1000, 0o555), false),
            (Squash::Root, 65_534, (65_534, 65_534, 0o700), true),
            (Squash::Root, 0, (0, 0, 0o755), true),
            (Squash::None, 65_534, (0, 0, 0o755), true),
            (Squash::All, 65_534, (1000, 1000, 0o755), false),
            (Squash::All, 1000, (1000, 1000, 0o755), true),
            (Squash::All, 1000, (0, 1000, 0o775), true),
            (Squash::All, 1000, (0, 0, 0o757), true),
        ] {
            assert_eq!(
                writable(squash, anonymous, directory),
                expected,
                "{squash:?} {anonymous} {directory:?}"
            );
        }
    }
}
