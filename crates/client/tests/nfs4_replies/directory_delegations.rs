//! Servers without delegations of directories.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use client::config::{Caches, Config, Version};
use client::fs::FileSystem;
use protocol::nfs4::compound::OpResult;
use protocol::nfs4::types::{OpNum, Status};

use crate::link::{Answer, Link, root};
use crate::lost_replies::{config_41, has, results};
use crate::lying::{put, sequence};

/// Longer than the timeout of attributes of directories.
const LATER: Duration = Duration::from_secs(61);
const LOOKS: usize = 20;

/// Uses the root directory of a mount, whose server answers GET_DIR_DELEGATION with this status. Returns the numbers of these and of
/// other compounds with GETATTR. The server has not seen the former: the next request in the slot loses the session, and is repeated.
fn asked(status: Status) -> (usize, usize) {
    let link = Link::new();
    let caches = Caches { delegations: true, ..Caches::default() };
    let client = link.connect(Config { version: Some(Version::V42), caches, ..config_41() }).unwrap();
    let (fs, _) = link.run(FileSystem::mount(client.clone(), root(), b"/export")).unwrap();
    let (refused, others) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (in_refused, in_others) = (Rc::clone(&refused), Rc::clone(&others));
    link.answer(move |call| {
        if has(call, OpNum::GET_DIR_DELEGATION) {
            in_refused.set(in_refused.get() + 1);
            let result = OpResult::GetDirDelegation(Err(status).into());
            return results(call, status, vec![sequence(call, |_| {}), put(), result]);
        }
        in_others.set(in_others.get() + usize::from(has(call, OpNum::GETATTR)));
        Answer::Serve
    });
    let started = link.now();
    for _ in 0..LOOKS {
        link.run(client.engine().sleep(LATER));
        link.run(fs.mounted().root().attributes(&root())).unwrap();
    }
    assert_eq!(link.now() - started, LATER * LOOKS as u32, "no look waits until the server grants one");
    (refused.get(), others.get())
}

#[test]
fn a_server_without_the_operation_is_asked_once() {
    for status in [Status::NOTSUPP, Status::OP_ILLEGAL] {
        assert_eq!(asked(status), (1, LOOKS + 1), "{status:?}");
    }
}

#[test]
fn another_refusal_is_not_final() {
    for status in [Status::DIRDELEG_UNAVAIL, Status::ACCESS, Status::INVAL, Status::DELAY, Status::GRACE] {
        let (refused, others) = asked(status);
        assert!((2..LOOKS).contains(&refused) && others == LOOKS + refused, "{status:?}: {refused} {others}");
    }
}
