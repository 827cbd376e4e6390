use std::fmt;

/// Why bytes cannot be decoded. Always the sender's fault: RPC returns `GARBAGE_ARGS`, NFSv4 `BADXDR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The record ends too early.
    Truncated {
        /// Bytes of the value beyond the end of the record.
        missing: usize,
    },
    /// A variable length exceeds the bound of its type.
    TooLong {
        /// The length on the wire, in bytes or elements.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// A boolean that is neither 0 nor 1 (RFC 4506 §4.4).
    InvalidBool(u32),
    /// A value that the enumeration or union does not define.
    InvalidDiscriminant {
        /// The Rust type of the enumeration or union.
        type_name: &'static str,
        /// The value on the wire.
        value: u32,
    },
    /// Number of bytes after the last value.
    TrailingBytes(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { missing } => write!(f, "data ends {missing} bytes too early"),
            Self::TooLong { length, max } => write!(f, "length {length} exceeds the limit of {max}"),
            Self::InvalidBool(value) => write!(f, "{value} is not a boolean"),
            Self::InvalidDiscriminant { type_name, value } => write!(f, "{value} is not a valid {type_name}"),
            Self::TrailingBytes(count) => write!(f, "{count} bytes follow the last value"),
        }
    }
}

impl std::error::Error for DecodeError {}
