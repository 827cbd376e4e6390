//! NFS version 2 (RFC 1094): one procedure, one file.
//!
//! Each procedure finds its file ([`reply::resolve`]), asks the backend, and writes its results. A failure becomes a status in
//! [`reply::status`] alone, and has no other results. Sizes, times and numbers have 32 bits: they are clamped, never wrapped.

pub(crate) mod cookies;
mod create;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod read;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod reply;
mod rmdir;
mod setattr;
mod statfs;
mod symlink;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs2::Proc;
use vfs::boxed;
use xdr::{Decode, Encode, Reader, Writer};

use crate::request::{Request, Served};
use cookies::ShortCookies;
use reply::Failure;

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    cookies: &ShortCookies,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    macro_rules! serve {
        ($function:path $(, $more:expr)?) => {
            match whole(arguments) {
                Some(arguments) => boxed(|| $function(request, arguments $(, $more)?, reply)).await,
                None => return Served::GarbageArguments,
            }
        };
    }
    let start = reply.mark();
    let outcome = match Proc(procedure) {
        // RFC 1094 §2.2.4: ROOT is obsolete, and §2.2.8: WRITECACHE is to be used in the next revision. Neither has results.
        Proc::NULL | Proc::ROOT | Proc::WRITECACHE => Ok(()),
        Proc::GETATTR => serve!(getattr::serve),
        Proc::SETATTR => serve!(setattr::serve),
        Proc::LOOKUP => serve!(lookup::serve),
        Proc::READLINK => serve!(readlink::serve),
        Proc::READ => serve!(read::serve),
        Proc::WRITE => serve!(write::serve),
        Proc::CREATE => serve!(create::serve),
        Proc::REMOVE => serve!(remove::serve),
        Proc::RENAME => serve!(rename::serve),
        Proc::LINK => serve!(link::serve),
        Proc::SYMLINK => serve!(symlink::serve),
        Proc::MKDIR => serve!(mkdir::serve),
        Proc::RMDIR => serve!(rmdir::serve),
        Proc::READDIR => serve!(readdir::serve, cookies),
        Proc::STATFS => serve!(statfs::serve),
        _ => return Served::NoProcedure,
    };
    request.server.metrics.nfs2[procedure as usize].count(outcome.is_err());
    if request.is_too_weak.load(Relaxed) {
        return Served::TooWeak;
    }
    match outcome {
        Ok(()) => Served::Done { is_error: false },
        Err(Failure::Status(status)) => {
            reply.rewind(start);
            status.encode(reply);
            Served::Done { is_error: true }
        }
        Err(Failure::Later) => Served::Drop,
    }
}

/// Decodes arguments. Ignores bytes after them, like Linux's server: some clients pad.
fn whole<T: Decode>(mut arguments: Reader) -> Option<T> {
    T::decode(&mut arguments).ok()
}
