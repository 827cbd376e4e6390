use protocol::nlm::{Stats, UnlockArgs};

use super::target::refusal;
use super::{Call, Results};

/// UNLOCK (XNFS; RFC 1813 §6.3.4), and UNLOCK_MSG. A range that is not locked is not an error. Neither is the grace period: a lock that
/// was not reclaimed is not held.
pub(super) async fn serve(call: &Call<'_>, args: UnlockArgs) -> Results {
    let stat = match unlock(call, &args) {
        Ok(()) => Stats::GRANTED,
        Err(status) => call.status(status),
    };
    Results::Status(args.cookie, stat)
}

fn unlock(call: &Call<'_>, args: &UnlockArgs) -> Result<(), Stats> {
    let target = call.lock_target(&args.alock)?;
    let Some(owner) = call.known_owner(&args.alock, &target) else { return Ok(()) };
    let state = &call.request.server.state;
    state.nlm_unlock(call.request.now.monotonic, &owner, target.range).map_err(refusal)
}
