//! Read-ahead of copies from another server.

use std::pin::Pin;

use super::*;

/// Runs the steps of a copy until it ends, or must wait.
struct Drive(Pin<Box<dyn Future<Output = Advanced>>>);

fn drive(scene: &Scene, offload: &Arc<Offload>) -> Drive {
    let (server, offload, now) = (Arc::clone(&scene.lab.server), Arc::clone(offload), scene.client.now());
    Drive(Box::pin(async move {
        loop {
            match server.shared.advance(&offload, now).await {
                Advanced::More => {}
                advanced => return advanced,
            }
        }
    }))
}

impl Drive {
    /// Returns the outcome; `None` while the copy waits for the source.
    fn step(&mut self) -> Option<Advanced> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(advanced) => Some(advanced),
            Poll::Pending => None,
        }
    }
}

fn all_fetches(scene: &Scene) -> Vec<Fetch> {
    std::iter::from_fn(|| scene.fetch()).collect()
}

/// Returns a range of the destination's bytes.
fn found(scene: &mut Scene, offset: u64, count: u32) -> Vec<u8> {
    use protocol::nfs4::ops::read::ReadArgs;
    let read = Op::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset, count });
    let OpResult::Read(read) = scene.lab.last(vec![putfh(scene.to.0), read]) else { panic!() };
    read.into_result().unwrap().data.to_vec()
}

/// Asserts that the beginning and the end of each piece are right.
fn check(scene: &mut Scene, size: u64) {
    for at in (0..size).step_by(MIB as usize / 2).chain([size - 8]) {
        let length = (size - at).min(8);
        assert_eq!(found(scene, at, 8), bytes(at, length), "at {at}");
    }
}

#[test]
fn several_reads_are_under_way_and_are_answered_in_any_order() {
    let mut scene = scene();
    let size = 20 * MIB + 5;
    let (_, offload) = scene.begin(size);
    let mut copy = drive(&scene, &offload);
    assert_eq!(copy.step(), None);
    let mut fetches = all_fetches(&scene);
    let offsets: Vec<_> = fetches.iter().map(|fetch| fetch.offset / MIB).collect();
    assert_eq!(offsets, (1..=8).collect::<Vec<_>>(), "consecutive");
    loop {
        // The last one first: nothing is written before the preceding bytes.
        while let Some(fetch) = fetches.pop() {
            let fetched = of_size(&fetch, size, scene.client.now());
            fetch.answer(Ok(fetched));
        }
        let advanced = copy.step();
        fetches = all_fetches(&scene);
        if advanced.is_some() {
            break;
        }
        assert!(fetches.len() <= 8);
    }
    assert!(fetches.is_empty());
    let OffloadInfo::Ok(ending) = scene.ending() else { panic!("it failed") };
    assert_eq!((ending.count, scene.size()), (size, size));
    check(&mut scene, size);
    assert_eq!(scene.lab.server.shared.fetches.count(), 0);
}

#[test]
fn read_ahead_stops_at_end_of_copy_and_source() {
    for (count, size) in [(2 * MIB + 7, 40 * MIB), (0, 2 * MIB + 10)] {
        let mut scene = scene();
        let copy = CopyArgs { source_offset: 3, ..args(&scene, count) };
        let mut flight = scene.ask(copy);
        scene.serve(size);
        assert_eq!(ok(&mut flight).response.count, MIB);
        let offload = scene.lab.server.shared.state.next_offload(true).expect("the driver must run it");
        let mut copy = drive(&scene, &offload);
        assert_eq!(copy.step(), None);
        let ranges: Vec<_> = all_fetches(&scene).iter().map(|fetch| (fetch.offset, fetch.count)).collect();
        assert_eq!(ranges, [(MIB + 3, GRANTED), (2 * MIB + 3, 7)]);
    }
}

