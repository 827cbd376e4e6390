use protocol::nlm::{CancelArgs, Stats};

use super::{Call, Results};

/// CANCEL (XNFS; RFC 1813 §6.3.3), and CANCEL_MSG. DENIED if the host does not wait for this lock.
pub(super) async fn serve(call: &Call<'_>, args: CancelArgs) -> Results {
    let stat = match cancel(call, &args) {
        Ok(true) => Stats::GRANTED,
        Ok(false) => Stats::DENIED,
        Err(status) => call.status(status),
    };
    Results::Status(args.cookie, stat)
}

fn cancel(call: &Call<'_>, args: &CancelArgs) -> Result<bool, Stats> {
    let target = call.lock_target(&args.alock)?;
    let Some(owner) = call.known_owner(&args.alock, &target) else { return Ok(false) };
    Ok(call.request.server.state.nlm_cancel(&owner, target.range))
}
