use protocol::nlm::{LockArgs, Stats};

use super::target::{LockTarget, open, refusal, status};
use super::{Call, Results, wire};
use crate::files::recall::announce_change;
use crate::files::rights::Right;
use crate::files::stateless;
use crate::state::{Conflict, NlmLockRequest, NlmOwner};

/// LOCK (XNFS; RFC 1813 §6.3.2), NM_LOCK, and LOCK_MSG.
///
/// Without `is_monitored` the host is not notified after a restart of this server, and keeps its locks until it frees them.
pub(super) async fn serve(call: &Call<'_>, args: LockArgs, is_monitored: bool) -> Results {
    let stat = match lock(call, &args, is_monitored).await {
        Ok(()) => Stats::GRANTED,
        Err(status) => call.status(status),
    };
    Results::Status(args.cookie, stat)
}

async fn lock(call: &Call<'_>, args: &LockArgs, is_monitored: bool) -> Result<(), Stats> {
    let request = call.request;
    let (state, now) = (&request.server.state, request.now.monotonic);
    let LockTarget { target, file, range, owner } = call.lock_target(&args.alock)?;
    let pin = open(&target, args.exclusive).await?;
    // A client of NFSv4 locks its delegated files locally. Nothing is delegated until the lock is in the table.
    let _changing = announce_change(request, &target.handle);
    let against = if args.exclusive { Conflict::Any } else { Conflict::Write };
    stateless::recall_conflicts(request, &target, against, Right::Given).await.map_err(status)?;
    let host = call.host(&args.alock.caller_name)?;
    host.set_state(args.state);
    let request_of_lock = NlmLockRequest {
        owner: NlmOwner { host, file, owner },
        range,
        is_exclusive: args.exclusive,
        reclaim: args.reclaim,
        is_monitored,
        pin,
        granted: args.block.then(|| (call.version, wire::granted(call.version, args))),
    };
    if let Some(change) = state.nlm_lock(now, &request_of_lock).map_err(refusal)? {
        // It never fails: see [`StateLog`](crate::StateLog).
        let _ = state.wait_durable(change, request.thread()).await;
    }
    Ok(())
}
