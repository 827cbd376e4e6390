//! The operations that are measured: one row of properties each, read by the generator, the floor and the report.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Payload of a small READ or WRITE, in bytes.
pub const SMALL_BYTES: u32 = 4 << 10;
/// Payload of the largest READ and WRITE of version 2, in bytes.
pub const V2_BYTES: u32 = 8 << 10;
/// Payload of a large READ or WRITE, in bytes.
pub const LARGE_BYTES: u32 = 1 << 20;

/// The protocol version an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 1094.
    V2,
    /// RFC 1813.
    V3,
    /// RFC 8881: every request runs inside a session of its connection.
    V41,
    /// RFC 7862: sessions as in version 4.1.
    V42,
}

impl Version {
    /// Returns the minor version of NFSv4; `None` for versions 2 and 3.
    #[must_use]
    pub const fn minor(self) -> Option<u32> {
        match self {
            Self::V2 | Self::V3 => None,
            Self::V41 => Some(1),
            Self::V42 => Some(2),
        }
    }
}

/// A target for the server's CPU per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this many times the floor.
    OfFloor(f64),
    /// At most this many times the floor that answers by `sendfile`.
    OfSendfileFloor(f64),
    /// At most this many times the floor's cost of the same system calls ([`Operation::on_the_floor`]).
    OfBareCalls(f64),
    /// At most this many times another operation of the same server: the same work in version 3.
    OfOwn(Operation, f64),
    /// At most this part of NFS-Ganesha's cost.
    OfGanesha(f64),
}

/// Limit of a listing, as a multiple of the floor's listing.
const LISTING_OF_FLOOR: f64 = 1.8;
/// Limit of every NFSv4 operation that a program sees, as a part of NFS-Ganesha's CPU.
const OF_GANESHA: Target = Target::OfGanesha(0.15);
/// Targets of OPEN, READ and CLOSE in one compound.
const OPEN_READ_CLOSE: &[Target] =
    &[Target::OfBareCalls(3.0), Target::OfOwn(Operation::OpenRead, 1.1), OF_GANESHA];
/// Targets of an OPEN that creates, its CLOSE, and REMOVE.
const OPEN_CREATE_REMOVE: &[Target] = &[Target::OfOwn(Operation::CreateRemove, 1.1), OF_GANESHA];
/// Targets of READDIR with attributes.
const READDIR: &[Target] =
    &[Target::OfBareCalls(LISTING_OF_FLOOR), Target::OfOwn(Operation::Readdirplus, 1.1), OF_GANESHA];

macro_rules! operations {
    ($($variant:ident $name:literal $title:literal $version:ident $payload:expr, $targets:expr;)*) => {
        /// One measured operation. The names are those of `--ops` and of the JSON.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Operation {
            $(
                #[doc = $title]
                #[serde(rename = $name)]
                $variant,
            )*
        }

        impl Operation {
            /// Every operation, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name on the command line and in the JSON.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the name in the report.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }

            /// Returns its protocol version.
            #[must_use]
            pub fn version(self) -> Version {
                match self { $(Self::$variant => Version::$version),* }
            }

            /// Bytes of file data that one request carries or asks for.
            #[must_use]
            pub fn payload_bytes(self) -> u32 {
                match self { $(Self::$variant => $payload),* }
            }

            /// Returns the project's targets for it.
            #[must_use]
            pub fn targets(self) -> &'static [Target] {
                match self { $(Self::$variant => $targets),* }
            }
        }
    };
}

