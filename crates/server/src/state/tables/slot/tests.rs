use super::super::transitions::check_table;
use super::*;

/// Returns a table that does not grow.
fn fixed(granted: u32, memory: &Arc<SlotMemory>) -> Option<SlotTable> {
    SlotTable::new(Window::new(granted, granted), CACHED_REPLY_MAX, memory)
}

fn table(granted: u32, budget: usize) -> SlotTable {
    fixed(granted, &Arc::new(SlotMemory::new(budget))).unwrap()
}

fn arrive(
    slots: &SlotTable,
    slot: u32,
    sequence_id: u32,
    digest: u64,
    keep: bool,
) -> Result<Verdict, Status> {
    slots.arrive(Arrival { slot, sequence_id, highest: slot, digest, keep, now_s: 1 })
}

/// Sends and finishes a request in this second, whose SEQUENCE names the highest slot in use.
fn pass(slots: &SlotTable, slot: u32, sequence_id: u32, highest: u32, now_s: u32) {
    let arrival = Arrival { slot, sequence_id, highest, digest: 0, keep: true, now_s };
    assert_eq!(slots.arrive(arrival), Ok(Verdict::New));
    slots.finish(slot, Some(&[0; 1000]));
}

#[test]
fn the_table_of_phases_is_consistent() {
    let phases = [SlotPhase::Fresh, SlotPhase::InProgress, SlotPhase::Cached, SlotPhase::Uncached];
    check_table(TRANSITIONS, SlotPhase::Fresh, &phases);
    assert_eq!(step(TRANSITIONS, SlotPhase::InProgress, SlotEvent::Begin), None, "a slot runs one request");
    for phase in [SlotPhase::Fresh, SlotPhase::Cached, SlotPhase::Uncached] {
        assert_eq!(step(TRANSITIONS, phase, SlotEvent::Keep), None, "only a request in progress can end");
        assert_eq!(step(TRANSITIONS, phase, SlotEvent::Forget), None);
    }
}

#[test]
fn sequence_ids_are_judged_and_wrap() {
    let slots = table(1, 1 << 20);
    for wrong in [0, 2, u32::MAX] {
        assert_eq!(arrive(&slots, 0, wrong, 7, true), Err(Status::SEQ_MISORDERED));
    }
    assert_eq!(arrive(&slots, 0, 1, 7, true), Ok(Verdict::New));
    slots.finish(0, Some(b"one"));
    slots.chunk(0).get().unwrap()[0].lock().sequence_id = u32::MAX;
    assert_eq!(arrive(&slots, 0, u32::MAX, 7, true), Ok(Verdict::Replay(Some(Bytes::from_static(b"one")))));
    assert_eq!(arrive(&slots, 0, 1, 7, true), Err(Status::SEQ_MISORDERED));
    // RFC 8881 §2.10.6.1: "If the previous sequence ID was 0xFFFFFFFF, then the next request for the slot MUST have the
    // sequence ID set to zero".
    assert_eq!(arrive(&slots, 0, 0, 7, true), Ok(Verdict::New));
}

#[test]
fn memory_is_charged_and_released() {
    let memory = Arc::new(SlotMemory::new(1 << 20));
    let slots = fixed(64, &memory).unwrap();
    let base = memory.used();
    assert!(base >= 2 * CACHED_REPLY_MAX as usize);
    for slot in 0..40 {
        assert_eq!(arrive(&slots, slot, 1, 0, true), Ok(Verdict::New));
        slots.finish(slot, Some(&[0; 100]));
    }
    assert!(memory.used() >= base + 38 * 100 + 2 * SlotTable::CHUNK_BYTES);
    let used = memory.used();
    assert_eq!(arrive(&slots, 20, 2, 0, true), Ok(Verdict::New));
    slots.finish(20, Some(&[0; 60]));
    assert_eq!(memory.used(), used, "a shorter reply takes the old one's memory");
    drop(slots);
    assert_eq!(memory.used(), 0);
}

