//! Types of NFS version 4 round-trip.
//!
//! The tests decode random words, mostly small, so that many lengths, booleans and discriminants are valid. Each decoded value is
//! encoded and decoded again. The tests check that every arm of every union occurs.

mod common;

use std::collections::BTreeSet;
use std::fmt::Debug;

use common::round_trip;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes, known, settable};
use protocol::nfs4::callback::notify::{
    NotifyAdd, NotifyAttributes, NotifyDeviceChange, NotifyDeviceDelete, NotifyRemove, NotifyRename,
    NotifyVerifier,
};
use protocol::nfs4::callback::{CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::layout::files::{FileLayout, FileLayoutDeviceAddress, FileLayoutHint};
use protocol::nfs4::layout::flex_files::{
    FlexDeviceAddress, FlexLayout, FlexLayoutHint, FlexLayoutReturn, FlexLayoutUpdate,
};
use protocol::nfs4::ops::copy::{CopyConfirmAuth, CopyFromAuth, CopyToAuth};
use protocol::nfs4::ops::ssv::{
    DigestArgs, DigestResult, SsvMic, SsvMicPlain, SsvSealCipher, SsvSealPlain, SsvSubkey,
};
use protocol::nfs4::types::{Bitmap, CallbackOpNum, HasStatus, OpNum, Status};
use xdr::{Decode, Encode, Reader, from_bytes, to_bytes};

/// Returns random words, mostly valid lengths, booleans and discriminants.
fn words(rng: &mut TestRng) -> Vec<u32> {
    let mut word = || match rng.next_u32() % 10 {
        0..6 => rng.next_u32() % 2,
        6..9 => rng.next_u32() % 8,
        _ => rng.next_u32(),
    };
    (0..160).map(|_| word()).collect()
}

fn wire(first: &[u32], words: &[u32]) -> bytes::Bytes {
    first.iter().chain(words).flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns whether a bitmap in `value` had bits beyond its limit.
fn has_beyond(value: &impl Debug) -> bool {
    format!("{value:?}").contains("..}")
}

/// Decodes `cases` times from `first` and random words, round-trips each decoded value and passes it to `seen`. Returns the
/// number of decoded values.
fn explore<T: Encode + Decode + PartialEq + Debug>(
    cases: usize,
    first: &[u32],
    mut seen: impl FnMut(&T),
) -> usize {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut found = 0;
    for _ in 0..cases {
        if let Ok(value) = T::decode(&mut Reader::new(wire(first, &words(&mut rng)))) {
            // Bits beyond a bitmap's limit are not encoded again.
            if !has_beyond(&value) {
                round_trip(&value);
            }
            seen(&value);
            found += 1;
        }
    }
    found
}

/// Adds the names in the value's debug output, which include its union arms.
fn arms(value: &impl Debug, into: &mut BTreeSet<String>) {
    let text = format!("{value:?}");
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    into.extend(words.filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned));
}

fn assert_arms(arms: &BTreeSet<String>, expected: &[&str]) {
    for arm in expected {
        assert!(arms.contains(*arm), "{arm} was never reached; seen: {arms:?}");
    }
}

#[test]
fn arguments_of_every_operation_round_trip() {
    let mut seen = BTreeSet::new();
    for op in OpNum::ALL {
        let found = explore::<Op>(300, &[op.0], |value| {
            assert_eq!(value.opnum(), *op);
            arms(value, &mut seen);
        });
        assert!(found >= 5, "{op:?}: {found} values in 300 tries");
    }
    assert_arms(&seen, &["Link", "Block", "Character", "Other"]); // createtype4
    assert_arms(&seen, &["New", "Existing", "Read", "Write", "ReadWait", "WriteWait"]); // locker4, nfs_lock_type4
    assert_arms(&seen, &["NoCreate", "Create", "Unchecked", "Guarded", "Exclusive", "Exclusive41"]); // openflag4
    assert_arms(
        &seen,
        &["Null", "Previous", "DelegateCur", "DelegatePrev", "Fh", "DelegateCurFh", "DelegatePrevFh"],
    );
    assert_arms(&seen, &["MachineCredential", "Ssv", "Sys", "Gss"]); // state_protect4_a, callback_sec_parms4
    assert_arms(&seen, &["File", "Fsid", "All", "Name", "Url", "Address"]); // layoutreturn4, netloc4
    assert_arms(&seen, &["Unstable", "DataSync", "FileSync"]); // stable_how4
}

#[test]
fn results_of_every_operation_round_trip() {
    let mut seen = BTreeSet::new();
    let special = [
        Status::DENIED,
        Status::CLID_INUSE,
        Status::TOOSMALL,
        Status::LAYOUTTRYLATER,
        Status::OFFLOAD_NO_REQS,
        Status::NOENT,
    ];
    for op in OpNum::ALL {
        let found = explore::<OpResult>(300, &[op.0, Status::OK.0], |value| {
            assert_eq!((value.opnum(), value.status()), (*op, Status::OK));
            arms(value, &mut seen);
        });
        assert!(found >= 5, "{op:?}: {found} values in 300 tries");
        for status in special {
            let found = explore::<OpResult>(10, &[op.0, status.0], |value| {
                assert_eq!((value.opnum(), value.status()), (*op, status));
                arms(value, &mut seen);
            });
            assert!(found >= 1, "{op:?} {status:?}");
        }
    }
    // Values too deep to occur by chance: a GSS flavor, and delegations of every type.
    let delegation = |delegation_type| [OpNum::WANT_DELEGATION.0, Status::OK.0, delegation_type];
    let mut deep = vec![vec![OpNum::SECINFO.0, Status::OK.0, 1, 6, 0, 0]];
    deep.extend((0..6).map(|delegation_type| delegation(delegation_type).to_vec()));
    deep.extend((0..9).map(|why| [&delegation(3)[..], &[why]].concat()));
    deep.extend((1..3).map(|limit| [&delegation(2)[..], &[1, 2, 3, 4, 0, limit]].concat()));
    for first in &deep {
        explore::<OpResult>(100, first, |value| arms(value, &mut seen));
    }
    assert_arms(
        &seen,
        &["Denied", "InUse", "TooSmall", "TryLater", "NoRequirements", "Granted", "Unavailable"],
    );
    assert_arms(&seen, &["None", "Read", "Write", "NoneExt", "ReadAttributes", "WriteAttributes"]); // open_delegation4
    assert_arms(&seen, &["Contention", "Resource", "Other", "Size", "Blocks"]); // open_none_delegation4
    assert_arms(&seen, &["Gss", "Flavor", "Integrity", "Privacy", "Data", "Hole"]); // secinfo4, read_plus_content
}

#[test]
fn callbacks_round_trip() {
    let mut seen = BTreeSet::new();
    for op in CallbackOpNum::ALL {
        let found = explore::<CbOp>(300, &[op.0], |value| {
            assert_eq!(value.opnum(), *op);
            arms(value, &mut seen);
        });
        assert!(found >= 5, "{op:?}: {found} values in 300 tries");
        let found = explore::<CbOpResult>(100, &[op.0], |value| assert_eq!(value.opnum(), *op));
        assert!(found >= 5, "result of {op:?}: {found} values in 100 tries");
    }
    assert_arms(&seen, &["File", "Fsid", "All", "Error"]);
}

#[test]
fn compounds_round_trip() {
    let mut ops = BTreeSet::new();
    let found = explore::<CompoundArgs>(4000, &[0, 1], |value| ops.extend(value.ops.iter().map(Op::opnum)));
    assert!(found >= 50 && ops.len() >= 5, "{found} {ops:?}");
    let found = explore::<CompoundResult>(4000, &[0, 0], |value| {
        ops.extend(value.results.iter().map(OpResult::opnum))
    });
    assert!(found >= 50, "{found}");
    assert!(explore::<CbCompoundArgs>(4000, &[0, 1, 0], |_| {}) >= 50);
    assert!(explore::<CbCompoundResult>(4000, &[0, 0], |_| {}) >= 50);
}

#[test]
fn bodies_of_layout_types_and_notifications_round_trip() {
    fn check<T: Encode + Decode + PartialEq + Debug>() {
        let found = explore::<T>(4000, &[], |_| {});
        assert!(found >= 20, "{}: {found}", std::any::type_name::<T>());
    }
    check::<FileLayout>();
    check::<FileLayoutDeviceAddress>();
    check::<FileLayoutHint>();
    check::<FlexLayout>();
    check::<FlexDeviceAddress>();
    check::<FlexLayoutUpdate>();
    check::<FlexLayoutReturn>();
    check::<FlexLayoutHint>();
    check::<NotifyAdd>();
    check::<NotifyRemove>();
    check::<NotifyRename>();
    check::<NotifyAttributes>();
    check::<NotifyVerifier>();
    check::<NotifyDeviceChange>();
    check::<NotifyDeviceDelete>();
    check::<DigestArgs>();
    check::<DigestResult>();
    check::<SsvMic>();
    check::<SsvMicPlain>();
    check::<SsvSealPlain>();
    check::<SsvSealCipher>();
    check::<SsvSubkey>();
    check::<CopyFromAuth>();
    check::<CopyToAuth>();
    check::<CopyConfirmAuth>();
}

/// Finds decodable values of each attribute by extending the opaque until it decodes.
#[test]
fn every_attribute_round_trips() {
    for number in &known(2) {
        let mask = Bitmap::of(&[number]);
        let mut found = 0;
        explore::<[u8; 256]>(100, &[], |words| {
            for length in (4..=words.len()).step_by(4) {
                let wire = FileAttributes::new(mask, words[..length].to_vec()).unwrap();
                let Ok(attributes) = Attributes::from_file_attributes(&wire) else { continue };
                let again = attributes.to_file_attributes();
                assert_eq!((attributes.mask(), again.mask), (mask, mask));
                if !has_beyond(&attributes) {
                    assert_eq!(Attributes::from_file_attributes(&again).as_ref(), Ok(&attributes));
                }
                if settable(2).has(number) {
                    let set = SetAttributes::from_file_attributes(&wire, mask).unwrap();
                    assert_eq!(set.to_file_attributes(), again);
                }
                found += 1;
                break;
            }
        });
        assert!(found >= 5, "attribute {number}: {found} values in 100 tries");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Decoding random bytes ends, reads no more than these bytes, and returns a valid value or an error.
    #[test]
    fn decoding_random_bytes_is_safe(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for first in OpNum::ALL {
            let mut wire = to_bytes(first).to_vec();
            wire.extend(&bytes);
            let _ = from_bytes::<Op>(wire.clone());
            let _ = from_bytes::<OpResult>(wire);
        }
        let _ = from_bytes::<CompoundArgs>(bytes.clone());
        let _ = from_bytes::<CbCompoundArgs>(bytes.clone());
        let mask = known(2);
        let _ = Attributes::from_file_attributes(&FileAttributes::new(mask, bytes).unwrap());
    }

    #[test]
    fn bitmaps_round_trip(words in any::<[u32; Bitmap::WORDS]>()) {
        let set = Bitmap::from_words(words);
        round_trip(&set);
        prop_assert_eq!(set.iter().count() as u32, set.length());
        prop_assert!(set.iter().all(|number| set.has(number)));
    }
}
