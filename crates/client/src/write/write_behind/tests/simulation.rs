//! Random programs against a model server that keeps only stable data over a crash.

use proptest::prelude::*;

use super::*;

const SIZE: usize = 1 << 16;

#[derive(Clone, Debug)]
enum Op {
    Write(usize, usize, Stability),
    Sync,
    Truncate(usize),
    /// Sends some requests.
    Send(usize),
    /// The server executes a request: this many eighths of a WRITE, and perhaps more stable than requested.
    Execute(usize, u64, bool),
    /// A reply arrives.
    Reply(usize),
    /// A reply is lost; the transport sends the request again.
    Lose(usize),
    /// A request ends without being executed.
    Retry(usize),
    Crash,
    ShortMemory(bool, bool, u64),
    Tick(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, index) = (|| 0..SIZE, || 0..64_usize);
    let len = prop_oneof![1..200_usize, 1..SIZE / 2];
    let stability = prop_oneof![
        8 => Just(Stability::Unstable),
        1 => Just(Stability::DataSync),
        1 => Just(Stability::FileSync),
    ];
    let memory = (any::<bool>(), any::<bool>(), 0..SIZE as u64);
    prop_oneof![
        8 => (at(), len, stability).prop_map(|(at, len, stability)| Op::Write(at, len, stability)),
        2 => Just(Op::Sync),
        1 => at().prop_map(Op::Truncate),
        6 => (1..8_usize).prop_map(Op::Send),
        8 => (index(), 1..16_u64, any::<bool>()).prop_map(|(index, part, more)| Op::Execute(index, part, more)),
        8 => index().prop_map(Op::Reply),
        1 => index().prop_map(Op::Lose),
        1 => index().prop_map(Op::Retry),
        1 => Just(Op::Crash),
        2 => memory.prop_map(|(flush, commit, clean)| Op::ShortMemory(flush, commit, clean)),
        2 => (0..3000_u64).prop_map(Op::Tick),
    ]
}

enum Reply {
    Written(Written),
    Committed(Verifier),
}

/// Each byte holds the number of the write that it comes from, so that it only grows.
struct Simulation {
    world: World,
    model: Vec<u8>,
    /// The server's content in memory, and its content after a crash.
    content: Vec<u8>,
    stable: Vec<u8>,
    verifier: u8,
    sent: Vec<WriteAction>,
    executed: Vec<(WriteAction, Reply)>,
    syncs: Vec<(SyncTicket, Vec<u8>)>,
    write: u8,
}

