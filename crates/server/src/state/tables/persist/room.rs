//! Room for persistent sessions, and who has it.

use std::collections::HashMap;

use super::SessionOwner;

/// One client has this part of all places at most, or one session, however large: none that makes many leaves the others
/// ordinary ones.
const SHARE_PART: usize = 4;

/// Places for slots, and one for each session.
#[derive(Debug)]
pub(super) struct Room {
    all: usize,
    /// More than there are, where a server before had more.
    taken: usize,
    sessions: usize,
    /// By client: sessions that live and those of before. None without any.
    of_clients: HashMap<SessionOwner, usize>,
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The client has its share.
    Share,
    /// Others have all.
    All,
}

impl Room {
    pub(super) fn new(all: usize) -> Self {
        Self { all, taken: 0, sessions: 0, of_clients: HashMap::new() }
    }

    /// All places, and how many are taken.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.all, self.taken)
    }

    /// Sessions that live and those of before.
    pub(super) fn sessions(&self) -> usize {
        self.sessions
    }

    /// A session is there, whether or not there is room for it.
    pub(super) fn hold(&mut self, owner: &SessionOwner, places: usize) {
        (self.taken, self.sessions) = (self.taken + places, self.sessions + 1);
        *self.of_clients.entry(owner.clone()).or_default() += places;
    }

    /// Takes places for one more session of a client.
    ///
    /// # Errors
    /// Where there are none, and nothing is taken.
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

    /// A session of a client is gone, with so many places.
    pub(super) fn give_back(&mut self, owner: &SessionOwner, places: usize) {
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
        room.give_back(&a, 20);
        assert_eq!(room.take(&c, 16), Ok(()));
        // What a server before had room for is there.
        room.hold(&c, 1000);
        assert_eq!((room.places(), room.take(&a, 1)), ((100, 1081), Err(Full::All)));
        assert_eq!(room.sessions(), 4);
        for (client, places) in [(&a, 5), (&b, 60), (&c, 16), (&c, 1000)] {
            room.give_back(client, places);
        }
        assert_eq!((room.places(), room.sessions(), room.of_clients.len()), ((100, 0), 0, 0));
    }
}
