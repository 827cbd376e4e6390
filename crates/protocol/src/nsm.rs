//! The network status monitor, version 1 (X/Open's "Protocols for Interworking: XNFS"): who must be told when a machine
//! restarts, so that lock managers drop or reclaim locks.

use xdr::{Decode, Encode, Opaque};

use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (`SM_PROG`).
pub const PROGRAM: u32 = 100_024;
/// This version (`SM_VERS`).
pub const VERSION: u32 = 1;

/// The greatest length in bytes of a name (`SM_MAXSTRLEN`).
pub const MAXSTRLEN: usize = 1024;
/// Bytes that whoever asks for monitoring gets back (`SM_PRIV_SIZE`).
pub const PRIV_SIZE: usize = 16;

/// The name of a machine.
pub type Name = Opaque<MAXSTRLEN>;

xdr::constants! {
    /// The procedures.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Tells whether a machine can be monitored. Arguments: [`Name`]; results: [`StatRes`].
        STAT = 1,
        /// Begins to monitor. Arguments: [`Mon`]; results: [`StatRes`].
        MON = 2,
        /// Ends it for one machine. Arguments: [`MonId`]; results: [`SmStat`].
        UNMON = 3,
        /// Ends it for all. Arguments: [`MyId`]; results: [`SmStat`].
        UNMON_ALL = 4,
        /// Behaves as after a restart.
        SIMU_CRASH = 5,
        /// From another monitor: its machine has restarted. Arguments: [`StateChange`].
        NOTIFY = 6,
    }
}

xdr::constants! {
    /// Whether monitoring is possible (`res`).
    pub struct Outcome: u32 {
        /// It is (`stat_succ`).
        SUCC = 0,
        /// It is not (`stat_fail`).
        FAIL = 1,
    }
}

/// Results of STAT and MON (`sm_stat_res`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StatRes {
    /// Whether monitoring is possible.
    pub res_stat: Outcome,
    /// The monitor's state number: odd while it is up, and greater after each restart.
    pub state: i32,
}

/// Results of UNMON and UNMON_ALL (`sm_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SmStat {
    /// The monitor's state number.
    pub state: i32,
}

/// Whom to call when a machine has restarted (`my_id`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MyId {
    /// The machine to call.
    pub my_name: Name,
    /// The program.
    pub my_prog: i32,
    /// Its version.
    pub my_vers: i32,
    /// Its procedure, which gets a [`Status`].
    pub my_proc: i32,
}

/// What to monitor for whom (`mon_id`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MonId {
    /// The machine to monitor.
    pub mon_name: Name,
    /// Whom to call.
    pub my_id: MyId,
}

/// Arguments of MON (`mon`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Mon {
    /// What to monitor for whom.
    pub mon_id: MonId,
    /// Comes back in [`Status`].
    pub priv_: [u8; PRIV_SIZE],
}

/// Arguments of NOTIFY (`stat_chge`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct StateChange {
    /// The machine that has restarted.
    pub mon_name: Name,
    /// Its monitor's new state number.
    pub state: i32,
}

/// Arguments of the procedure that [`MyId`] names (`status`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Status {
    /// The machine that has restarted.
    pub mon_name: Name,
    /// Its monitor's new state number.
    pub state: i32,
    /// What MON gave.
    pub priv_: [u8; PRIV_SIZE],
}

/// What is known of each procedure.
pub static TABLE: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION,
    name: "nsm1",
    procedures: &[
        Procedure::new(0, "NULL", Effect::None),
        Procedure::new(1, "STAT", Effect::None),
        Procedure::new(2, "MON", Effect::Repeatable),
        Procedure::new(3, "UNMON", Effect::Repeatable),
        Procedure::new(4, "UNMON_ALL", Effect::Repeatable),
        Procedure::new(5, "SIMU_CRASH", Effect::Once),
        Procedure::new(6, "NOTIFY", Effect::Repeatable),
    ],
};
