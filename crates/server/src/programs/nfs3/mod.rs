//! NFS version 3 (RFC 1813): one procedure, one file.
//!
//! Each procedure finds its file ([`nfs3_reply::resolve`](crate::nfs3_reply::resolve)), asks the backend, and writes its results; errors become a status
//! in [`nfs3_reply::status`](crate::nfs3_reply::status) alone.

mod access;
mod commit;
mod create;
mod filesystem;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod mknod;
mod read;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod setattr;
mod symlink;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use protocol::nfs3::{NfsStat, Proc, TABLE};
use protocol::procedure::Effect;
use vfs::boxed;
use xdr::{Reader, Writer};

use crate::nfs3_reply::{done, whole};
use crate::request::{Request, Served};

/// Returns whether a late repetition of a call could change more than the call itself did; see the reply cache's criteria. COMMIT
/// is omitted: it can only make more data stable.
pub(crate) fn is_non_idempotent(procedure: u32) -> bool {
    match TABLE.procedure(procedure).map(|row| row.effect) {
        Some(Effect::Once) => true,
        Some(Effect::Repeatable) => procedure == Proc::WRITE.0,
        Some(Effect::None) | None => false,
    }
}

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    macro_rules! serve {
        ($function:path) => {
            match whole(arguments) {
                Some(arguments) => $function(request, arguments, reply).await,
                None => return Served::GarbageArguments,
            }
        };
    }
    // A future is as large as its largest state, and is moved once for each caller above it. If kept in place, the long ones would
    // cost every GETATTR some kilobytes of copying. An operation with more than one system call can afford an allocation.
    macro_rules! serve_boxed {
        ($function:path) => {
            match whole(arguments) {
                Some(arguments) => boxed(|| $function(request, arguments, reply)).await,
                None => return Served::GarbageArguments,
            }
        };
    }
    let status = match Proc(procedure) {
        Proc::NULL => NfsStat::OK,
        Proc::GETATTR => serve!(getattr::serve),
        Proc::SETATTR => serve_boxed!(setattr::serve),
        Proc::LOOKUP => serve_boxed!(lookup::serve),
        Proc::ACCESS => serve!(access::serve),
        Proc::READLINK => serve_boxed!(readlink::serve),
        Proc::READ => serve_boxed!(read::serve),
        Proc::WRITE => match whole(arguments).map(|arguments| write::begin(request, arguments, reply)) {
            Some(Ok(status)) => status,
            Some(Err(waiting)) => boxed(|| waiting.serve(request, reply)).await,
            None => return Served::GarbageArguments,
        },
        Proc::CREATE => serve_boxed!(create::serve),
        Proc::MKDIR => serve_boxed!(mkdir::serve),
        Proc::SYMLINK => serve_boxed!(symlink::serve),
        Proc::MKNOD => serve_boxed!(mknod::serve),
        Proc::REMOVE => serve_boxed!(remove::serve_remove),
        Proc::RMDIR => serve_boxed!(remove::serve_rmdir),
        Proc::RENAME => serve_boxed!(rename::serve),
        Proc::LINK => serve_boxed!(link::serve),
        Proc::READDIR => serve_boxed!(readdir::serve),
        Proc::READDIRPLUS => serve_boxed!(readdir::serve_plus),
        Proc::FSSTAT => serve_boxed!(filesystem::serve_fsstat),
        Proc::FSINFO => serve_boxed!(filesystem::serve_fsinfo),
        Proc::PATHCONF => serve_boxed!(filesystem::serve_pathconf),
        Proc::COMMIT => serve_boxed!(commit::serve),
        _ => return Served::NoProcedure,
    };
    request.server.metrics.nfs3[procedure as usize].count(status != NfsStat::OK);
    done(request, status)
}
