//! A program: a client, its identity, and its source of random decisions.

use std::time::Duration;

use client::Client;
use client::config::Caller;
use client::error::OpError;
use client::results::FileHandle;
use rpc::auth::{AuthSys, GroupList};
use xdr::Opaque;

use super::model::{ProgramId, SharedModel};
use crate::rng::Rng;

/// The environment of a program.
pub(super) struct Program {
    pub(super) id: ProgramId,
    pub(super) client: Client,
    pub(super) caller: Caller,
    /// The directory that all programs use.
    pub(super) directory: FileHandle,
    pub(super) rng: Rng,
    pub(super) model: SharedModel,
    names: u32,
}

impl Program {
    pub(super) fn new(
        id: ProgramId,
        client: Client,
        directory: FileHandle,
        rng: Rng,
        model: SharedModel,
    ) -> Self {
        Self { id, client, caller: caller(), directory, rng, model, names: 0 }
    }

    /// Returns a name that no other program has, and this one has not had before.
    pub(super) fn new_name(&mut self) -> String {
        self.names += 1;
        let (host, boot, number) = self.id;
        format!("n{host}.{boot}.{number}.{}", self.names)
    }

    /// Notes the program's current step.
    pub(super) fn begin(&self, what: String) {
        self.model.borrow_mut().doing.insert(self.id, what);
    }

    /// Notes that a property was checked.
    pub(super) fn checked(&self) {
        self.model.borrow_mut().checks += 1;
    }

    /// Waits for a random time below `max_ms`.
    pub(super) async fn pause(&mut self, max_ms: u64) {
        let pause = Duration::from_millis(self.rng.below(max_ms));
        self.client.engine().sleep(pause).await;
    }

    /// Returns the error of a program whose operation had an impossible result.
    pub(super) fn wrong(&self, what: &str, result: &dyn std::fmt::Debug) -> String {
        let (host, boot, number) = self.id;
        format!("host {host}, boot {boot}, program {number}: {what}: {result:?}")
    }

    /// Returns the result of an operation that must succeed.
    pub(super) fn must<T>(&self, what: &str, result: Result<T, OpError>) -> Result<T, String> {
        result.map_err(|error| self.wrong(what, &error))
    }
}

/// Returns the user of all programs.
pub(super) fn caller() -> Caller {
    let machine_name = Opaque::from_static(b"sim");
    Caller::sys(&AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids: GroupList::default() })
}