#[test]
fn rereads_missing_part_of_short_read() {
    let mut scene = scene();
    let size = 6 * MIB + 1;
    let (_, offload) = scene.begin(size);
    let mut copy = drive(&scene, &offload);
    let mut asked = Vec::new();
    while copy.step().is_none() {
        for fetch in all_fetches(&scene) {
            asked.push((fetch.offset, fetch.count));
            // RFC 8881 §18.22.3: "The server may return fewer bytes than requested"; here, less than a piece.
            let length = if fetch.count > 1000 { u64::from(fetch.count) - 1000 } else { fetch.count.into() };
            let is_end = fetch.offset + length == size;
            let content = vec![Extent::Data(bytes(fetch.offset, length))];
            let at = scene.client.now();
            fetch.answer(Ok(Fetched { content, is_end, granted: GRANTED, size: None, at }));
        }
    }
    assert!(asked.contains(&(2 * MIB - 1000, 1000)), "{asked:?}");
    assert!(asked.iter().all(|(offset, _)| asked.iter().filter(|(other, _)| other == offset).count() == 1));
    let OffloadInfo::Ok(ending) = scene.ending() else { panic!("it failed") };
    assert_eq!((ending.count, scene.size()), (size, size));
    check(&mut scene, size);
}

#[test]
fn learns_read_size_of_source() {
    let mut scene = scene();
    let size = 2 * MIB;
    let synchronous = CopyArgs { synchronous: true, ..args(&scene, 0) };
    let mut flight = scene.ask(synchronous);
    let mut counts = Vec::new();
    let answer = loop {
        for fetch in all_fetches(&scene) {
            counts.push(fetch.count);
            let length = u64::from(fetch.count.min(64 << 10));
            let content = vec![Extent::Data(bytes(fetch.offset, length))];
            let is_end = fetch.offset + length == size;
            let size = fetch.wants_size.then_some(size);
            let at = scene.client.now();
            fetch.answer(Ok(Fetched { content, is_end, granted: 64 << 10, size, at }));
        }
        if let Some(answer) = flight.poll() {
            break answer;
        }
    };
    assert_eq!(answer.status, Status::OK);
    assert_eq!(counts[0], 1 << 20, "the source's limit is unknown at first");
    assert_eq!((counts.len(), &counts[1..]), (32, &[64 << 10; 31][..]));
    check(&mut scene, size);
}

#[test]
fn stalled_copy_holds_no_read_ahead() {
    let mut scene = scene();
    let size = 20 * MIB;
    let (_, offload) = scene.begin(size);
    let count = |scene: &Scene| scene.lab.server.shared.fetches.count();
    scene.backend.add(Rule::on(Method::Write, Fault::Fail(vfs::Error::Later)).times(1));
    let mut copy = drive(&scene, &offload);
    assert_eq!(copy.step(), None);
    let fetches = all_fetches(&scene);
    assert_eq!((fetches.len(), count(&scene)), (8, 8));
    for fetch in fetches {
        let fetched = of_size(&fetch, size, scene.client.now());
        fetch.answer(Ok(fetched));
    }
    assert_eq!(count(&scene), 8, "untaken replies count");
    assert_eq!((copy.step(), count(&scene)), (Some(Advanced::Later), 0));
    // The source is lost.
    let mut copy = drive(&scene, &offload);
    assert_eq!(copy.step(), None);
    let fetches = all_fetches(&scene);
    assert_eq!((fetches.len(), fetches[0].offset), (8, MIB));
    drop(fetches);
    assert_eq!((copy.step(), count(&scene)), (Some(Advanced::Later), 0));
    // The next READ shows whether it can be read from again.
    let mut copy = drive(&scene, &offload);
    assert_eq!(copy.step(), None);
    let fetches = all_fetches(&scene);
    let asked: Vec<_> = fetches.iter().map(|fetch| (fetch.offset, fetch.wants_size)).collect();
    assert_eq!(asked, [(MIB, true)]);
}

#[test]
fn finished_copy_holds_no_read_ahead_before_callback_reply() {
    for is_cancelled in [false, true] {
        let mut scene = scene();
        let (stateid, offload) = scene.begin(20 * MIB);
        let mut copy = drive(&scene, &offload);
        assert_eq!(copy.step(), None);
        let mut fetches = all_fetches(&scene);
        assert_eq!(fetches.len(), 8);
        if is_cancelled {
            let cancel = vec![putfh(scene.to.0), Op::OffloadCancel(OffloadArgs { stateid })];
            let mut cancelled = scene.client.start(5, cancel);
            assert!(cancelled.poll().is_none(), "a step is under way");
            assert_eq!(copy.step(), Some(Advanced::Done));
            assert_eq!(cancelled.poll().unwrap().status, Status::OK);
        } else {
            scene.make_read_only();
            let first = fetches.remove(0);
            let fetched = of_size(&first, 20 * MIB, scene.client.now());
            first.answer(Ok(fetched));
            assert_eq!(copy.step(), Some(Advanced::Done), "it cannot be written");
        }
        let context = Context::from_waker(Waker::noop());
        assert!(fetches.iter().all(|fetch| fetch.poll_unwanted(&context).is_ready()));
        drop(fetches);
        assert_eq!(scene.lab.server.shared.fetches.count(), 0);
    }
}

