use super::action::{Action, Content, Kind, Pick, Wanted};
use super::model::{COMMON_GROUP, Id};
use crate::{CreateMode, Removal, SetXattr};

/// A few names, so that actions interact.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Names of extended attributes.
const XATTRS: [&str; 3] = ["one", "two", "three"];
/// Common modes, none, set-ID and sticky.
const MODES: [u32; 12] =
    [0o755, 0o777, 0o700, 0o644, 0o666, 0o1777, 0o2775, 0o4755, 0o6777, 0o555, 0o311, 0o000];
/// Greatest offset or size in bytes.
const SIZE_MAX: u64 = 20_000;
/// Maximum number of bytes of a write.
const LENGTH_MAX: u64 = 6_000;

/// Numbers that depend on a seed alone (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Debug)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Returns the next action, by one of `callers` callers.
pub(super) fn action(numbers: &mut Numbers, callers: usize) -> Action {
    let who = numbers.below(callers as u64) as usize;
    Action { who, what: wanted(numbers) }
}

fn wanted(numbers: &mut Numbers) -> Wanted {
    let name = |numbers: &mut Numbers| numbers.one_of(&NAMES);
    match numbers.below(100) {
        0..25 => Wanted::Create {
            directory: directory(numbers),
            name: name(numbers),
            kind: kind(numbers),
            // Set-group-ID of new files has different rules on each system; chmod covers it.
            mode: numbers.one_of(&MODES) & 0o1777,
        },
        25..35 => Wanted::Remove {
            directory: directory(numbers),
            name: name(numbers),
            removal: numbers.one_of(&[Removal::File, Removal::Directory, Removal::Any]),
        },
        35..48 => Wanted::Rename {
            from: (directory(numbers), name(numbers)),
            to: (directory(numbers), name(numbers)),
        },
        48..54 => Wanted::Link { file: any(numbers), directory: directory(numbers), name: name(numbers) },
        54..66 => Wanted::Content { file: file(numbers), content: content(numbers) },
        66..72 => Wanted::Chmod { file: any(numbers), mode: numbers.one_of(&MODES) },
        72..76 => Wanted::Chown { file: any(numbers), uid: uid(numbers), gid: gid(numbers) },
        76..82 => Wanted::Lookup { directory: directory(numbers), name: name(numbers) },
        82..86 => Wanted::List { directory: directory(numbers), page: 1 + numbers.below(4) as usize },
        86..90 => {
            Wanted::Open { file: file(numbers), read: numbers.below(2) == 0, write: numbers.below(2) == 0 }
        }
        90..93 => Wanted::Close { which: numbers.below(100) as usize },
        93..97 => Wanted::SetXattr {
            file: any(numbers),
            name: numbers.one_of(&XATTRS),
            length: numbers.below(300) as usize,
            how: numbers.one_of(&[SetXattr::Either, SetXattr::Create, SetXattr::Replace]),
        },
        97..98 => Wanted::RemoveXattr { file: any(numbers), name: numbers.one_of(&XATTRS) },
        _ => Wanted::Parent { directory: directory(numbers) },
    }
}

fn kind(numbers: &mut Numbers) -> Kind {
    match numbers.below(10) {
        0..3 => Kind::Directory,
        3..5 => Kind::File(CreateMode::Guarded, None),
        5..6 => Kind::File(CreateMode::Unchecked, None),
        6..7 => Kind::File(CreateMode::Unchecked, Some(numbers.below(SIZE_MAX))),
        7..8 => Kind::File(CreateMode::Exclusive([numbers.below(3) as u8; 8]), None),
        8..9 => Kind::Symlink(numbers.one_of(&NAMES)),
        _ => Kind::Fifo,
    }
}

fn content(numbers: &mut Numbers) -> Content {
    let (offset, length) = (numbers.below(SIZE_MAX), numbers.below(LENGTH_MAX));
    match numbers.below(10) {
        0..5 => Content::Write { offset, length, byte: numbers.below(255) as u8 + 1 },
        5..8 => Content::Read { offset, length },
        _ => Content::Size(offset),
    }
}

fn directory(numbers: &mut Numbers) -> Pick {
    let number = numbers.below(1000) as Id;
    if numbers.below(20) == 0 { Pick::Any(number) } else { Pick::Directory(number) }
}

fn file(numbers: &mut Numbers) -> Pick {
    let number = numbers.below(1000) as Id;
    if numbers.below(10) == 0 { Pick::Any(number) } else { Pick::File(number) }
}

fn any(numbers: &mut Numbers) -> Pick {
    Pick::Any(numbers.below(1000) as Id)
}

fn uid(numbers: &mut Numbers) -> Option<u32> {
    numbers.one_of(&[None, None, Some(0), Some(1001), Some(1002)])
}

fn gid(numbers: &mut Numbers) -> Option<u32> {
    numbers.one_of(&[None, Some(COMMON_GROUP), Some(1001), Some(9999)])
}