operations! {
    Null "null" "NULL" V3 0, &[Target::OfFloor(3.0)];
    Getattr "getattr" "GETATTR" V3 0, &[Target::OfFloor(2.3)];
    Lookup "lookup" "LOOKUP" V3 0, &[Target::OfFloor(3.3)];
    Access "access" "ACCESS" V3 0, &[Target::OfFloor(2.3)];
    Read4k "read4k" "READ 4 KiB" V3 SMALL_BYTES, &[Target::OfFloor(1.8)];
    Write4k "write4k" "WRITE 4 KiB UNSTABLE" V3 SMALL_BYTES, &[Target::OfFloor(1.6)];
    Write4kSync "write4k-sync" "WRITE 4 KiB FILE_SYNC" V3 SMALL_BYTES, &[Target::OfFloor(1.8)];
    Read8k "read8k" "READ 8 KiB" V3 V2_BYTES, &[];
    Write8kSync "write8k-sync" "WRITE 8 KiB FILE_SYNC" V3 V2_BYTES, &[];
    Getattr2 "getattr2" "v2 GETATTR" V2 0, &[Target::OfOwn(Operation::Getattr, 1.1)];
    Lookup2 "lookup2" "v2 LOOKUP" V2 0, &[Target::OfOwn(Operation::Lookup, 1.1)];
    Read8k2 "read8k-2" "v2 READ 8 KiB" V2 V2_BYTES, &[Target::OfOwn(Operation::Read8k, 1.1)];
    Write8k2 "write8k-2" "v2 WRITE 8 KiB" V2 V2_BYTES, &[Target::OfOwn(Operation::Write8kSync, 1.1)];
    Read1m "read1m" "READ 1 MiB" V3 LARGE_BYTES, &[Target::OfSendfileFloor(1.2)];
    Write1m "write1m" "WRITE 1 MiB UNSTABLE" V3 LARGE_BYTES, &[Target::OfFloor(1.4)];
    CreateRemove "create-remove" "CREATE+REMOVE" V3 0, &[Target::OfFloor(1.8)];
    SequenceGetattr41 "getattr41" "v4.1 SEQUENCE+PUTFH+GETATTR" V41 0, &[Target::OfOwn(Operation::Getattr, 1.4)];
    OpenReadFloor "open-read-floor" "openat+fstat+pread+close" V3 SMALL_BYTES, &[];
    OpenRead "open-read" "LOOKUP+ACCESS+READ, a small file" V3 SMALL_BYTES, &[];
    OpenReadClose41 "open-read-close41" "v4.1 OPEN+READ+CLOSE, a small file" V41 SMALL_BYTES, OPEN_READ_CLOSE;
    OpenReadClose42 "open-read-close42" "v4.2 OPEN+READ+CLOSE, a small file" V42 SMALL_BYTES, OPEN_READ_CLOSE;
    CreateRemove41 "create-remove41" "v4.1 OPEN(create)+CLOSE, REMOVE" V41 0, OPEN_CREATE_REMOVE;
    CreateRemove42 "create-remove42" "v4.2 OPEN(create)+CLOSE, REMOVE" V42 0, OPEN_CREATE_REMOVE;
    LockUnlock41 "lock-unlock41" "v4.1 LOCK, LOCKU" V41 0, &[OF_GANESHA];
    LockUnlock42 "lock-unlock42" "v4.2 LOCK, LOCKU" V42 0, &[OF_GANESHA];
    ListingSendFloor "listing-send-floor" "a listing's bytes from memory" V3 0, &[];
    Readdirplus "readdirplus" "READDIRPLUS of 1,000 files" V3 0, &[Target::OfFloor(LISTING_OF_FLOOR)];
    Readdir41 "readdir41" "v4.1 READDIR of 1,000 files" V41 0, READDIR;
    Readdir42 "readdir42" "v4.2 READDIR of 1,000 files" V42 0, READDIR;
}

impl Operation {
    /// Returns the floor's operation that makes the bare system calls of this one.
    #[must_use]
    pub fn on_the_floor(self) -> Self {
        match self {
            Self::OpenRead | Self::OpenReadClose41 | Self::OpenReadClose42 => Self::OpenReadFloor,
            Self::CreateRemove41 | Self::CreateRemove42 => Self::CreateRemove,
            Self::Readdir41 | Self::Readdir42 => Self::Readdirplus,
            other => other,
        }
    }

    /// Returns whether this is an additional procedure of the floor, which servers do not have.
    #[must_use]
    pub fn is_of_floor(self) -> bool {
        matches!(self, Self::OpenReadFloor | Self::ListingSendFloor)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|operation| operation.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|operation| operation.name()).collect();
            format!("no operation '{text}'; there are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_parsed_back_and_unique() {
        for (index, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation.name().parse::<Operation>(), Ok(*operation));
            assert!(Operation::ALL[..index].iter().all(|earlier| earlier.name() != operation.name()));
        }
        assert!("getattr3".parse::<Operation>().unwrap_err().contains("getattr41"));
    }
}
