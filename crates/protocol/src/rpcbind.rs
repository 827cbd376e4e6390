//! rpcbind, versions 3 and 4 (RFC 1833 §2). Version 2 of the same program is [`crate::portmap`].
//!
//! Addresses are universal addresses (RFC 5665); an empty string means none.

use xdr::{Chain, Decode, Encode, Opaque};

use crate::portmap::MAX_REMOTE_DATA;
use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (RFC 1833 §2.1, `RPCBPROG`).
pub const PROGRAM: u32 = 100_000;
/// Version 3 (`RPCBVERS`).
pub const VERSION_3: u32 = 3;
/// Version 4 (`RPCBVERS4`).
pub const VERSION_4: u32 = 4;
/// Its port (`RPCB_PORT`).
pub const PORT: u16 = 111;

/// The maximum length in bytes of a network identifier, an address or an owner. RFC 1833 sets no limit; the longest in use are
/// paths of local sockets (107).
pub const MAX_TEXT: usize = 256;

/// The maximum number of entries in the results of DUMP, GETADDRLIST and GETSTAT.
pub const MAX_ENTRIES: usize = 16_384;

/// The maximum length in bytes of an address in its transport's form: twice that of `sockaddr_storage`.
pub const MAX_NETBUF: usize = 256;

/// A network identifier, an address or an owner.
pub type Text = Opaque<MAX_TEXT>;

xdr::constants! {
    /// The procedures; those above 8 are only in version 4.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Adds a mapping if there is none. Arguments: [`Rpcb`]; results: `bool`.
        SET = 1,
        /// Removes a mapping, or those of all networks if none is named. Arguments: [`Rpcb`]; results: `bool`.
        UNSET = 2,
        /// Finds an address on the network of the call. Arguments: [`Rpcb`]; results: [`Text`].
        GETADDR = 3,
        /// Lists all mappings. Results: [`RpcbList`].
        DUMP = 4,
        /// Forwards a call and replies only if it succeeds; BCAST in version 4. Arguments: [`RmtCallArgs`];
        /// results: [`RmtCallResult`].
        CALLIT = 5,
        /// Gets the time in seconds since 1970. Results: `u32`.
        GETTIME = 6,
        /// Converts a universal address into the transport's form. Arguments: [`Text`]; results: [`NetBuf`].
        UADDR2TADDR = 7,
        /// Converts back. Arguments: [`NetBuf`]; results: [`Text`].
        TADDR2UADDR = 8,
        /// Like GETADDR, for exactly this version of the program. Arguments: [`Rpcb`]; results: [`Text`].
        GETVERSADDR = 9,
        /// Forwards a call and returns errors too. Arguments: [`RmtCallArgs`]; results: [`RmtCallResult`].
        INDIRECT = 10,
        /// Finds the addresses on all networks. Arguments: [`Rpcb`]; results: [`EntryList`].
        GETADDRLIST = 11,
        /// Gets statistics of calls. Results: [`StatByVersion`].
        GETSTAT = 12,
    }
}

/// A service (`rpcb`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Rpcb {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The network.
    pub netid: Text,
    /// The address.
    pub addr: Text,
    /// The owner that registered it.
    pub owner: Text,
}

/// Results of DUMP (`rpcblist_ptr`).
pub type RpcbList = Chain<Rpcb, MAX_ENTRIES>;

/// Arguments of CALLIT, BCAST and INDIRECT (`rpcb_rmtcallargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RmtCallArgs {
    /// The program to call.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// The procedure's arguments, encoded.
    pub args: Opaque<MAX_REMOTE_DATA>,
}

/// Results of CALLIT, BCAST and INDIRECT (`rpcb_rmtcallres`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RmtCallResult {
    /// The program's address.
    pub addr: Text,
    /// The procedure's results, encoded.
    pub results: Opaque<MAX_REMOTE_DATA>,
}

xdr::constants! {
    /// The behavior of a transport (`r_nc_semantics`).
    pub struct Semantics: u32 {
        /// Without connections.
        CLTS = 1,
        /// With connections.
        COTS = 2,
        /// With connections that close gracefully.
        COTS_ORD = 3,
        /// Raw.
        RAW = 4,
    }
}

/// An address of a service and its network (`rpcb_entry`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The address, as the caller can reach it.
    pub maddr: Text,
    /// The network.
    pub nc_netid: Text,
    /// The behavior of its transport.
    pub nc_semantics: Semantics,
    /// The protocol family: `inet`, `inet6`, `loopback`, …
    pub nc_protofmly: Text,
    /// The protocol: `tcp`, `udp`, or `-`.
    pub nc_proto: Text,
}