impl Simulation {
    fn new() -> Self {
        let empty = || vec![0; SIZE];
        Self {
            world: World::new(),
            model: empty(),
            content: empty(),
            stable: empty(),
            verifier: 1,
            sent: Vec::new(),
            executed: Vec::new(),
            syncs: Vec::new(),
            write: 0,
        }
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Write(at, len, stability) => self.write(at, len, stability),
            Op::Sync => {
                let ticket = self.world.writes.sync(FILE, EVERYTHING);
                self.syncs.push((ticket, self.model.clone()));
            }
            Op::Truncate(at) => self.truncate(at),
            Op::Send(count) => self.send(count),
            Op::Execute(index, part, more) => self.execute(index, part, more),
            Op::Reply(index) => self.reply(index),
            Op::Lose(index) if !self.executed.is_empty() => {
                let (action, _) = self.executed.swap_remove(index % self.executed.len());
                self.sent.push(action);
            }
            Op::Retry(index) if !self.sent.is_empty() => {
                let writes = &mut self.world.writes;
                match self.sent.swap_remove(index % self.sent.len()) {
                    WriteAction::Write { id, .. } => writes.handle_written(id, Err(RequestError::Retry)),
                    WriteAction::Commit { id, .. } => writes.handle_committed(id, Err(RequestError::Retry)),
                }
            }
            Op::Lose(_) | Op::Retry(_) => {}
            Op::Crash => {
                self.content.clone_from(&self.stable);
                self.verifier += 1;
            }
            Op::ShortMemory(flush, commit, clean) => {
                self.world.writes.give_up(Demand { clean, flush, commit, ..Demand::default() });
            }
            Op::Tick(milliseconds) => self.world.now += Duration::from_millis(milliseconds),
        }
    }

    fn write(&mut self, at: usize, len: usize, stability: Stability) {
        self.write += 1;
        let range = at..(at + len).min(SIZE);
        self.model[range.clone()].fill(self.write);
        self.world.write_with(FILE, at as u64, &vec![self.write; range.len()], stability);
    }

    fn truncate(&mut self, at: usize) {
        let ticket = self.world.writes.start_truncate(FILE, at as u64);
        self.model[at..].fill(0);
        self.syncs.iter_mut().for_each(|(_, model)| model[at..].fill(0));
        while !ticket.is_done() {
            self.execute(0, 8, false);
            self.reply(0);
        }
        assert!(self.world.poll().is_none(), "nothing is sent during a truncation");
        self.content[at..].fill(0);
        self.stable[at..].fill(0);
        self.world.writes.end_truncate(FILE);
    }

    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let Some(action) = self.world.poll() else { break };
            let under_way = self.sent.iter().chain(self.executed.iter().map(|(action, _)| action));
            let (new, overlap) = (written_range(&action), "two WRITEs of the same bytes are under way");
            assert!(
                under_way.map(written_range).all(|old| old.end <= new.start || new.end <= old.start),
                "{overlap}"
            );
            self.sent.push(action);
        }
    }

    fn execute(&mut self, index: usize, part: u64, more: bool) {
        if self.sent.is_empty() {
            return;
        }
        let action = self.sent.swap_remove(index % self.sent.len());
        let reply = match &action {
            WriteAction::Write { offset, data, stability, .. } => {
                let data = data.concat();
                let count = (data.len() as u64 * part / 8).clamp(1, data.len() as u64) as usize;
                let range = *offset as usize..*offset as usize + count;
                self.content[range.clone()].copy_from_slice(&data[..count]);
                let stability = if more { Stability::FileSync } else { *stability };
                if stability > Stability::Unstable {
                    self.stable[range].copy_from_slice(&data[..count]);
                }
                Reply::Written(Written { count: count as u32, stability, verifier: [self.verifier; 8] })
            }
            WriteAction::Commit { offset, count, .. } => {
                let end = if *count == 0 { SIZE } else { *offset as usize + *count as usize };
                let range = *offset as usize..end.min(SIZE);
                self.stable[range.clone()].copy_from_slice(&self.content[range]);
                Reply::Committed([self.verifier; 8])
            }
        };
        self.executed.push((action, reply));
    }

    fn reply(&mut self, index: usize) {
        if self.executed.is_empty() {
            return;
        }
        let (action, reply) = self.executed.swap_remove(index % self.executed.len());
        match (action, reply) {
            (WriteAction::Write { id, .. }, Reply::Written(written)) => {
                self.world.writes.handle_written(id, Ok(written));
            }
            (WriteAction::Commit { id, .. }, Reply::Committed(verifier)) => {
                self.world.writes.handle_committed(id, Ok(verifier));
            }
            _ => panic!("replies fit their requests"),
        }
    }

    fn check(&mut self) {
        for piece in self.world.writes.pages_mut().read(FILE, 0..SIZE as u64) {
            if let Piece::Data { offset, data } = piece {
                let at = offset as usize;
                assert!(data[..] == self.model[at..at + data.len()], "the program reads what it wrote");
            }
        }
        let stable = &self.stable;
        self.syncs.retain(|(ticket, model)| {
            if ticket.is_done() {
                let lost = model.iter().zip(stable).position(|(written, stable)| stable < written);
                assert_eq!(lost, None, "fsync returned, but this byte is not stable");
            }
            !ticket.is_done()
        });
        let dirty = self.world.used(Kind::Dirty) + self.world.used(Kind::Uncommitted);
        assert!(dirty >= self.world.writes.unstable_bytes(FILE), "unstable data are accounted");
    }

    /// Repairs the server, and calls fsync.
    fn finish(&mut self) {
        let ticket = self.world.writes.sync(FILE, EVERYTHING);
        self.syncs.push((ticket, self.model.clone()));
        for _ in 0..10_000 {
            self.check();
            self.send(usize::MAX);
            if self.sent.is_empty() && self.executed.is_empty() {
                if self.syncs.is_empty() {
                    break;
                }
                self.world.now = self.world.writes.poll_timeout().expect("a task waits for no event");
            }
            self.execute(0, 8, false);
            self.reply(0);
        }
        assert!(self.syncs.is_empty(), "fsync hangs");
    }
}

/// Returns the range of a WRITE; nothing for a COMMIT.
fn written_range(action: &WriteAction) -> Range<u64> {
    match action {
        WriteAction::Write { offset, data, .. } => {
            *offset..*offset + data.iter().map(|data| data.len() as u64).sum::<u64>()
        }
        WriteAction::Commit { .. } => 0..0,
    }
}

proptest! {
    #[test]
    fn synced_data_survive_crashes(ops in prop::collection::vec(op(), 1..200)) {
        let mut simulation = Simulation::new();
        for op in ops {
            simulation.play(op);
            simulation.check();
        }
        simulation.finish();
        prop_assert!(simulation.stable == simulation.model, "everything is on stable storage");
        let world = &mut simulation.world;
        prop_assert_eq!(world.writes.in_flight(), 0);
        prop_assert_eq!(world.used(Kind::Dirty) + world.used(Kind::Uncommitted), 0);
        world.writes.give_up(Demand { clean: u64::MAX, ..Demand::default() });
        prop_assert_eq!(world.user.used(), 0);
        prop_assert!(world.writes.files.is_empty());
    }
}
