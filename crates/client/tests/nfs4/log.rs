//! The server's state log in memory: the next server's knowledge of clients.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use server::StateLog;
use vfs::{Op, Thread};

/// A map whose changes are stable at once.
#[derive(Debug, Default)]
pub(crate) struct Log {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    changes: u64,
}

impl Log {
    pub(crate) fn entries(&self) -> Vec<(Bytes, Bytes)> {
        let content = self.content.lock();
        content.map.iter().map(|(key, value)| (key.clone().into(), value.clone().into())).collect()
    }
}

impl StateLog for Log {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        let Content { map, changes } = &mut *self.content.lock();
        match value {
            Some(value) => _ = map.insert(key.to_vec(), value.to_vec()),
            None => _ = map.remove(key),
        }
        *changes += 1;
        *changes
    }

    fn is_written(&self) -> bool {
        true
    }

    fn stable(&self) -> u64 {
        self.content.lock().changes
    }

    fn reached(&self, _: u64, _: Thread) -> Op<'_, ()> {
        Op::ok(())
    }

    fn push(&self) {}
}
