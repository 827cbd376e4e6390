//! Versions 1 and 3, and messages.

use super::*;

fn narrow(lock: Lock) -> Lock<u32> {
    let Lock { caller_name, fh, oh, svid, l_offset, l_len } = lock;
    Lock { caller_name, fh, oh, svid, l_offset: l_offset as u32, l_len: l_len as u32 }
}

fn narrow_args(args: LockArgs) -> LockArgs<u32> {
    let LockArgs { cookie, block, exclusive, alock, reclaim, state } = args;
    LockArgs { cookie, block, exclusive, alock: narrow(alock), reclaim, state }
}

#[test]
fn versions_1_and_3_have_offsets_of_32_bits_and_share_the_table_with_version_4() {
    let (lab, file, mut one, mut two) = two_hosts();
    for version in [VERSION_1, VERSION_3] {
        let args = narrow_args(one.args(bytes(file, 10, 10), true, false));
        assert_eq!(one.ask::<Res>(version, Proc::LOCK, &args).unwrap().stat, Stats::GRANTED);
        assert_eq!(two.lock(bytes(file, 19, 1)), Stats::DENIED);
        let alock = narrow(two.lock_of(bytes(file, 0, 0)));
        let test = TestArgs { cookie: NetObj::default(), exclusive: true, alock };
        let TestReply::Denied(holder) = two.ask::<TestRes<u32>>(version, Proc::TEST, &test).unwrap().stat
        else {
            panic!()
        };
        assert_eq!((holder.l_offset, holder.l_len), (10, 10));
        let UnlockArgs { cookie, alock } =
            UnlockArgs { cookie: NetObj::default(), alock: narrow(one.lock_of(whole(file))) };
        let unlock = UnlockArgs { cookie, alock };
        assert_eq!(one.ask::<Res>(version, Proc::UNLOCK, &unlock).unwrap().stat, Stats::GRANTED);
    }
    assert_eq!(lab.server.counts().locks, 0);
}

#[test]
fn a_length_of_zero_is_the_whole_rest_beyond_32_bits_too() {
    let (_lab, file, mut one, mut two) = two_hosts();
    let args = narrow_args(one.args(bytes(file, 5, 0), true, false));
    assert_eq!(one.ask::<Res>(VERSION_3, Proc::LOCK, &args).unwrap().stat, Stats::GRANTED);
    assert_eq!(two.lock(bytes(file, 1 << 40, 1)), Stats::DENIED);
}

#[test]
fn old_versions_get_no_status_of_version_4() {
    let (_lab, file, mut one, _) = two_hosts();
    let mut args = narrow_args(one.args(whole(file), true, false));
    args.alock.fh = Opaque::from_static(b"never made");
    assert_eq!(one.ask::<Res>(VERSION_1, Proc::LOCK, &args).unwrap().stat, Stats::DENIED_NOLOCKS);
}

#[test]
fn version_1_has_no_share_reservations_and_version_2_does_not_exist() {
    let (_lab, file, mut one, _) = two_hosts();
    let share = one.share_args(file, ShareAccess::R, ShareMode::DN);
    let none = Err(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable));
    assert_eq!(one.ask::<ShareRes>(VERSION_1, Proc::SHARE, &share), none);
    assert_eq!(one.ask::<ShareRes>(VERSION_3, Proc::SHARE, &share).unwrap().stat, Stats::GRANTED);
    let mismatch = one.ask::<()>(2, Proc::NULL, &());
    assert!(matches!(mismatch, Err(RpcError::NotExecuted(AcceptStatus::ProgramMismatch(_)))), "{mismatch:?}");
}

#[test]
fn a_message_is_answered_by_a_call_with_its_result() {
    let (lab, file, mut one, mut two) = two_hosts();
    let args = narrow_args(one.args(whole(file), true, false));
    one.ask::<()>(VERSION_3, Proc::LOCK_MSG, &args).unwrap();
    let call = next_call(&lab).expect("LOCK_RES");
    assert_eq!((call.program(), call.is_answered()), ((PROGRAM, VERSION_3), false));
    let (procedure, Res { cookie, stat }) = called(&call);
    assert_eq!((procedure, &*cookie, stat), (Proc::LOCK_RES.0, &b"cookie"[..], Stats::GRANTED));
    lab.server.handle_host_answer(&call, HostAnswer::Unanswered, lab.now());

    let TestArgs { alock, .. } =
        TestArgs { cookie: NetObj::default(), exclusive: true, alock: two.lock_of(whole(file)) };
    let test = TestArgs { cookie: NetObj::default(), exclusive: true, alock };
    two.ask::<()>(VERSION, Proc::TEST_MSG, &test).unwrap();
    let call = next_call(&lab).expect("TEST_RES");
    let (procedure, result) = called::<TestRes>(&call);
    assert_eq!(procedure, Proc::TEST_RES.0);
    assert!(matches!(result.stat, TestReply::Denied(_)));

    let LockArgs { cookie, block, exclusive, alock, .. } = two.args(whole(file), true, true);
    two.ask::<()>(VERSION, Proc::LOCK_MSG, &two.args(whole(file), true, true)).unwrap();
    two.ask::<()>(VERSION, Proc::CANCEL_MSG, &CancelArgs { cookie, block, exclusive, alock }).unwrap();
    let unlock = UnlockArgs { cookie: Opaque::from_static(b"cookie"), alock: one.lock_of(whole(file)) };
    one.ask::<()>(VERSION, Proc::UNLOCK_MSG, &unlock).unwrap();
    lab.server.handle_host_answer(&call, HostAnswer::Unanswered, lab.now());
    let mut results = Vec::new();
    while let Some(call) = next_call(&lab) {
        let (procedure, Res { stat, .. }) = called(&call);
        results.push((Proc(procedure), stat));
        lab.server.handle_host_answer(&call, HostAnswer::Unanswered, lab.now());
    }
    let expected = [
        (Proc::UNLOCK_RES, Stats::GRANTED),
        (Proc::LOCK_RES, Stats::BLOCKED),
        (Proc::CANCEL_RES, Stats::GRANTED),
    ];
    results.sort_by_key(|(procedure, _)| expected.iter().position(|(other, _)| other == procedure));
    assert_eq!(results, expected);
    assert_eq!(lab.server.counts().locks, 0);
}

#[test]
fn a_granted_call_has_the_version_of_its_lock() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    let args = narrow_args(two.args(bytes(file, 3, 4), true, true));
    assert_eq!(two.ask::<Res>(VERSION_1, Proc::LOCK, &args).unwrap().stat, Stats::BLOCKED);
    one.unlock(whole(file));
    let call = next_call(&lab).unwrap();
    assert_eq!(call.program(), (PROGRAM, VERSION_1));
    let (_, granted) = called::<TestArgs<u32>>(&call);
    assert_eq!(granted.alock, args.alock);
}
