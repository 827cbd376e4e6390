//! Helpers of the round-trip tests.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::fmt::Debug;

use proptest::prelude::*;
use xdr::{Chain, Decode, Encode, InlineOpaque, Opaque, from_bytes, to_bytes};

/// Checks that `value` round-trips and that no prefix of its bytes decodes.
pub fn round_trip<T: Encode + Decode + PartialEq + Debug>(value: &T) {
    let wire = to_bytes(value);
    assert_eq!(wire.len() % 4, 0, "XDR comes in units of four bytes (RFC 4506 §3)");
    assert_eq!(&from_bytes::<T>(wire.clone()).unwrap(), value);
    for length in (0..wire.len()).rev().take(64) {
        assert!(from_bytes::<T>(wire.slice(..length)).is_err(), "cut at {length} of {}", wire.len());
    }
}

/// Generates up to 40 bytes, or sometimes as many as the bound allows.
pub fn opaque<const MAX: usize>() -> impl Strategy<Value = Opaque<MAX>> {
    let short = prop::collection::vec(any::<u8>(), 0..=MAX.min(40));
    prop_oneof![20 => short, 1 => Just(vec![0x61; MAX.min(5000)])]
        .prop_map(|bytes| Opaque::new(bytes).unwrap())
}

pub fn inline<const MAX: usize>() -> impl Strategy<Value = InlineOpaque<MAX>> {
    prop::collection::vec(any::<u8>(), 0..=MAX).prop_map(|bytes| InlineOpaque::new(&bytes).unwrap())
}

pub fn chain<T: Debug + Clone, const MAX: usize>(
    item: impl Strategy<Value = T>,
) -> impl Strategy<Value = Chain<T, MAX>> {
    prop::collection::vec(item, 0..6).prop_map(|items| Chain::new(items).unwrap())
}
