//! Whether a shard's lists name each other, and nothing that is held excludes anything else; see
//! [`State::audit`](crate::state::State::audit).

use std::collections::HashMap;
use std::sync::Arc;

use super::super::client::Client;
use super::super::file::File;
use super::super::wire::ClientId;
use super::{Entry, Kind, List, OpenKey, Phase, Shard};
use crate::state::tables::audit::{Sum, Sums, same};
use crate::state::tables::file_key::FileKey;

impl Shard {
    /// Adds to `sums` what `clients` hold here.
    ///
    /// # Errors
    /// What does not fit together.
    pub(crate) fn audit(
        &self,
        clients: &HashMap<ClientId, Arc<Client>>,
        sums: &mut Sums,
    ) -> Result<(), String> {
        let mut held = [0; 3];
        let mut living = 0;
        for (index, cell) in (0..).zip(&self.cells) {
            let Some(entry) = &cell.entry else { continue };
            living += 1;
            let id = entry.client.id();
            if !clients.contains_key(&id) {
                return Err(format!("client {id:#x} is gone, and holds {entry:?}"));
            }
            self.audit_entry(index, entry).map_err(|why| format!("{entry:?}: {why}"))?;
            self.count(entry, sums.entry(id).or_default(), &mut held);
        }
        let free = self.cells.len() - living;
        same("free cells", self.free.len(), free)?;
        let maps = [self.opens.len(), self.locks.len(), self.delegations.len()];
        same("opens, lock stateids and delegations listed", maps, held)?;
        same("entries that clients name", self.clients.values().map(List::len).sum(), living)?;
        let of_files = self.files.values().map(|file| file.opens.len() + file.delegations.len());
        same("entries that files name", of_files.sum(), held[0] + held[2])?;
        for (key, file) in &self.files {
            self.audit_file(*key, file, sums).map_err(|why| format!("{key:?}: {why}"))?;
        }
        for (key, queue) in &self.lock_queues {
            let modes_of = |client: &Client, open| {
                let entry = self.entry_at(open).filter(|entry| entry.client.id() == client.id())?;
                let is_held = entry.phase == Phase::Held && entry.file == *key;
                match &entry.kind {
                    Kind::Open(open) if is_held => Some(open.modes),
                    _ => None,
                }
            };
            queue.audit(sums, modes_of).map_err(|why| format!("{key:?}: {why}"))?;
        }
        Ok(())
    }

    fn entry_at(&self, index: u32) -> Option<&Entry> {
        self.cells.get(index as usize)?.entry.as_ref()
    }

    /// Whether the lists that have to name an entry do.
    fn audit_entry(&self, index: u32, entry: &Entry) -> Result<(), String> {
        let of_client =
            self.clients.get(&entry.client.id()).and_then(|list| list.get(entry.at_client as usize));
        same("its place at its client", of_client, Some(&index))?;
        let is_held = entry.phase == Phase::Held;
        let file = self.files.get(&entry.file);
        let (listed, placed) = match &entry.kind {
            Kind::Open(open) => {
                same("whether it has its file open", open.pin.is_some(), is_held)?;
                let key = OpenKey { file: entry.file, client: entry.client.id(), owner: &open.owner };
                let placed = file.and_then(|file| file.opens.iter().nth(open.at_file as usize));
                (self.find_open(key), placed)
            }
            Kind::Lock(lock) => {
                let of_open =
                    lock.at_open.and_then(|at| match self.entry_at(lock.open).map(|open| &open.kind) {
                        Some(Kind::Open(open)) => open.locks.get(at as usize),
                        _ => None,
                    });
                // A lost one too: it goes with its open, but for version 4.0's.
                if entry.client.sessionless().is_none() {
                    same("the lock stateid found at its place", of_open, Some(&index))?;
                }
                (self.locks.get(&(lock.open, lock.owner_number)).copied(), of_open)
            }
            Kind::Delegation(delegation) => {
                let key = (entry.file, entry.client.id());
                let placed = file.and_then(|file| file.delegations.get(delegation.at_file as usize));
                (self.delegations.get(&key).copied(), placed)
            }
        };
        match (is_held, entry.phase) {
            (true, _) => {
                same("the entry found by its key", listed, Some(index))?;
                same("the entry found at its place", placed, Some(&index))
            }
            (false, Phase::Freed) => Err("its stateid is freed".into()),
            (false, _) if listed == Some(index) => Err("it is found by its key, and revoked".into()),
            (false, _) => Ok(()),
        }
    }

