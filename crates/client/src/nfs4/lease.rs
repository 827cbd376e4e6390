//! The lease of a client at a server of version 4 (RFC 8881 §8.3), and what the flags of SEQUENCE say about it.

use std::time::Duration;

use protocol::nfs4::ops::session::SequenceStatus;

/// Flags of SEQUENCE which say that some state was revoked; they stay until that is freed (RFC 8881 §18.46.3).
pub(super) const REVOKED: SequenceStatus = SequenceStatus::EXPIRED_ALL_STATE_REVOKED
    .union(SequenceStatus::EXPIRED_SOME_STATE_REVOKED)
    .union(SequenceStatus::ADMIN_STATE_REVOKED)
    .union(SequenceStatus::RECALLABLE_STATE_REVOKED);
/// Flags of SEQUENCE which say that callbacks do not arrive: a recall may be lost, and its delegation is revoked a lease after it (RFC
/// 8881 §10.4.5), although the client renews its lease.
pub(super) const UNREACHABLE: SequenceStatus = SequenceStatus::CB_PATH_DOWN
    .union(SequenceStatus::CB_PATH_DOWN_SESSION)
    .union(SequenceStatus::BACKCHANNEL_FAULT);
/// Assumed until the server has sent its lease time; most have 90 s.
pub(super) const LEASE_DEFAULT: Duration = Duration::from_secs(90);

/// The lease as far as the client knows it.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) duration: Duration,
    /// When the request was sent that has renewed it last. The server has executed it later, so its lease ends later.
    pub(super) renewed_at: Duration,
    /// Whether the last reply said that state was revoked.
    pub(super) shows_revoked: bool,
    /// When a reply arrived that said so, if the client has not searched for that state since.
    pub(super) flagged_at: Option<Duration>,
    /// When a reply arrived that said that callbacks do not arrive, if none to a later request says that they do.
    unreachable_at: Option<Duration>,
}

impl Lease {
    pub(super) fn new(renewed_at: Duration) -> Self {
        Self {
            duration: LEASE_DEFAULT,
            renewed_at,
            shows_revoked: false,
            flagged_at: None,
            unreachable_at: None,
        }
    }

    /// Notes the reply to a SEQUENCE that was sent at `sent_at`. State may have been revoked before a flag appears, and while the
    /// lease was over. A flag that remains after a search is about state that the client does not know.
    pub(super) fn renew(&mut self, sent_at: Duration, now: Duration, flags: SequenceStatus) {
        let is_revoked = flags.intersects(REVOKED);
        let was_over = now >= self.renewed_at + self.duration;
        if is_revoked && (was_over || !self.shows_revoked) {
            self.flagged_at = Some(now);
        } else if !is_revoked && self.flagged_at.is_some_and(|flagged_at| flagged_at <= sent_at) {
            self.flagged_at = None;
        }
        if flags.intersects(UNREACHABLE) {
            self.unreachable_at = Some(now);
        } else if self.unreachable_at.is_some_and(|unreachable_at| unreachable_at <= sent_at) {
            self.unreachable_at = None;
        }
        self.shows_revoked = is_revoked;
        self.renewed_at = self.renewed_at.max(sent_at);
    }

    /// Returns whether the server has revoked nothing that the client does not know, and could recall delegations.
    pub(super) fn is_valid(&self, now: Duration) -> bool {
        let has_flag = self.flagged_at.is_some() || self.unreachable_at.is_some();
        !has_flag && now < self.renewed_at + self.duration
    }
}
