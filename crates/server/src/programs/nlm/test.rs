use protocol::nlm::{Holder, NetObj, Stats, TestArgs, TestReply};

use super::target::{open, refusal, status};
use super::{Call, Results};
use crate::files::rights::Right;
use crate::files::stateless;
use crate::state::{Conflict, NlmHolder};

/// TEST (XNFS; RFC 1813 §6.3.1), and TEST_MSG.
pub(super) async fn serve(call: &Call<'_>, args: TestArgs) -> Results {
    let stat = match test(call, &args).await {
        Ok(None) => TestReply::Other(Stats::GRANTED),
        Ok(Some(holder)) => TestReply::Denied(wire_holder(&holder)),
        Err(status) => TestReply::Other(call.status(status)),
    };
    Results::Test(args.cookie, stat)
}

async fn test(call: &Call<'_>, args: &TestArgs) -> Result<Option<NlmHolder>, Stats> {
    let (request, lock) = (call.request, &args.alock);
    let state = &request.server.state;
    let at = call.lock_target(lock)?;
    let pin = open(&at.target, args.exclusive).await?;
    let against = if args.exclusive { Conflict::Any } else { Conflict::Write };
    stateless::recall_conflicts(request, &at.target, against, Right::Given).await.map_err(status)?;
    let host = state.known_nlm_host(&lock.caller_name, request.connection.peer.ip());
    let asker = (host.as_deref(), at.file, &at.owner);
    state.nlm_test(request.now.monotonic, asker, &pin, (at.range, args.exclusive)).map_err(refusal)
}

/// Returns the holder for the client. A client of NFSv4 has neither process nor owner here.
fn wire_holder(holder: &NlmHolder) -> Holder {
    let (svid, oh) = match holder.owner.as_deref().and_then(<[u8]>::split_first_chunk) {
        Some((svid, oh)) => (i32::from_be_bytes(*svid), NetObj::new(oh.to_vec()).unwrap_or_default()),
        None => (0, NetObj::default()),
    };
    // A length of zero means "to the end of the file".
    let l_len = if holder.range.length() == u64::MAX { 0 } else { holder.range.length() };
    Holder { exclusive: holder.is_exclusive, svid, oh, l_offset: holder.range.offset(), l_len }
}
