//! What clients have been told they may do, and what they deny: of whoever still relies on it.

use std::collections::BTreeMap;
use std::time::Duration;

/// Bits of access and deny.
pub(super) type Bits = (u8, u8);

#[derive(Debug, Clone, Copy)]
struct Known {
    bits: Bits,
    /// When its client heard so.
    since: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ShareModel {
    /// By file and client.
    known: BTreeMap<(u64, usize), Known>,
    /// Opens, upgrades and downgrades that were granted; I/O that was done.
    pub(super) granted: usize,
    /// What was refused because somebody else has the file open so.
    pub(super) refused: usize,
    /// Clients that have more to do than to clear up behind the others.
    pub(super) running: usize,
}

impl ShareModel {
    pub(super) fn new(running: usize) -> Self {
        Self { known: BTreeMap::new(), granted: 0, refused: 0, running }
    }

    /// A client was told that it has a file open so, with all its opens together.
    ///
    /// # Errors
    /// Where another relies on an open that excludes it (RFC 8881 §9.7).
    pub(super) fn take(&mut self, file: u64, who: usize, bits: Bits, now: Duration) -> Result<(), String> {
        for ((_, other), known) in self.known.range((file, 0)..=(file, usize::MAX)) {
            let (access, deny) = known.bits;
            if *other != who && (bits.0 & deny != 0 || bits.1 & access != 0) {
                return Err(format!(
                    "client {who} has file {file} open with {bits:?}, and client {other} with {known:?}"
                ));
            }
        }
        self.granted += 1;
        self.known.insert((file, who), Known { bits, since: now });
        Ok(())
    }

    /// From here on a client relies on less: so it asks, whatever becomes of that.
    pub(super) fn give_up(&mut self, file: u64, who: usize, bits: Bits) {
        if let Some(known) = self.known.get_mut(&(file, who)) {
            known.bits = bits;
        }
    }

    pub(super) fn close(&mut self, file: u64, who: usize) {
        self.known.remove(&(file, who));
    }

    /// A client's lease may be over.
    pub(super) fn forget(&mut self, who: usize) {
        self.known.retain(|(_, client), _| *client != who);
    }

    /// I/O of version 3 that needs this access was done, and was asked for then.
    ///
    /// # Errors
    /// Where somebody has denied it all the time.
    pub(super) fn done(&mut self, file: u64, access: u8, asked: Duration) -> Result<(), String> {
        let mut all = self.known.range((file, 0)..=(file, usize::MAX));
        match all.find(|(_, known)| known.bits.1 & access != 0 && known.since < asked) {
            Some(denied) => Err(format!("version 3 got access {access} to file {file} over {denied:?}")),
            None => {
                self.granted += 1;
                Ok(())
            }
        }
    }
}
