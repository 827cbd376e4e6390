use std::os::fd::AsFd;
use std::sync::Arc;

use vfs::{Error, Op, Peer, Quota, QuotaKind, Result};

use crate::volume::Volume;

impl Volume {
    pub(crate) fn quota<'a>(self: &'a Arc<Self>, kind: QuotaKind, id: u32) -> Op<'a, Option<Quota>> {
        match &self.quotas {
            None => Op::ok(None),
            // Asking another process blocks.
            Some(_) => {
                let job = move |volume: &Arc<Self>| volume.quota_now(kind, id);
                Op::pending(self.read_on_pool(Peer::default(), job))
            }
        }
    }

    fn quota_now(&self, kind: QuotaKind, id: u32) -> Result<Option<Quota>> {
        let Some(quotas) = &self.quotas else { return Ok(None) };
        quotas.quota(self.root_fd.as_fd(), kind, id).map_err(|_| Error::Io)
    }
}
