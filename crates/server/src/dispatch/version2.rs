//! NFS 2, with the reply caches around calls that must not be executed twice.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs2::{Proc, TABLE};
use protocol::procedure::Effect;
use rpc::message::CallHeader;
use xdr::{Reader, Writer};

use crate::Server;
use crate::programs::nfs2;
use crate::replay::reply_cache::{Begin, CallKey};
use crate::request::{Request, Served};

impl Server {
    /// Serves NFS 2. Calls that change names are executed once, also over a crash. SETATTR and WRITE do the same when they are executed
    /// again, but a late copy would undo a newer change, so their replies are cached too.
    pub(super) async fn nfs2(
        &self,
        request: &mut Request<'_>,
        header: &CallHeader,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        let procedure = header.procedure;
        let effect = TABLE.procedure(procedure).map_or(Effect::None, |row| row.effect);
        if effect == Effect::None {
            return nfs2::procedure(request, &self.nfs2_cookies, procedure, arguments, reply).await;
        }
        // The cache keeps results without the header: with RPCSEC_GSS each reply has another verifier.
        let start = reply.mark();
        let client = request.connection.peer.ip();
        let key = CallKey::new(&self.shared.call_secret, client, header, arguments.peek());
        if procedure == Proc::WRITE.0 {
            return self.write2(request, key, arguments, reply).await;
        }
        let begun = match effect {
            Effect::Once => self.begin_logged(request, key, start, reply).await,
            Effect::Repeatable | Effect::None => self.begin_once(request, key, start, reply).await,
        };
        let execution = match begun {
            Ok(execution) => execution,
            Err(served) => return served,
        };
        let served = nfs2::procedure(request, &self.nfs2_cookies, procedure, arguments, reply).await;
        if let Served::Done { .. } = served {
            self.end_logged(request, (key, execution), reply.inline_since(start)).await;
        }
        served
    }

    /// Serves WRITE, whose replies are kept in their short form.
    async fn write2(
        &self,
        request: &Request<'_>,
        key: CallKey,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        let execution = match self.write_reply_cache.begin(key, request.now.monotonic) {
            Begin::Execute(execution) => execution,
            Begin::InProgress => return Served::Drop,
            Begin::Replay(kept) => {
                self.shared.metrics.replayed.fetch_add(1, Relaxed);
                return nfs2::write::repeat(request, arguments, &kept, reply).await;
            }
        };
        let results = reply.mark();
        let served = nfs2::procedure(request, &self.nfs2_cookies, Proc::WRITE.0, arguments, reply).await;
        if let Served::Done { .. } = served {
            execution.finish(&nfs2::write::shorten(reply.inline_since(results)));
        }
        served
    }
}
