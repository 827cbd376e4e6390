use std::sync::Arc;

use protocol::nlm::{Share, ShareArgs, Stats};

use super::target::{open, refusal, status};
use super::{Call, Results};
use crate::files::recall::announce_change;
use crate::files::rights::Right;
use crate::files::stateless;
use crate::state::{Conflict, NlmOwner};

/// Bits of access and deny.
const BITS: u32 = 3;

/// SHARE (XNFS; RFC 1813 §6.3.6).
pub(super) async fn serve(call: &Call<'_>, args: ShareArgs) -> Results {
    let stat = match share(call, &args).await {
        Ok(()) => Stats::GRANTED,
        Err(status) => call.status(status),
    };
    Results::Share(args.cookie, stat)
}

/// UNSHARE (XNFS; RFC 1813 §6.3.7). A reservation that does not exist is not an error.
pub(super) async fn undo(call: &Call<'_>, args: ShareArgs) -> Results {
    let stat = match unshare(call, &args.share) {
        Ok(()) => Stats::GRANTED,
        Err(status) => call.status(status),
    };
    Results::Share(args.cookie, stat)
}

async fn share(call: &Call<'_>, args: &ShareArgs) -> Result<(), Stats> {
    let request = call.request;
    let (state, now) = (&request.server.state, request.now.monotonic);
    let Share { caller_name, fh, oh, mode, access } = &args.share;
    if access.0 > BITS || mode.0 > BITS {
        return Err(Stats::FAILED);
    }
    let bits = (access.0 as u8, mode.0 as u8);
    let (target, file) = call.file(fh)?;
    let pin = open(&target, true).await?;
    let _changing = announce_change(request, &target.handle);
    stateless::recall_conflicts(request, &target, Conflict::open(bits), Right::Given)
        .await
        .map_err(status)?;
    let owner = NlmOwner { host: call.host(caller_name)?, file, owner: Arc::from(&oh[..]) };
    state.nlm_share(now, &owner, bits, args.reclaim, pin).map_err(refusal)
}

fn unshare(call: &Call<'_>, share: &Share) -> Result<(), Stats> {
    let (_, file) = call.file(&share.fh)?;
    let state = &call.request.server.state;
    if let Some(host) = state.known_nlm_host(&share.caller_name, call.request.connection.peer.ip()) {
        state.nlm_unshare(&NlmOwner { host, file, owner: Arc::from(&share.oh[..]) });
    }
    Ok(())
}
