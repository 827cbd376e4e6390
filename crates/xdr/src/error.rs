use std::fmt;

/// Why bytes were not a value. Always the sender's fault; RPC answers it with `GARBAGE_ARGS`, NFSv4 with `BADXDR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The record ended `missing` bytes too early.
    Truncated {
        /// Bytes that the value would have needed beyond the end.
        missing: usize,
    },
    /// A variable length exceeds the bound that its type sets.
    TooLong {
        /// The length on the wire, in bytes or elements.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// A boolean that is neither 0 nor 1 (RFC 4506 §4.4).
    InvalidBool(u32),
    /// A value that the enumeration or union named here does not have.
    InvalidDiscriminant {
        /// The Rust type that was being decoded.
        type_name: &'static str,
        /// The value on the wire.
        value: u32,
    },
    /// Bytes are left behind the last value.
    TrailingBytes(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { missing } => write!(f, "data ends {missing} bytes too early"),
            Self::TooLong { length, max } => write!(f, "length {length} exceeds the limit of {max}"),
            Self::InvalidBool(value) => write!(f, "{value} is not a boolean"),
            Self::InvalidDiscriminant { type_name, value } => write!(f, "{value} is no {type_name}"),
            Self::TrailingBytes(count) => write!(f, "{count} bytes follow the last value"),
        }
    }
}

impl std::error::Error for DecodeError {}
