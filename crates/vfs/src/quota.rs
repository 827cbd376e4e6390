//! Quotas: limits on the space and the files of a user or group.

/// The kind of owner that a quota is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// The quota of a user or group on a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Its bytes.
    pub bytes: QuotaUse,
    /// Its files.
    pub files: QuotaUse,
}

/// Limits of a quota and their use, in bytes or files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// In use.
    pub used: u64,
    /// The limit that may be exceeded for some time.
    pub soft: Option<u64>,
    /// The limit that cannot be exceeded.
    pub hard: Option<u64>,
    /// The end of that time, in seconds since 1970, while the soft limit is exceeded.
    pub deadline: Option<i64>,
}

impl QuotaUse {
    /// Returns the rest below a limit of this quota; `None` without the limit.
    #[must_use]
    pub fn left(&self, limit: Option<u64>) -> Option<u64> {
        limit.map(|limit| limit.saturating_sub(self.used))
    }
}