#[test]
fn late_copy_continues_in_background() {
    for synchronous in [false, true] {
        let mut scene = scene();
        let size = 40 * MIB;
        let mut flight = scene.ask(CopyArgs { synchronous, ..args(&scene, 0) });
        scene.client.seconds += 9;
        scene.serve(size);
        if synchronous {
            assert!(flight.poll().is_none(), "in time");
            scene.client.seconds += 1;
            scene.serve(size);
        }
        let done = ok(&mut flight).response;
        assert_eq!(
            (done.count, done.callback_id.is_empty()),
            (if synchronous { 2 } else { 1 } * MIB, synchronous)
        );
        assert!(!synchronous || scene.lab.server.shared.fetches.count() <= 7);
        drop(all_fetches(&scene));
        assert_eq!(scene.lab.server.shared.fetches.count(), 0);
    }
}

#[test]
fn synchronous_copies_have_their_own_limit() {
    let mut scene = scene();
    let flights: Vec<_> = (0..8).map(|_| scene.ask(args(&scene, 0))).collect();
    let ops = scene.ops(args(&scene, 0));
    assert_eq!(scene.client.status(ops.clone()), Status::DELAY);
    drop(flights);
    let mut again = scene.client.start(20, ops);
    assert!(again.poll().is_none(), "it waits for the source");
}

#[test]
fn holes_of_the_source_become_holes() {
    use protocol::nfs4::attributes::number;
    let mut scene = scene();
    let mut flight = scene.ask(CopyArgs { destination_offset: 5, ..args(&scene, 0) });
    let fetch = scene.fetch().unwrap();
    let content = vec![
        Extent::Data(bytes(0, 10)),
        Extent::Hole(100),
        Extent::Data(bytes(110, 10)),
        Extent::Hole(MIB / 2),
    ];
    let (size, at) = (120 + MIB / 2, scene.client.now());
    fetch.answer(Ok(Fetched { content, is_end: true, granted: GRANTED, size: Some(size), at }));
    assert_eq!(ok(&mut flight).response.count, size);
    let expected = [&[0; 5][..], &bytes(0, 10), &[0; 100], &bytes(110, 10), &[0; 1000]].concat();
    assert_eq!(found(&mut scene, 0, expected.len() as u32), expected);
    let reported = scene.lab.attributes(&["export", "destination"], &[number::SIZE, number::SPACE_USED]);
    assert_eq!(reported.size, Some(size + 5));
    assert!(reported.space_used.unwrap() < 1 << 16, "{reported:?}");
}

#[test]
fn writes_zeros_without_sparse_files() {
    let mut scene = scene();
    scene.backend.add(Rule::on(Method::WriteHole, Fault::Fail(vfs::Error::NotSupported)));
    let mut flight = scene.ask(args(&scene, 0));
    let (content, at) = (vec![Extent::Hole(MIB)], scene.client.now());
    scene.fetch().unwrap().answer(Ok(Fetched {
        content,
        is_end: true,
        granted: GRANTED,
        size: Some(MIB),
        at,
    }));
    assert_eq!(ok(&mut flight).response.count, MIB);
    assert_eq!((scene.size(), found(&mut scene, MIB - 3, 10)), (MIB, vec![0; 3]));
}

#[test]
fn reports_bytes_written_before_an_error() {
    let mut scene = scene();
    scene.backend.add(Rule::on(Method::Write, Fault::Fail(vfs::Error::NoSpace)).after(1));
    let mut flight = scene.ask(CopyArgs { synchronous: true, ..args(&scene, 0) });
    let content = vec![Extent::Data(bytes(0, 10)), Extent::Data(bytes(10, 10))];
    let at = scene.client.now();
    scene.fetch().unwrap().answer(Ok(Fetched {
        content,
        is_end: true,
        granted: GRANTED,
        size: Some(20),
        at,
    }));
    // The next step repeats the READ, and gets the error.
    assert!(flight.poll().is_none());
    scene.serve(20);
    assert_eq!(ok(&mut flight).response.count, 10);
    assert_eq!(found(&mut scene, 0, 100), bytes(0, 10));
}
