use std::collections::BTreeMap;

use crate::{Error, Quota, QuotaUse, Result};

/// Bytes charged for an entry of a directory, name and both indexes included: a bound on memory, because hard links
/// create entries without files.
pub(super) const ENTRY_BYTES: u64 = 512;

/// Bytes in use, in total and by owner, for pages, entries, texts of symbolic links and extended attributes.
#[derive(Debug)]
pub(super) struct Space {
    limit: u64,
    quota: Option<u64>,
    used: u64,
    by_owner: BTreeMap<u32, u64>,
    /// The number of charges that were refused at the limit.
    refusals: u64,
}

impl Space {
    pub(super) fn new(limit: u64, quota: Option<u64>) -> Self {
        Self { limit, quota, used: 0, by_owner: BTreeMap::new(), refusals: 0 }
    }

    /// Sets other limits; usage above them remains.
    pub(super) fn set_limits(&mut self, limit: u64, quota: Option<u64>) {
        (self.limit, self.quota) = (limit, quota);
    }

    /// Returns the limit in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of charges that were refused at the limit.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    fn free(&self) -> u64 {
        // The limit may have been lowered.
        self.limit.saturating_sub(self.used)
    }

    /// Charges `bytes` for an object of `owner`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] above the limit, [`Error::Quota`] above the owner's; root has none.
    pub(super) fn charge(&mut self, owner: u32, bytes: u64) -> Result<()> {
        if bytes > self.free() {
            self.refusals += 1;
            return Err(Error::NoSpace);
        }
        self.charge_owner(owner, bytes)?;
        self.used += bytes;
        Ok(())
    }

    /// Returns charged bytes.
    pub(super) fn refund(&mut self, owner: u32, bytes: u64) {
        self.used -= bytes;
        self.refund_owner(owner, bytes);
    }

    /// Moves a charge to another owner.
    ///
    /// # Errors
    /// [`Error::Quota`] above the new owner's.
    pub(super) fn give(&mut self, from: u32, to: u32, bytes: u64) -> Result<()> {
        if from != to {
            self.charge_owner(to, bytes)?;
            self.refund_owner(from, bytes);
        }
        Ok(())
    }

    /// Returns the bytes of the limit, the free bytes, and the free bytes for `uid`.
    pub(super) fn report(&self, uid: u32) -> (u64, u64, u64) {
        let free = self.free();
        let available = match self.quota {
            Some(quota) if uid != 0 => free.min(quota.saturating_sub(self.owned(uid))),
            _ => free,
        };
        (self.limit, free, available)
    }

    /// Returns the quota of a user; files are not counted.
    pub(super) fn quota_of(&self, uid: u32) -> Option<Quota> {
        let limit = self.quota?;
        let hard = (uid != 0).then_some(limit);
        let bytes = QuotaUse { used: self.owned(uid), hard, ..QuotaUse::default() };
        Some(Quota { bytes, files: QuotaUse::default() })
    }

    fn owned(&self, uid: u32) -> u64 {
        self.by_owner.get(&uid).copied().unwrap_or(0)
    }

    fn charge_owner(&mut self, owner: u32, bytes: u64) -> Result<()> {
        let owned = self.owned(owner) + bytes;
        if bytes > 0 && owner != 0 && self.quota.is_some_and(|quota| owned > quota) {
            return Err(Error::Quota);
        }
        if owned > 0 {
            self.by_owner.insert(owner, owned);
        }
        Ok(())
    }

    fn refund_owner(&mut self, owner: u32, bytes: u64) {
        let owned = self.owned(owner) - bytes;
        if owned == 0 {
            self.by_owner.remove(&owner);
        } else {
            self.by_owner.insert(owner, owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_charge_takes_nothing() {
        let mut space = Space::new(100, Some(60));
        assert_eq!(space.charge(1, 61), Err(Error::Quota));
        assert_eq!(space.charge(0, 61), Ok(()));
        assert_eq!(space.charge(1, 40), Err(Error::NoSpace));
        assert_eq!(space.report(1), (100, 39, 39));
        space.refund(0, 61);
        assert_eq!(space.report(1), (100, 100, 60));
        assert!(space.by_owner.is_empty());
    }

    #[test]
    fn a_limit_below_the_usage_removes_nothing() {
        let mut space = Space::new(100, None);
        space.charge(1, 80).unwrap();
        space.set_limits(50, Some(60));
        assert_eq!(space.report(1), (50, 0, 0));
        assert_eq!(space.charge(0, 1), Err(Error::NoSpace));
        space.refund(1, 40);
        assert_eq!(space.report(1), (50, 10, 10));
        assert_eq!(space.charge(0, 10), Ok(()));
    }

    #[test]
    fn a_new_owner_needs_quota() {
        let mut space = Space::new(100, Some(60));
        space.charge(0, 80).unwrap();
        assert_eq!(space.give(0, 1, 61), Err(Error::Quota));
        assert_eq!(space.give(0, 1, 60), Ok(()));
        assert_eq!(space.report(1), (100, 20, 0));
    }
}
