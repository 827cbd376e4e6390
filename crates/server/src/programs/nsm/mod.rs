//! The network status monitor, version 1 (XNFS).
//!
//! It monitors the hosts that hold NLM locks here, for this server alone. So it takes SM_NOTIFY from these hosts, and refuses to
//! monitor others (SM_MON), which only a lock manager of the same machine could ask for.

use protocol::nsm::{MonId, MyId, Name, Outcome, Proc, SmStat, StatRes, StateChange};
use xdr::{Decode, Encode, Reader, Writer};

use crate::request::{Request, Served};

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) fn procedure(
    request: &Request<'_>,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let state = request.server.state.monitor_state();
    let refused = StatRes { res_stat: Outcome::FAIL, state };
    let served = match Proc(procedure) {
        Proc::NULL => Served::Done { is_error: false },
        Proc::STAT => answer::<Name>(arguments, |_| refused.encode(reply), true),
        Proc::MON => answer::<protocol::nsm::Mon>(arguments, |_| refused.encode(reply), true),
        Proc::UNMON => answer::<MonId>(arguments, |_| SmStat { state }.encode(reply), false),
        Proc::UNMON_ALL => answer::<MyId>(arguments, |_| SmStat { state }.encode(reply), false),
        // No caller may make this server notify its clients of a restart that did not happen.
        Proc::SIMU_CRASH => Served::Done { is_error: false },
        Proc::NOTIFY => answer::<StateChange>(arguments, |change| notified(request, change), false),
        _ => return Served::NoProcedure,
    };
    if let Served::Done { is_error } = served {
        request.server.metrics.nsm[procedure as usize].count(is_error);
    }
    served
}

/// SM_NOTIFY: a client has restarted, and holds none of its locks any more.
///
/// The notification is accepted for its source address only, and only if that host holds locks or shares. Status monitors send from any port, so a
/// user of that machine could send it as well: the protocol has no better proof.
fn notified(request: &Request<'_>, change: StateChange) {
    let address = request.connection.peer.ip();
    request.server.state.nlm_host_restarted(address, &change.mon_name, Some(change.state));
}

/// Decodes the arguments and serves them.
fn answer<T: Decode>(mut arguments: Reader, serve: impl FnOnce(T), is_error: bool) -> Served {
    match T::decode(&mut arguments) {
        Ok(arguments) => {
            serve(arguments);
            Served::Done { is_error }
        }
        Err(_) => Served::GarbageArguments,
    }
}