#[test]
fn under_pressure_only_guaranteed_slots_continue() {
    let memory = Arc::new(SlotMemory::new(12_000));
    let slots = fixed(64, &memory).unwrap();
    assert_eq!(slots.target_highest(), 63, "reserved memory is not scarce");
    let mut waiting = None;
    for slot in 2..16 {
        match arrive(&slots, slot, 1, 0, true) {
            Ok(_) => slots.finish(slot, Some(&[0; 2000])),
            Err(status) => {
                assert_eq!(status, Status::DELAY);
                waiting = Some(slot);
                break;
            }
        }
    }
    let waiting = waiting.expect("the budget runs out");
    assert_eq!(slots.target_highest(), 1);
    assert!(fixed(1, &memory).is_none(), "no other session fits");
    assert_eq!(arrive(&slots, 16, 1, 0, false), Err(Status::DELAY), "a new chunk is memory too");
    assert_eq!(
        arrive(&slots, waiting, 1, 0, false),
        Ok(Verdict::New),
        "requests without a cached reply continue"
    );
    for sequence_id in 1..9 {
        assert_eq!(arrive(&slots, 0, sequence_id, 0, true), Ok(Verdict::New));
        slots.finish(0, Some(&[0; 4096]));
    }
}

#[test]
fn under_pressure_a_slot_releases_unused_memory() {
    let memory = Arc::new(SlotMemory::new(14_000));
    let slots = fixed(16, &memory).unwrap();
    let base = memory.used();
    assert_eq!(arrive(&slots, 5, 1, 0, true), Ok(Verdict::New));
    slots.finish(5, Some(&[0; 4000]));
    assert!(memory.is_scarce() && memory.used() >= base + 4000);
    assert_eq!(arrive(&slots, 5, 2, 0, false), Ok(Verdict::New));
    slots.finish(5, None);
    assert_eq!(memory.used(), base);
    drop(slots);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_reply_too_long_to_keep_is_not_kept() {
    let slots = table(1, 1 << 20);
    assert_eq!(arrive(&slots, 0, 1, 0, true), Ok(Verdict::New));
    slots.finish(0, Some(&vec![0; CACHED_REPLY_MAX as usize + 1]));
    assert_eq!(arrive(&slots, 0, 1, 0, true), Ok(Verdict::Replay(None)));
}

#[test]
fn replies_received_by_the_client_are_released() {
    let memory = Arc::new(SlotMemory::new(1 << 20));
    let slots = fixed(64, &memory).unwrap();
    for slot in 0..40 {
        pass(&slots, slot, 1, 39, 10);
    }
    let full = memory.used();
    slots.release_idle();
    assert_eq!(memory.used(), full, "no request has named its highest slot");
    // It may have been sent before those on the other slots: its predecessor is not older than they are.
    pass(&slots, 0, 2, 0, 30);
    slots.release_idle();
    assert_eq!(memory.used(), full);
    assert_eq!(arrive(&slots, 39, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from(vec![0; 1000])))));
    // The request says that slot 5 is still in use.
    pass(&slots, 0, 3, 5, 50);
    slots.release_idle();
    assert_eq!(memory.used(), full - 34 * 1000);
    assert_eq!(slots.usage().reply_bytes, 6 * 1000);
    assert_eq!(arrive(&slots, 5, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from(vec![0; 1000])))));
    // It was executed anyway, and is not executed again.
    assert_eq!(arrive(&slots, 6, 1, 0, true), Ok(Verdict::Replay(None)));
    pass(&slots, 6, 2, 6, 51);
}