    fn count(&self, entry: &Entry, sum: &mut Sum, held: &mut [usize; 3]) {
        sum.charged += u64::from(entry.weight().cast_unsigned());
        let is_held = entry.phase == Phase::Held;
        sum.state += u64::from(is_held);
        sum.revoked += u64::from(!is_held);
        let place = match &entry.kind {
            Kind::Open(open) => {
                sum.opens += u64::from(is_held);
                sum.denying += u64::from(is_held && open.modes.deny() != 0);
                0
            }
            Kind::Lock(_) => 1,
            Kind::Delegation(delegation) => {
                sum.lost_delegations += u64::from(!is_held);
                sum.delegations += u64::from(is_held);
                sum.write_delegations += u64::from(is_held && delegation.kind.is_write());
                sum.directory_delegations += u64::from(is_held && delegation.kind.is_directory());
                sum.lookouts += u64::from(delegation.lookout.is_some());
                2
            }
        };
        held[place] += usize::from(is_held);
    }

    /// What is held of a file: nothing excludes anything else.
    fn audit_file(&self, key: FileKey, file: &File, sums: &mut Sums) -> Result<(), String> {
        same("whether anybody needs it", file.opens.is_empty() && file.delegations.is_empty(), false)?;
        self.audit_shares(file)?;
        self.audit_delegations(file)?;
        file.ranges.audit()?;
        for (owner, held) in file.ranges.iter() {
            let entry = self.entry_at(held.holder).ok_or_else(|| format!("{held:?} is nobody's"))?;
            let number = match &entry.kind {
                Kind::Lock(lock) => Some(lock.owner_number),
                _ => None,
            };
            let found = (entry.file, entry.phase, number);
            same("a range's lock stateid", found, (key, Phase::Held, Some(owner)))?;
            let sum = sums.entry(entry.client.id()).or_default();
            (sum.ranges, sum.charged) = (sum.ranges + 1, sum.charged + 1);
        }
        Ok(())
    }

    /// RFC 8881 §9.7: no open has what another denies.
    fn audit_shares(&self, file: &File) -> Result<(), String> {
        let bits = |index: &u32| self.open_at(*index).modes.bits();
        for (at, one) in file.opens.iter().enumerate() {
            for other in file.opens.iter().skip(at + 1) {
                let ((access, deny), (others, denied)) = (bits(one), bits(other));
                if access & denied != 0 || deny & others != 0 {
                    return Err(format!("{:?} excludes {:?}", self.entry(*one), self.entry(*other)));
                }
            }
        }
        Ok(())
    }

    /// RFC 8881 §10.4: who has a file delegated for writing has it alone, and beside one for reading nobody else writes.
    fn audit_delegations(&self, file: &File) -> Result<(), String> {
        for index in &file.delegations {
            let (entry, kind) = (self.entry(*index), self.delegation_at(*index).kind);
            let is_others = |other: &&u32| self.entry(**other).client.id() != entry.client.id();
            if kind.is_directory() {
                continue;
            }
            let breaks = |open: &&u32| kind.is_write() || self.open_at(**open).modes.writes();
            let mut opens = file.opens.iter().filter(is_others).filter(breaks);
            let mut delegations = file.delegations.iter().filter(is_others).filter(|_| kind.is_write());
            if let Some(other) = opens.next().or_else(|| delegations.next()) {
                return Err(format!("{entry:?} excludes {:?}", self.entry(*other)));
            }
        }
        Ok(())
    }
}
