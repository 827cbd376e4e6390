//! Names of lock owners (RFC 8881 §3.3.10).

use protocol::nfs4::types::StateOwner;
use xdr::Opaque;

/// The prefix of each lock owner's name.
const PREFIX: &str = "lock ";

/// Returns the lock owner with this number. Its name has at most 25 bytes.
pub(super) fn lock_owner(client_id: u64, number: u64) -> StateOwner {
    let name = Opaque::new(format!("{PREFIX}{number}").into_bytes()).unwrap_or_default();
    StateOwner { client_id, owner: name }
}

/// Returns the number of a lock owner by its name.
pub(super) fn number_of(name: &[u8]) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX.as_bytes())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_number() {
        let owner = lock_owner(7, u64::MAX);
        assert_eq!((owner.owner.len(), number_of(&owner.owner)), (25, Some(u64::MAX)));
        assert_eq!((number_of(b"open 5"), number_of(b"lock x")), (None, None));
    }
}
