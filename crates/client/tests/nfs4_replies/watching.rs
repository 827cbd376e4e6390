//! GET_DIR_DELEGATION of a server that is not ready.

use std::cell::Cell;
use std::rc::Rc;

use client::DirectoryWatch;
use client::config::{Config, Version};
use protocol::nfs4::compound::OpResult;
use protocol::nfs4::ops::delegation::DirDelegation;
use protocol::nfs4::types::{OpNum, Status};

use crate::link::{Link, root};
use crate::lost_replies::{config_41, has, results};
use crate::lying::{handle, put, sequence};

/// Requests that fail.
const FAILURES: usize = 3;

#[test]
fn a_delegation_of_a_directory_is_requested_until_the_grace_period_ends() {
    for status in [Status::GRACE, Status::DELAY] {
        let link = Link::new();
        let client = link.connect(Config { version: Some(Version::V41), ..config_41() }).unwrap();
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        link.answer(move |call| {
            assert!(has(call, OpNum::GET_DIR_DELEGATION), "{:?}", call.header);
            count.set(count.get() + 1);
            let (outcome, status) = match count.get() > FAILURES {
                true => (Ok(DirDelegation::Unavailable(false)), Status::OK),
                false => (Err(status), status),
            };
            let result = OpResult::GetDirDelegation(outcome.into());
            results(call, status, vec![sequence(call, |_| {}), put(), result])
        });
        let outcomes = link.run(client.watch_directories(&root(), &[handle()]));
        assert_eq!(outcomes, [Ok(DirectoryWatch::Unavailable)], "{status:?}");
        assert_eq!(asked.get(), FAILURES + 1);
    }
}
