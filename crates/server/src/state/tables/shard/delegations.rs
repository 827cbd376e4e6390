//! The delegations of a file for an operation on it.

use super::super::delegation::conflict::Conflict;
use super::super::file_key::FileKey;
use super::super::wire::ClientId;
use super::table::Shard;

impl Shard {
    /// Returns the delegations of a file that conflict with an operation of `client`; `None` if it is no NFSv4 client's.
    pub(crate) fn conflicts(&self, file: FileKey, client: Option<ClientId>, conflict: Conflict) -> Vec<u32> {
        let Some(record) = self.files.get(&file) else { return Vec::new() };
        let conflicts = |index: &u32| {
            let delegation = self.delegation_at(*index);
            let is_other = Some(self.entry(*index).client.id()) != client;
            is_other
                && match conflict {
                    Conflict::Any => true,
                    Conflict::Write => delegation.kind.is_write(),
                    Conflict::Directory(change) => {
                        delegation.kind.is_directory() && !delegation.is_notified_of(change)
                    }
                }
        };
        record.delegations.iter().copied().filter(conflicts).collect()
    }

    pub(crate) fn has_conflict(&self, file: FileKey, client: Option<ClientId>, conflict: Conflict) -> bool {
        let has_delegations = self.files.get(&file).is_some_and(|file| !file.delegations.is_empty());
        has_delegations && !self.conflicts(file, client, conflict).is_empty()
    }

    /// Returns the delegations of a directory that are held and not recalled, and whether each is that of `client`.
    pub(crate) fn directory_holders(&self, directory: FileKey, client: Option<ClientId>) -> Vec<(u32, bool)> {
        let held = self.files.get(&directory).map_or(&[][..], |record| &record.delegations);
        let is_granted = |index: &u32| self.delegation_at(*index).is_granted();
        let with_owner = |index: u32| (index, Some(self.entry(index).client.id()) == client);
        held.iter().copied().filter(is_granted).map(with_owner).collect()
    }
}
