//! The reply to INIT.

use super::*;

fn init(major: u32, minor: u32, flags: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [major, minor, 128 << 10, flags as u32, (flags >> 32) as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.resize(64, 0);
    bytes
}

const OFFERED: u64 = (Capabilities::INIT_EXT.bits())
    | Capabilities::POSIX_LOCKS.bits()
    | Capabilities::ASYNC_DIO.bits()
    | Capabilities::MAX_PAGES.bits()
    | Capabilities::HAS_RESEND.bits();

#[test]
fn capabilities_are_those_of_both() {
    let (reply, state) = answer_init(&init(7, 45, OFFERED), &Config::default()).expect("a current kernel");
    let state = state.expect("the same major version");
    let both = Capabilities::INIT_EXT
        | Capabilities::POSIX_LOCKS
        | Capabilities::MAX_PAGES
        | Capabilities::HAS_RESEND;
    assert_eq!(state.capabilities, both);
    // INIT_EXT, MAX_PAGES, POSIX_LOCKS; HAS_RESEND is bit 39.
    assert_eq!((reply.flags, reply.flags2), (1 << 30 | 1 << 22 | 1 << 1, 1 << 7));
    assert_eq!((reply.max_write, reply.max_readahead), (1 << 20, 128 << 10));
    let pages = (1 << 20) / rustix::param::page_size();
    assert_eq!(usize::from(reply.max_pages), pages);
}

#[test]
fn kernel_without_more_flags_sends_a_short_request() {
    let bytes = init(7, 31, u64::from(u32::MAX) & !Capabilities::INIT_EXT.bits());
    let (reply, state) = answer_init(&bytes[..16], &Config::default()).expect("Linux 5.4");
    assert_eq!((reply.flags2, state.map(|state| state.minor)), (0, Some(31)));
    assert!(answer_init(&bytes[..15], &Config::default()).is_err());
}

#[test]
fn a_newer_major_version_is_asked_to_repeat() {
    let (reply, state) = answer_init(&init(8, 0, 0), &Config::default()).expect("a question");
    assert_eq!((reply.major, state), (7, None));
}

#[test]
fn an_older_kernel_is_refused() {
    for (major, minor) in [(7, 30), (6, 99)] {
        let error = answer_init(&init(major, minor, 0), &Config::default()).expect_err("too old");
        assert!(error.to_string().contains(&format!("FUSE {major}.{minor}")), "{error}");
    }
}

#[test]
fn a_description_of_a_later_version_is_refused() {
    let state =
        State { minor: 40, capabilities: Capabilities::empty(), max_write: 1 << 20, max_readahead: 0 };
    assert!(state.validate().is_ok());
    assert!(State { minor: abi::MINOR + 1, ..state.clone() }.validate().is_err());
    assert!(State { max_write: u32::MAX, ..state.clone() }.validate().is_err());
    let text = serde_json::to_string(&state).expect("plain values");
    assert_eq!(serde_json::from_str::<State>(&text).expect("the state written above"), state);
}
