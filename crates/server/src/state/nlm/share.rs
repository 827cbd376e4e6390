//! SHARE and UNSHARE of NLM: share reservations of DOS clients.
//!
//! They exclude opens of NFSv4 and other share reservations. They do not exclude READ and WRITE of versions 2 and 3, whose caller
//! may be the owner itself: such calls name no owner.

use std::sync::Arc;
use std::time::Duration;

use vfs::Pin;

use super::lock::{NlmOwner, NlmRefusal};
use crate::state::State;
use crate::state::tables::gauges::weight;
use crate::state::tables::shard::{Deferred, EntryEvent};

/// Maximum number of share reservations of one file.
const SHARES_PER_FILE_MAX: usize = 256;

impl State {
    /// SHARE. It replaces the owner's earlier reservation of the file.
    ///
    /// # Errors
    /// [`NlmRefusal::Denied`], [`NlmRefusal::Grace`], [`NlmRefusal::NoRoom`].
    pub fn nlm_share(
        &self,
        now: Duration,
        owner: &NlmOwner,
        bits: (u8, u8),
        reclaim: bool,
        pin: Arc<dyn Pin>,
    ) -> Result<(), NlmRefusal> {
        let NlmOwner { host, file, owner: bytes } = owner;
        self.admit_host(now, host, reclaim)?;
        self.make_room(now, &host.client, weight(bytes)).map_err(|_| NlmRefusal::NoRoom)?;
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(*file)].lock();
        let mut own = None;
        let (mut is_denied, mut count) = (false, 0);
        for (index, entry, share) in shard.nlm_shares(*file) {
            count += 1;
            if entry.client.id() == host.id() && share.owner == *bytes {
                own = Some(index);
            } else {
                is_denied |= share.excludes(bits);
            }
        }
        is_denied =
            is_denied || self.is_open_denied(&mut shard, now, &host.client, *file, bits, &mut deferred);
        let outcome = match own {
            _ if is_denied => Err(NlmRefusal::Denied),
            None if count >= SHARES_PER_FILE_MAX => Err(NlmRefusal::NoRoom),
            _ => {
                if let Some(index) = own {
                    shard.end(index, EntryEvent::Close, &self.gauges, &mut deferred);
                }
                shard.add_nlm_share(*file, (&host.client, bytes), bits, pin, &self.gauges);
                Ok(())
            }
        };
        self.unlock_shard(shard, deferred);
        outcome
    }

    /// UNSHARE. A reservation that does not exist is not an error.
    pub fn nlm_unshare(&self, owner: &NlmOwner) {
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(owner.file)].lock();
        let own = shard.nlm_shares(owner.file).find_map(|(index, entry, share)| {
            (entry.client.id() == owner.host.id() && share.owner == owner.owner).then_some(index)
        });
        if let Some(index) = own {
            shard.end(index, EntryEvent::Close, &self.gauges, &mut deferred);
        }
        self.unlock_shard(shard, deferred);
    }
}
