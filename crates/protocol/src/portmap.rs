//! The port mapper, version 2 (RFC 1833 §3). Versions 3 and 4 of the same program are [`crate::rpcbind`].

use xdr::{Chain, Decode, Encode, Opaque};

use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (RFC 1833 §3.1, `PMAP_PROG`).
pub const PROGRAM: u32 = 100_000;
/// This version (`PMAP_VERS`).
pub const VERSION: u32 = 2;
/// Its port (`PMAP_PORT`).
pub const PORT: u16 = 111;

/// The maximum number of mappings that DUMP lists.
pub const MAX_MAPPINGS: usize = 16_384;

/// The maximum length in bytes of the arguments or results of a forwarded call, which fit into a datagram.
pub const MAX_REMOTE_DATA: usize = 65_535;

xdr::constants! {
    /// The procedures.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Adds a mapping if there is none. Arguments: [`Mapping`]; results: `bool`.
        SET = 1,
        /// Removes the mappings of a program's version. Arguments: [`Mapping`]; results: `bool`.
        UNSET = 2,
        /// Finds a port. Arguments: [`Mapping`]; results: `u32`, 0 if nothing is registered.
        GETPORT = 3,
        /// Lists all mappings. Results: [`MappingList`].
        DUMP = 4,
        /// Forwards a call; replies only if it succeeds. Arguments: [`CallArgs`]; results: [`CallResult`].
        CALLIT = 5,
    }
}

xdr::constants! {
    /// The transport of a mapping, by its number in the Internet protocol.
    pub struct Protocol: u32 {
        /// TCP.
        TCP = 6,
        /// UDP.
        UDP = 17,
    }
}

/// A service (`mapping`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Mapping {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport.
    pub protocol: Protocol,
    /// The port.
    pub port: u32,
}

/// Results of DUMP (`pmaplist`).
pub type MappingList = Chain<Mapping, MAX_MAPPINGS>;

/// Arguments of CALLIT (`call_args`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CallArgs {
    /// The program to call.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// The procedure's arguments, encoded.
    pub args: Opaque<MAX_REMOTE_DATA>,
}

/// Results of CALLIT (`call_result`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CallResult {
    /// The program's port.
    pub port: u32,
    /// The procedure's results, encoded.
    pub res: Opaque<MAX_REMOTE_DATA>,
}

/// The procedures. A second SET or UNSET may fail, and a forwarded call can be any procedure.
pub static TABLE: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION,
    name: "portmap2",
    procedures: &[
        Procedure::new(0, "NULL", Effect::None),
        Procedure::new(1, "SET", Effect::Once),
        Procedure::new(2, "UNSET", Effect::Once),
        Procedure::new(3, "GETPORT", Effect::None),
        Procedure::new(4, "DUMP", Effect::None),
        Procedure::new(5, "CALLIT", Effect::Once),
    ],
};
