//! Derive macros for the `Encode` and `Decode` traits of `xdr`.
