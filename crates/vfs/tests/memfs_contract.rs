//! The contract of every backend, on the file system in memory.

use std::sync::Arc;

use vfs::contract::Fixture;
use vfs::{Credentials, MemFs, MemOptions};

fn fixture() -> Fixture {
    Fixture::ready(Arc::new(MemFs::new(&MemOptions::default())))
}

fn ordinary() -> Fixture {
    fixture().with_caller(Credentials { uid: 1500, gid: 1500, groups: Arc::from([]) })
}

vfs::contract_tests!(as_root, fixture);
vfs::contract_tests!(as_ordinary_caller, ordinary);
