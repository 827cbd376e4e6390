//! The network status monitor, version 1 (X/Open's "Protocols for Interworking: XNFS"). It reports restarts of
//! hosts, so that lock managers release or reclaim locks.

use xdr::{Decode, Encode, Opaque};

use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (`SM_PROG`).
pub const PROGRAM: u32 = 100_024;
/// This version (`SM_VERS`).
pub const VERSION: u32 = 1;

/// The maximum length in bytes of a name (`SM_MAXSTRLEN`).
pub const MAXSTRLEN: usize = 1024;
/// Size in bytes of the data that the monitor returns to the caller (`SM_PRIV_SIZE`).
pub const PRIV_SIZE: usize = 16;

/// The name of a host.
pub type Name = Opaque<MAXSTRLEN>;

xdr::constants! {
    /// The procedures.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Asks whether a host can be monitored. Arguments: [`Name`]; results: [`StatRes`].
        STAT = 1,
        /// Starts to monitor a host. Arguments: [`Mon`]; results: [`StatRes`].
        MON = 2,
        /// Stops monitoring one host. Arguments: [`MonId`]; results: [`SmStat`].
        UNMON = 3,
        /// Stops monitoring all hosts. Arguments: [`MyId`]; results: [`SmStat`].
        UNMON_ALL = 4,
        /// Simulates a restart.
        SIMU_CRASH = 5,
        /// From another monitor: its host restarted. Arguments: [`StateChange`].
        NOTIFY = 6,
    }
}

xdr::constants! {
    /// Whether monitoring is possible (`res`).
    pub struct Outcome: u32 {
        /// Possible (`stat_succ`).
        SUCC = 0,
        /// Impossible (`stat_fail`).
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

/// The procedure to call after a restart of the host (`my_id`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MyId {
    /// The host to call.
    pub my_name: Name,
    /// The program.
    pub my_prog: i32,
    /// Its version.
    pub my_vers: i32,
    /// Its procedure, which gets a [`Status`].
    pub my_proc: i32,
}

/// The host to monitor and the procedure to call (`mon_id`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MonId {
    /// The host to monitor.
    pub mon_name: Name,
    /// The procedure to call.
    pub my_id: MyId,
}

/// Arguments of MON (`mon`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Mon {
    /// The host to monitor and the procedure to call.
    pub mon_id: MonId,
    /// Repeated in [`Status`].
    pub priv_: [u8; PRIV_SIZE],
}

/// Arguments of NOTIFY (`stat_chge`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct StateChange {
    /// The host that restarted.
    pub mon_name: Name,
    /// Its monitor's new state number.
    pub state: i32,
}

/// Arguments of the procedure that [`MyId`] names (`status`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Status {
    /// The host that restarted.
    pub mon_name: Name,
    /// Its monitor's new state number.
    pub state: i32,
    /// The data from MON.
    pub priv_: [u8; PRIV_SIZE],
}

/// The procedures.
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
