//! Space for persistent sessions, and its distribution among clients.

use std::collections::HashMap;

use super::SessionOwner;

/// One client may use one part in this many of the space, or one session of any size, so that a client with many sessions does not
/// make those of others ordinary ones.
const SHARE_PART: usize = 4;

/// Units of space: one for each slot, and one for each session.
#[derive(Debug)]
pub(super) struct Room {
    all: usize,
    /// May exceed the total, if an earlier server had more.
    taken: usize,
    sessions: usize,
    /// Live and dead sessions of each client that has any.
    of_clients: HashMap<SessionOwner, usize>,
}

/// Why there is no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The client has used up its share.
    Share,
    /// Other clients use the rest.
    All,
}

impl Room {
    pub(super) fn new(all: usize) -> Self {
        Self { all, taken: 0, sessions: 0, of_clients: HashMap::new() }
    }

    /// Returns the total and the used units.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.all, self.taken)
    }

    /// Returns the numbers of live and of dead sessions.
    pub(super) fn sessions(&self) -> usize {
        self.sessions
    }

    /// Adds an existing session, even if there is no space for it.
    pub(super) fn hold(&mut self, owner: &SessionOwner, places: usize) {
        (self.taken, self.sessions) = (self.taken + places, self.sessions + 1);
        *self.of_clients.entry(owner.clone()).or_default() += places;
    }

    /// Takes space for one more session of a client.
    ///
    /// # Errors
    /// If there is no space; then none is taken.
    pub(super) fn take(&mut self, owner: &SessionOwner, places: usize) -> Result<(), Full> {
        let own = self.of_clients.get(owner).copied().unwrap_or(0);
        if own > 0 && own + places > self.all / SHARE_PART {
            return Err(Full::Share);
        }
        if self.taken + places > self.all {
            return Err(Full::All);
        }
        self.hold(owner, places);
        Ok(())
    }

    /// Releases the space of a client's session.
    pub(super) fn release(&mut self, owner: &SessionOwner, places: usize) {
        (self.taken, self.sessions) = (self.taken - places, self.sessions - 1);
        if let Some(own) = self.of_clients.get_mut(owner) {
            *own -= places;
            if *own == 0 {
                self.of_clients.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Principal;
    use super::*;

    #[test]
    fn a_client_has_its_share_and_others_the_rest() {
        let client =
            |name: &'static str| SessionOwner { owner: name.into(), principal: Some(Principal::System(0)) };
        let [a, b] = ["a", "b"].map(client);
        let c = SessionOwner { principal: Some(Principal::System(1)), ..a.clone() };
        let mut room = Room::new(100);
        assert_eq!(room.take(&a, 20), Ok(()));
        assert_eq!(room.take(&a, 6), Err(Full::Share));
        assert_eq!(room.take(&a, 5), Ok(()));
        assert_eq!(room.take(&b, 60), Ok(()), "one, however large");
        assert_eq!(room.take(&b, 1), Err(Full::Share));
        assert_eq!(room.take(&c, 16), Err(Full::All));
        room.release(&a, 20);
        assert_eq!(room.take(&c, 16), Ok(()));
        // Sessions of an earlier server stay, even beyond the limit.
        room.hold(&c, 1000);
        assert_eq!((room.places(), room.take(&a, 1)), ((100, 1081), Err(Full::All)));
        assert_eq!(room.sessions(), 4);
        for (client, places) in [(&a, 5), (&b, 60), (&c, 16), (&c, 1000)] {
            room.release(client, places);
        }
        assert_eq!((room.places(), room.sessions(), room.of_clients.len()), ((100, 0), 0, 0));
    }
}
