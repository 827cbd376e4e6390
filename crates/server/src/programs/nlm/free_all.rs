use protocol::nlm::Notify;

use super::Call;

/// FREE_ALL (XNFS; RFC 1813 §6.3.9): a host that is not monitored has restarted. It is accepted for its source address only.
pub(super) fn serve(call: &Call<'_>, args: &Notify) {
    let address = call.request.connection.peer.ip();
    call.request.server.state.nlm_host_restarted(address, &args.name, None);
}
