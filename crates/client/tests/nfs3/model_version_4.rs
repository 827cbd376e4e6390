//! The operations of [`model`](crate::model) in version 4.2.

use client::block_store::MemoryBlocks;
use client::config::{Caches, Config, Version};
use proptest::prelude::*;

use crate::link::{Link, config};
use crate::model::{Op, op, play, play_on};

/// Plays with a block store that both clients use.
fn play_with_blocks(ops: Vec<Op>) {
    let caches = Caches { blocks: Some(MemoryBlocks::new(1 << 20)), ..Caches::default() };
    play_on(&Link::new(), Config { version: Some(Version::V42), caches, ..config() }, || {}, ops);
}

/// The range that the last write needs begins behind the end of what is stored.
#[test]
fn a_file_grows_by_unsent_writes_beyond_its_stored_blocks() {
    play_with_blocks(vec![
        Op::Write(15417, 25734),
        Op::Remount,
        Op::Read(0, 1),
        Op::Write(41095, 57),
        Op::Write(41153, 1),
        Op::Read(41090, 100),
        Op::Remount,
        Op::Read(0, 1 << 16),
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn programs_see_a_posix_file_in_version_4_2(ops in prop::collection::vec(op(), 1..60)) {
        play(Version::V42, true, ops);
    }

    #[test]
    fn programs_see_a_posix_file_with_a_block_store(ops in prop::collection::vec(op(), 1..60)) {
        play_with_blocks(ops);
    }

    #[test]
    fn programs_see_a_posix_file_without_caches(ops in prop::collection::vec(op(), 1..40)) {
        play(Version::V42, false, ops);
    }
}