/// Results of GETADDRLIST (`rpcb_entry_list_ptr`).
pub type EntryList = Chain<Entry, MAX_ENTRIES>;

/// The transport's own form of an address (`netbuf`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NetBuf {
    /// The size of the original buffer.
    pub maxlen: u32,
    /// The address.
    pub buf: Opaque<MAX_NETBUF>,
}

/// Number of requests for a program's address (`rpcbs_addrlist`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AddrStat {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Successful ones.
    pub success: i32,
    /// Failed ones.
    pub failure: i32,
    /// The network.
    pub netid: Text,
}

/// Number of calls forwarded to a procedure (`rpcbs_rmtcalllist`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RmtCallStat {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// Successful ones.
    pub success: i32,
    /// Failed ones.
    pub failure: i32,
    /// Those by INDIRECT instead of CALLIT.
    pub indirect: i32,
    /// The network.
    pub netid: Text,
}

/// Number of procedures in the statistics (`RPCBSTAT_HIGHPROC`).
pub const STAT_PROCEDURES: usize = 13;
/// Number of versions in the statistics: 2, 3 and 4 (`RPCBVERS_STAT`).
pub const STAT_VERSIONS: usize = 3;

/// Statistics of one version (`rpcb_stat`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Calls by procedure.
    pub info: [i32; STAT_PROCEDURES],
    /// Calls of SET that succeeded.
    pub setinfo: i32,
    /// Calls of UNSET that succeeded.
    pub unsetinfo: i32,
    /// Requests for addresses.
    pub addrinfo: Chain<AddrStat, MAX_ENTRIES>,
    /// Forwarded calls.
    pub rmtinfo: Chain<RmtCallStat, MAX_ENTRIES>,
}

/// A fixed-length array (RFC 4506 §4.12) has no length on the wire.
impl Encode for Stat {
    fn encode(&self, writer: &mut xdr::Writer) {
        for count in self.info {
            writer.i32(count);
        }
        writer.i32(self.setinfo);
        writer.i32(self.unsetinfo);
        self.addrinfo.encode(writer);
        self.rmtinfo.encode(writer);
    }
}

impl Decode for Stat {
    fn decode(reader: &mut xdr::Reader) -> Result<Self, xdr::DecodeError> {
        let mut info = [0; STAT_PROCEDURES];
        for count in &mut info {
            *count = reader.i32()?;
        }
        Ok(Self {
            info,
            setinfo: reader.i32()?,
            unsetinfo: reader.i32()?,
            addrinfo: Decode::decode(reader)?,
            rmtinfo: Decode::decode(reader)?,
        })
    }
}

/// Results of GETSTAT (`rpcb_stat_byvers`), for versions 2, 3 and 4.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct StatByVersion {
    /// Version 2.
    pub version_2: Stat,
    /// Version 3.
    pub version_3: Stat,
    /// Version 4.
    pub version_4: Stat,
}

const PROCEDURES: &[Procedure; STAT_PROCEDURES] = &[
    Procedure::new(0, "NULL", Effect::None),
    Procedure::new(1, "SET", Effect::Once),
    Procedure::new(2, "UNSET", Effect::Once),
    Procedure::new(3, "GETADDR", Effect::None),
    Procedure::new(4, "DUMP", Effect::None),
    Procedure::new(5, "CALLIT", Effect::Once),
    Procedure::new(6, "GETTIME", Effect::None),
    Procedure::new(7, "UADDR2TADDR", Effect::None),
    Procedure::new(8, "TADDR2UADDR", Effect::None),
    Procedure::new(9, "GETVERSADDR", Effect::None),
    Procedure::new(10, "INDIRECT", Effect::Once),
    Procedure::new(11, "GETADDRLIST", Effect::None),
    Procedure::new(12, "GETSTAT", Effect::None),
];

/// The procedures of version 3. A second SET or UNSET may fail, and a forwarded call can be any procedure.
pub static TABLE_3: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION_3,
    name: "rpcbind3",
    procedures: PROCEDURES.split_at(Proc::TADDR2UADDR.0 as usize + 1).0,
};

/// The procedures of version 4.
pub static TABLE_4: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_4, name: "rpcbind4", procedures: PROCEDURES };
