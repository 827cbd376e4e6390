//! What is written down, and what becomes of it over restarts.

use super::super::setclientid::Callback;
use super::super::slot::SlotMemory;
use super::super::{Principal, State};
use super::*;

impl State {
    /// What a server finds that knows clients of later versions than 4.0, of the superuser, by their owners and verifiers.
    pub(crate) fn records_of(known: &[(&'static str, u8)]) -> Records {
        records(known, |client| client)
    }

    /// The same of clients of version 4.0.
    pub(crate) fn records_of_0(known: &[(&'static str, u8)]) -> Records {
        records(known, |client| client.without_sessions(Callback::default()))
    }
}

fn records(known: &[(&'static str, u8)], made: impl Fn(Client) -> Client) -> Records {
    let entry = |(owner, verifier): &(&'static str, u8)| {
        let slots = Arc::new(SlotMemory::new(0));
        let (owner, root) = (Bytes::from_static(owner.as_bytes()), Principal::System(0));
        let client = made(Client::new(1, owner, [*verifier; 8], root, slots, Duration::ZERO));
        let record = ClientRecord::of(&client).expect("a short principal");
        (Name::of(&client).key().into(), xdr::to_bytes(&record))
    };
    Records { log: None, entries: known.iter().map(entry).collect() }
}
