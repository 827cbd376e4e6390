//! Tests of client records over restarts, and a state log in memory.

use super::super::slot_memory::SlotMemory;
use super::*;
use crate::state::tables::v40_client::CallbackClient;
use crate::state::{Principal, State};

impl State {
    /// Returns the records of version 4.1 clients of the superuser with these owners and verifiers.
    pub(crate) fn records_of(known: &[(&'static str, u8)]) -> Records {
        records(known, |client| client)
    }

    /// As [`Self::records_of`], for version 4.0.
    pub(crate) fn records_of_0(known: &[(&'static str, u8)]) -> Records {
        records(known, |client| client.into_v40(CallbackClient::default()))
    }
}

fn records(known: &[(&'static str, u8)], made: impl Fn(Client) -> Client) -> Records {
    let entry = |(owner, verifier): &(&'static str, u8)| {
        let slots = Arc::new(SlotMemory::new(0));
        let (owner, root) = (Bytes::from_static(owner.as_bytes()), Principal::System(0));
        let client = made(Client::new(1, owner, [*verifier; 8], root, slots, Duration::ZERO));
        let record = ClientRecord::of(&client).expect("a short principal");
        (Name::of(&client).key().into(), xdr::to_bytes(&record))
    };
    Records { entries: known.iter().map(entry).collect(), ..Records::default() }
}

/// A log in memory, which outlives its servers.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog(Mutex<LogContent>);

#[derive(Debug, Default)]
struct LogContent {
    changes: Vec<(Bytes, Option<Bytes>)>,
    stable: u64,
    /// Changes become stable only by [`MemoryLog::sync`].
    is_slow: bool,
    /// There is no room for more keys.
    is_full: bool,
    waiting: Vec<std::task::Waker>,
}

impl MemoryLog {
    /// Makes changes stable only by [`Self::sync`] from now on.
    pub(crate) fn slow_down(&self) {
        self.0.lock().is_slow = true;
    }

    /// Sets whether the log has no room for more keys.
    pub(crate) fn fill(&self, is_full: bool) {
        self.0.lock().is_full = is_full;
    }

    /// Returns the bytes of all values.
    pub(crate) fn value_bytes(self: &Arc<Self>) -> usize {
        self.records().entries.iter().map(|(_, value)| value.len()).sum()
    }

    /// Makes all changes stable.
    pub(crate) fn sync(&self) {
        let mut content = self.0.lock();
        content.stable = content.changes.len() as u64;
        let waiting = std::mem::take(&mut content.waiting);
        drop(content);
        waiting.into_iter().for_each(std::task::Waker::wake);
    }

    /// Returns the number of changes made.
    pub(crate) fn changes(&self) -> usize {
        self.0.lock().changes.len()
    }

    /// Returns the records that the next server reads.
    pub(crate) fn records(self: &Arc<Self>) -> Records {
        let mut entries = HashMap::new();
        for (key, value) in &self.0.lock().changes {
            match value {
                Some(value) => entries.insert(key.clone(), value.clone()),
                None => entries.remove(key),
            };
        }
        let log: Arc<dyn StateLog> = self.clone();
        Records { log: Some(log), entries: entries.into_iter().collect(), ..Records::default() }
    }

    /// Returns the number of client records.
    pub(crate) fn clients(self: &Arc<Self>) -> usize {
        self.records().entries.iter().filter(|(key, _)| Name::parse(key).is_some()).count()
    }
}

impl StateLog for MemoryLog {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        let mut content = self.0.lock();
        content.changes.push((Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice)));
        let number = content.changes.len() as u64;
        if !content.is_slow {
            content.stable = number;
        }
        number
    }

    fn is_written(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        !self.0.lock().is_full
    }

    fn stable(&self) -> u64 {
        self.0.lock().stable
    }

    fn reached(&self, number: u64, _: Thread) -> Op<'_, ()> {
        Op::pending(std::future::poll_fn(move |context| {
            let mut content = self.0.lock();
            if content.stable >= number {
                return std::task::Poll::Ready(Ok(()));
            }
            content.waiting.push(context.waker().clone());
            std::task::Poll::Pending
        }))
    }

    /// Changes become stable by [`MemoryLog::sync`].
    fn push(&self) {}
}

#[test]
fn client_records_are_encoded_and_parsed() {
    let records = State::records_of(&[("a", 7)]);
    let (key, value) = &records.entries[0];
    let (name, record) = (Name::parse(key).unwrap(), xdr::from_bytes::<ClientRecord>(value.clone()).unwrap());
    assert_eq!(name.key(), **key);
    assert_eq!(xdr::to_bytes(&record), *value);
    let mut lossy = record.clone();
    let file = |fileid| FileKey { fsid: (u64::MAX, 1), fileid };
    assert!(lossy.lose(file(1)) && !lossy.lose(file(1)), "once");
    let again: ClientRecord = xdr::from_bytes(xdr::to_bytes(&lossy)).unwrap();
    assert_eq!(again, lossy);
    assert!(!again.may_reclaim(file(1)) && again.may_reclaim(file(2)));
    assert!(lossy.acknowledge() && !lossy.acknowledge());
    assert_eq!(lossy, record);
}

#[test]
fn foreign_keys_are_unchanged() {
    let name = State::records_of(&[("a", 1)]).entries.remove(0).0;
    for key in [&b""[..], b"c", b"c\x02a", b"x\x01a"] {
        assert_eq!(Name::parse(&Bytes::copy_from_slice(key)), None);
    }
    let foreign = (Bytes::from_static(b"x\x01a"), Bytes::from_static(b"?"));
    let broken = (name, Bytes::from_static(b"?"));
    let disk = Arc::new(MemoryLog::default());
    let log: Arc<dyn StateLog> = disk.clone();
    let lease = Duration::from_secs(90);
    let records = Records { log: Some(log), entries: vec![foreign, broken], ..Records::default() };
    let recovery = Recovery::new(records, lease, lease);
    assert!(!recovery.in_grace(lease), "an invalid record lets no client reclaim");
    assert_eq!(disk.changes(), 3, "the broken one is removed, the lease and the monitor's state are written");
}
