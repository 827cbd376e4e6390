//! Numbers of users and groups by their names.

/// Finds the numbers of users and groups.
pub trait Lookup {
    /// Returns the number of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// Returns the number of a group.
    fn group(&self, name: &str) -> Option<u32>;
}