#[test]
fn slots_in_progress_are_not_released() {
    let slots = table(64, 1 << 20);
    assert_eq!(arrive(&slots, 7, 1, 0, true), Ok(Verdict::New));
    for (sequence_id, now_s) in [(1, 20), (2, 40), (3, 60)] {
        pass(&slots, 0, sequence_id, 0, now_s);
    }
    slots.release_idle();
    assert_eq!(
        slots.usage(),
        SlotUse {
            granted: 64,
            target: 64,
            reply_max: 4096,
            in_use: 1,
            reply_bytes: 1000,
            ..SlotUse::default()
        }
    );
    slots.finish(7, Some(b"done"));
    assert_eq!(arrive(&slots, 7, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from_static(b"done")))));
}

#[test]
fn full_windows_and_replays_are_counted() {
    let slots = table(2, 1 << 20);
    pass(&slots, 0, 1, 0, 1);
    pass(&slots, 1, 1, 1, 1);
    assert!(matches!(arrive(&slots, 0, 1, 0, true), Ok(Verdict::Replay(Some(_)))));
    let usage = slots.usage();
    assert_eq!((usage.full, usage.replayed, usage.deferred), (1, 1, 0));
}

#[test]
fn window_grows_from_64_slots_to_500_threads() {
    let memory = Arc::new(SlotMemory::new(1 << 22));
    let slots = SlotTable::new(Window::new(64, 1024), CACHED_REPLY_MAX, &memory).unwrap();
    assert_eq!(arrive(&slots, 64, 1, 0, true), Err(Status::BADSLOT));
    let before = memory.used();
    // A client keeps to the limit in the previous reply.
    let mut announced = 63;
    for slot in 0..512 {
        assert!(slot <= announced, "slot {slot} must wait, {announced} is the last");
        assert_eq!(arrive(&slots, slot, 1, 0, true), Ok(Verdict::New));
        announced = slots.target_highest();
    }
    assert_eq!((slots.usage().in_use, slots.usage().full, slots.granted()), (512, 0, 1024));
    assert!(memory.used() - before < 512 * 80, "{} bytes a slot", (memory.used() - before) / 512);
    (0..512).for_each(|slot| slots.finish(slot, Some(&[7; 100])));
    assert_eq!(arrive(&slots, 500, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from(vec![7; 100])))));
    assert_eq!(slots.usage().reply_bytes, 512 * 100);
    drop(slots);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_retransmission_finds_its_reply_after_the_window_has_fallen() {
    let slots = SlotTable::new(Window::new(64, 1024), CACHED_REPLY_MAX, &Arc::new(SlotMemory::new(1 << 22)));
    let slots = slots.unwrap();
    (0..200).for_each(|slot| pass(&slots, slot, 1, slot, 1));
    slots.tend(100);
    (161..=176).for_each(|now_s| slots.tend(now_s));
    assert_eq!((slots.target_highest(), slots.granted()), (63, 512));
    assert_eq!(arrive(&slots, 199, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from(vec![0; 1000])))));
    // §2.10.6.1: "because of request pipelining, the requester may have active requests in flight reflecting prior values".
    assert_eq!(arrive(&slots, 199, 2, 0, true), Ok(Verdict::New));
    assert_eq!(arrive(&slots, 512, 1, 0, true), Err(Status::BADSLOT));
}

#[test]
fn scarce_memory_halves_the_window_step_by_step() {
    let memory = Arc::new(SlotMemory::new(1 << 20));
    let slots = fixed(64, &memory).unwrap();
    let left = (1 << 20) - memory.used();
    let targets: Vec<u32> = [11, 12, 13, 14, 15]
        .map(|sixteenths| {
            let taken = left / 16 * sixteenths + 100;
            memory.charge(taken);
            let target = slots.target_highest();
            memory.release(taken);
            target
        })
        .into();
    assert_eq!(targets, [63, 31, 15, 7, 1]);
    assert_eq!(slots.target_highest(), 63);
    let single = fixed(1, &memory).unwrap();
    memory.charge(1 << 20);
    assert_eq!((single.target_highest(), slots.target_highest()), (0, 1));
    memory.release(1 << 20);
}
