//! NFS 3 and NFS_ACL, with the reply caches around calls that must not be executed twice.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs3::NfsStat;
use rpc::message::CallHeader;
use xdr::{Reader, Writer};

use crate::Server;
use crate::replay::reply_cache::{Begin, CallKey};
use crate::request::{Request, Served};

/// WRITE of NFS 3.
const WRITE3: u32 = protocol::nfs3::Proc::WRITE.0;

impl Server {
    /// Serves NFS_ACL, with the reply cache around SETACL: a late copy would restore an older list. SETACL is not in the log for the next
    /// process, because it does the same when executed again.
    pub(super) async fn nfs_acl(
        &self,
        request: &Request<'_>,
        header: &CallHeader,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        let procedure = header.procedure;
        if procedure != protocol::nfsacl::Proc::SETACL.0 {
            return crate::programs::nfsacl::procedure(request, procedure, arguments, reply).await;
        }
        let start = reply.mark();
        let key =
            CallKey::new(&self.shared.call_secret, request.connection.peer.ip(), header, arguments.peek());
        let execution = match self.begin_once(request, key, start, reply).await {
            Ok(execution) => execution,
            Err(served) => return served,
        };
        let served = crate::programs::nfsacl::procedure(request, procedure, arguments, reply).await;
        if let Served::Done { .. } = served {
            execution.finish(reply.inline_since(start));
        }
        served
    }

    /// Serves NFS 3, with the reply cache around calls that are not idempotent.
    pub(super) async fn nfs3(
        &self,
        request: &mut Request<'_>,
        header: &CallHeader,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Served {
        if !crate::programs::nfs3::is_non_idempotent(header.procedure) {
            return crate::programs::nfs3::procedure(request, header.procedure, arguments, reply).await;
        }
        // The cache keeps results without the header: by RPCSEC_GSS each reply has another verifier.
        let start = reply.mark();
        let client = request.connection.peer.ip();
        let key = CallKey::new(&self.shared.call_secret, client, header, arguments.peek());
        if header.procedure == WRITE3 {
            return self.write3(request, key, arguments, reply).await;
        }
        let execution = match self.begin_logged(request, key, start, reply).await {
            Ok(execution) => execution,
            Err(served) => return served,
        };
        let served = crate::programs::nfs3::procedure(request, header.procedure, arguments, reply).await;
        if let Served::Done { .. } = served {
            self.end_logged(request, (key, execution), reply.inline_since(start)).await;
        }
        served
    }

    /// Serves WRITE, which has a reply cache of its own. WRITE is in no log: it can be repeated over a restart, because no client had a
    /// reply to a write that the repetition might undo.
    async fn write3(
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
                let status =
                    Box::pin(crate::programs::nfs3::write::repeat(request, arguments, &kept, reply)).await;
                return Served::Done { is_error: status != NfsStat::OK };
            }
        };
        let results = reply.mark();
        let served = crate::programs::nfs3::procedure(request, WRITE3, arguments, reply).await;
        if let Served::Done { .. } = served {
            execution.finish(&crate::programs::nfs3::write::shorten(reply.inline_since(results)));
        }
        served
    }
}
