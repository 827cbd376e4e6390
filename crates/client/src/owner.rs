//! Owners of opens and locks, and their seqids in version 4.0 (RFC 7530 §9.1.7).

use protocol::nfs4::types::Status;

/// Statuses of an operation with a seqid that leave the seqid unchanged; all others advance it (RFC 7530 §9.1.7).
pub(crate) const SEQID_UNCHANGED: &[Status] = &[
    Status::STALE_CLIENTID,
    Status::STALE_STATEID,
    Status::BAD_STATEID,
    Status::BAD_SEQID,
    Status::BADXDR,
    Status::RESOURCE,
    Status::NOFILEHANDLE,
    Status::MOVED,
];

/// An open-owner. Its requests are sent one after the other: each needs a mutable reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    number: u32,
    pub(crate) seqid: Seqid,
}

impl Owner {
    /// Creates an owner that the server does not know.
    pub(crate) fn new(number: u32, has_seqids: bool) -> Self {
        Self { number, seqid: Seqid::new(has_seqids) }
    }

    /// Returns the owner that another process had.
    pub(crate) fn from_parts(number: u32, seqid: Option<u32>) -> Self {
        Self { number, seqid: Seqid::from_next(seqid) }
    }

    /// Returns an owner that must not be used.
    pub(crate) fn unknown() -> Self {
        Self { number: 0, seqid: Seqid::Unknown }
    }

    /// Returns the number from which the owner's name at the server is derived.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the seqid of the next request is known.
    pub(crate) fn is_known(&self) -> bool {
        self.seqid.is_known()
    }
}

/// The seqid of an open-owner or a lock-owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seqid {
    /// Servers of 4.1 and later ignore seqids (RFC 8881 §8.1.2).
    Ignored,
    /// The seqid of the next request.
    Next(u32),
    /// A request was sent whose outcome is unknown.
    Unknown,
}

impl Seqid {
    /// Creates the seqid of an owner that the server does not know.
    pub(crate) fn new(has_seqids: bool) -> Self {
        // §9.1.7: the first seqid may be any.
        if has_seqids { Self::Next(0) } else { Self::Ignored }
    }

    /// Returns whether the seqid of the next request is known.
    pub(crate) fn is_known(&self) -> bool {
        *self != Self::Unknown
    }

    /// Returns the seqid of the next request; `None` where there are none.
    pub(crate) fn next(&self) -> Option<u32> {
        match self {
            Self::Next(seqid) => Some(*seqid),
            Self::Ignored | Self::Unknown => None,
        }
    }

    /// Returns what [`Self::next`] described.
    pub(crate) fn from_next(next: Option<u32>) -> Self {
        next.map_or(Self::Ignored, Self::Next)
    }

    /// Returns the seqid for a request that is sent now. Until [`Self::end_request`] the next one is unknown.
    pub(crate) fn start_request(&mut self) -> u32 {
        match *self {
            Self::Next(seqid) => {
                *self = Self::Unknown;
                seqid
            }
            Self::Ignored | Self::Unknown => 0,
        }
    }

    /// Notes the status of the request with this seqid; `None` if the server has not executed its operation.
    pub(crate) fn end_request(&mut self, sent: u32, status: Option<Status>) {
        if *self == Self::Ignored {
            return;
        }
        let advances = status.is_some_and(|status| !SEQID_UNCHANGED.contains(&status));
        *self = Self::Next(if advances { sent.wrapping_add(1) } else { sent });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_advance_the_seqid_except_those_listed() {
        let after = |status| {
            let mut seqid = Seqid::new(true);
            let sent = seqid.start_request();
            assert!(!seqid.is_known());
            seqid.end_request(sent, status);
            seqid.start_request().wrapping_sub(sent)
        };
        for status in [Status::OK, Status::DELAY, Status::GRACE, Status::NOENT, Status::EXPIRED] {
            assert_eq!(after(Some(status)), 1, "{status:?}");
        }
        for status in SEQID_UNCHANGED {
            assert_eq!(after(Some(*status)), 0, "{status:?}");
        }
        assert_eq!(after(None), 0, "an operation before it failed");
    }

    #[test]
    fn the_seqid_wraps_around_and_later_versions_have_none() {
        let mut seqid = Seqid::new(true);
        seqid.end_request(u32::MAX, Some(Status::OK));
        assert_eq!(seqid.start_request(), 0);
        let mut later = Seqid::new(false);
        let sent = later.start_request();
        later.end_request(sent, Some(Status::OK));
        assert!(later.is_known());
        assert_eq!(later.start_request(), 0);
    }
}
