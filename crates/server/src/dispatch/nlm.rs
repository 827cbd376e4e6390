//! NLM, with the reply cache around calls that must not be executed late.

use rpc::message::CallHeader;
use xdr::{Reader, Writer};

use crate::Server;
use crate::programs::nlm;
use crate::replay::reply_cache::CallKey;
use crate::request::{Request, Served};

impl Server {
    /// Serves NLM. A late copy of a LOCK, UNLOCK, CANCEL or FREE_ALL would undo a newer call of the same owner, so their replies are cached. They
    /// are not logged: a restart ends all locks.
    pub(super) async fn nlm(
        &self,
        request: &Request<'_>,
        header: &CallHeader,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        let call = (header.version, header.procedure);
        if !nlm::is_non_idempotent(header.procedure) {
            return nlm::procedure(request, call, arguments, reply).await;
        }
        let start = reply.mark();
        let client = request.connection.peer.ip();
        let key = CallKey::new(&self.shared.call_secret, client, header, arguments.peek());
        let execution = match self.begin_once(request, key, start, reply).await {
            Ok(execution) => execution,
            Err(served) => return served,
        };
        let served = nlm::procedure(request, call, arguments, reply).await;
        if let Served::Done { .. } = served {
            execution.finish(reply.inline_since(start));
        }
        served
    }
}
