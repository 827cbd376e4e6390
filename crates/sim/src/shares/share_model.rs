//! A model of share reservations: the opens that clients know that they hold, and rely on.

use std::collections::BTreeMap;
use std::time::Duration;

/// Bits of access and deny.
pub(super) type Bits = (u8, u8);

#[derive(Debug, Clone, Copy)]
struct Known {
    bits: Bits,
    /// When the client learned of it.
    since: Duration,
}

/// The model.
#[derive(Debug)]
pub(super) struct ShareModel {
    /// Opens by file and client.
    known: BTreeMap<(u64, usize), Known>,
    /// Opens, upgrades, downgrades and I/O that succeeded.
    pub(super) granted: usize,
    /// Requests that were denied.
    pub(super) refused: usize,
    /// Clients whose programs run.
    pub(super) running: usize,
}

impl ShareModel {
    pub(super) fn new(running: usize) -> Self {
        Self { known: BTreeMap::new(), granted: 0, refused: 0, running }
    }

    /// Notes the union of a client's opens of a file.
    ///
    /// # Errors
    /// Returns a conflicting open of another client (RFC 8881 §9.7).
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

    /// Notes a request to reduce an open: the client relies on less from now on.
    pub(super) fn give_up(&mut self, file: u64, who: usize, bits: Bits) {
        if let Some(known) = self.known.get_mut(&(file, who)) {
            known.bits = bits;
        }
    }

    pub(super) fn close(&mut self, file: u64, who: usize) {
        self.known.remove(&(file, who));
    }

    /// Removes a client whose lease may have expired.
    pub(super) fn forget(&mut self, who: usize) {
        self.known.retain(|(_, client), _| *client != who);
    }

    /// Notes I/O of version 3 that was requested at `asked`.
    ///
    /// # Errors
    /// Returns an open that has denied it all the time.
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
