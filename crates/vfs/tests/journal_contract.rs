//! The contract of every backend, on a file system in memory with a journal.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use vfs::contract::Fixture;
use vfs::journal::{Journaled, LOG_BYTES_MIN, Log};
use vfs::{Backend, Credentials, MemFs, MemOptions};

fn fixture() -> Fixture {
    let files = MemFs::new(&MemOptions { is_volatile: true, ..MemOptions::default() });
    let log = Arc::new(Log::create(files.identity(), ([5; 16], [6; 16]), LOG_BYTES_MIN, Arc::default()));
    let journal = Arc::new(Journaled::new(files, Arc::clone(&log)));
    Fixture { drive: Box::new(move |future| drive(future, &log)), ..Fixture::ready(journal) }
}

fn ordinary() -> Fixture {
    fixture().with_caller(Credentials { uid: 1500, gid: 1500, groups: Arc::from([]) })
}

/// Polls a future until it is ready, with a prompt device.
fn drive(mut future: Pin<&mut (dyn Future<Output = ()> + '_)>, log: &Log) {
    let mut context = Context::from_waker(Waker::noop());
    while future.as_mut().poll(&mut context).is_pending() {
        let Poll::Ready(Some(_)) = log.poll_write(&mut context) else { panic!("it waits for nothing") };
        log.written(true);
    }
}

vfs::contract_tests!(as_root, fixture);
vfs::contract_tests!(as_ordinary_caller, ordinary);
