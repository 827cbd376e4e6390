//! The network lock manager, versions 1, 3 and 4 (XNFS; RFC 1813 Appendix II): one procedure, one file.
//!
//! The versions differ in the size of offsets and in their statuses, which [`wire`] hides. Each procedure has two forms: a call with
//! a result, and a message whose result is a call of this server to the client ([`callback`]). Locks are in the tables of NFSv4's
//! ([`State::nlm_lock`](crate::state::State::nlm_lock)), so both exclude each other.
//!
//! The checks of a call are those of NFSv3: its handle, the client's address, port and flavor, and the caller's rights on the file.

pub(crate) mod callback;
mod cancel;
mod free_all;
mod lock;
mod share;
mod target;
mod test;
#[cfg(test)]
mod tests;
mod unlock;
mod wire;

use std::sync::atomic::Ordering::Relaxed;

use protocol::nlm::{NetObj, Proc, Stats, TABLE, TestReply, VERSION, VERSION_1};
use protocol::procedure::Effect;
use vfs::boxed;
use xdr::{Encode, Reader, Writer};

use crate::request::{Request, Served};
use crate::state::HostPath;

/// A call of one version.
struct Call<'r> {
    request: &'r Request<'r>,
    version: u32,
}

/// The result of a procedure.
enum Results {
    /// Of TEST.
    Test(NetObj, TestReply),
    /// Of SHARE and UNSHARE.
    Share(NetObj, Stats),
    /// Of the others.
    Status(NetObj, Stats),
}

impl Results {
    /// Returns whether the client should retry: the reply is not kept.
    fn is_later(&self) -> bool {
        matches!(
            self,
            Self::Status(_, Stats::DENIED_GRACE_PERIOD)
                | Self::Share(_, Stats::DENIED_GRACE_PERIOD)
                | Self::Test(_, TestReply::Other(Stats::DENIED_GRACE_PERIOD))
        )
    }

    fn is_error(&self) -> bool {
        match self {
            Self::Test(_, reply) => *reply != TestReply::Other(Stats::GRANTED),
            Self::Share(_, status) | Self::Status(_, status) => {
                !matches!(*status, Stats::GRANTED | Stats::BLOCKED)
            }
        }
    }
}

/// Returns whether a late repetition of a call could undo a newer one of the same owner. That holds for messages too, whose reply is
/// empty; their result is not sent again.
pub(crate) fn is_non_idempotent(procedure: u32) -> bool {
    TABLE.procedure(procedure).is_some_and(|row| row.effect == Effect::Once)
}

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    (version, procedure): (u32, u32),
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let call = Call { request, version };
    // Version 1 ends with GRANTED_RES.
    if version == VERSION_1 && procedure > Proc::GRANTED_RES.0 {
        return Served::NoProcedure;
    }
    let served = match Proc(procedure) {
        Proc::NULL => Some(None),
        Proc::TEST | Proc::TEST_MSG => answer(&call, arguments, test::serve).await,
        Proc::LOCK | Proc::LOCK_MSG | Proc::NM_LOCK => {
            let is_monitored = procedure != Proc::NM_LOCK.0;
            answer(&call, arguments, async |call, args| lock::serve(call, args, is_monitored).await).await
        }
        Proc::CANCEL | Proc::CANCEL_MSG => answer(&call, arguments, cancel::serve).await,
        Proc::UNLOCK | Proc::UNLOCK_MSG => answer(&call, arguments, unlock::serve).await,
        // Nothing here waits for a lock of another server.
        Proc::GRANTED | Proc::GRANTED_MSG => {
            answer(&call, arguments, async |_, args: protocol::nlm::TestArgs| {
                Results::Status(args.cookie, Stats::DENIED)
            })
            .await
        }
        // This server sends no message that such a result could answer: it is forged, or late by a restart.
        Proc::TEST_RES | Proc::LOCK_RES | Proc::CANCEL_RES | Proc::UNLOCK_RES | Proc::GRANTED_RES => {
            Some(None)
        }
        Proc::SHARE => answer(&call, arguments, share::serve).await,
        Proc::UNSHARE => answer(&call, arguments, share::undo).await,
        Proc::FREE_ALL => wire::decode(version, arguments).map(|args| {
            free_all::serve(&call, &args);
            None
        }),
        _ => return Served::NoProcedure,
    };
    let Some(results) = served else { return Served::GarbageArguments };
    let is_error = results.as_ref().is_some_and(Results::is_error);
    request.server.metrics.nlm[procedure as usize].count(is_error);
    if request.is_too_weak.load(Relaxed) {
        return Served::TooWeak;
    }
    let Some(results) = results else { return Served::Done { is_error: false } };
    match result_of_message(Proc(procedure)) {
        Some(procedure) => {
            let mut arguments = Writer::new();
            wire::encode(version, &results, &mut arguments);
            let to = (version, procedure.0);
            request.server.state.send_nlm_result(call.path(), to, arguments.into_bytes());
        }
        None => wire::encode(version, &results, reply),
    }
    if results.is_later() { Served::Later } else { Served::Done { is_error } }
}

/// Decodes the arguments and serves them. `None` if they cannot be decoded.
async fn answer<T: wire::Versioned>(
    call: &Call<'_>,
    arguments: Reader,
    serve: impl AsyncFnOnce(&Call<'_>, T) -> Results,
) -> Option<Option<Results>> {
    let arguments = wire::decode(call.version, arguments)?;
    Some(Some(boxed(|| serve(call, arguments)).await))
}

/// Returns the procedure that carries the result of a message.
fn result_of_message(procedure: Proc) -> Option<Proc> {
    Some(match procedure {
        Proc::TEST_MSG => Proc::TEST_RES,
        Proc::LOCK_MSG => Proc::LOCK_RES,
        Proc::CANCEL_MSG => Proc::CANCEL_RES,
        Proc::UNLOCK_MSG => Proc::UNLOCK_RES,
        Proc::GRANTED_MSG => Proc::GRANTED_RES,
        _ => return None,
    })
}

impl Call<'_> {
    /// Returns the form of the client's call, and of calls back to it.
    fn path(&self) -> HostPath {
        let connection = self.request.connection;
        HostPath {
            address: connection.peer.ip().to_canonical(),
            local: connection.local.ip().to_canonical(),
            transport: connection.transport,
        }
    }

    /// Returns a status in the numbers of the call's version.
    fn status(&self, status: Stats) -> Stats {
        let is_known = self.version == VERSION || status.0 <= Stats::DEADLCK.0;
        // XNFS: "the server could not allocate the resources" is the only failure of the old versions that is final.
        if is_known { status } else { Stats::DENIED_NOLOCKS }
    }
}

/// Encodes a value.
fn encoded(value: &impl Encode) -> bytes::Bytes {
    xdr::to_bytes(value)
}
