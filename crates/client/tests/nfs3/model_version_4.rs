//! The operations of [`model`](crate::model) in version 4.2.

use client::config::Version;
use proptest::prelude::*;

use crate::model::{op, play};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn programs_see_a_posix_file_in_version_4_2(ops in prop::collection::vec(op(), 1..60)) {
        play(Version::V42, true, ops);
    }

    #[test]
    fn programs_see_a_posix_file_without_caches(ops in prop::collection::vec(op(), 1..40)) {
        play(Version::V42, false, ops);
    }
}
