//! Locks that are kept on this machine (`local_lock=`, `nolock`): the server gets no call of NLM or NSM for them.

use std::pin::pin;
use std::time::Duration;

use client::errno::Errno;
use client::locks::LockKind::{Exclusive, Shared};
use client::locks::LockOwner;
use client::url::LocalLock;
use protocol::{nlm, nsm};

use crate::locks::{ONE, is_free, open, range};
use crate::world::{Peer, World};

const TWO: LockOwner = LockOwner::Process(2);

/// Returns the number of calls to the lock manager and the status monitor.
fn calls(peer: &Peer) -> usize {
    let programs = [nlm::PROGRAM, nsm::PROGRAM];
    peer.calls.borrow().iter().filter(|(program, _)| programs.contains(program)).count()
}

#[test]
fn the_server_knows_only_locks_of_the_other_kind() {
    for (local_lock, fcntl_is_local, flock_is_local) in [
        (LocalLock::All, true, true),
        (LocalLock::Posix, true, false),
        (LocalLock::Flock, false, true),
        (LocalLock::None, false, false),
    ] {
        let world = World::new();
        let clients =
            [0; 2].map(|_| world.mounted_with(crate::VERSION, |config| config.local_lock = local_lock));
        let [first, second] = clients.each_ref().map(|(fs, _)| open(&world, fs));
        let again = open(&world, &clients[0].0);
        let calls = || clients.iter().map(|(_, peer)| calls(peer)).sum::<usize>();
        let at_server = || world.server().counts().locks;

        world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
        assert_eq!((calls() == 0, at_server() == 0), (fcntl_is_local, fcntl_is_local), "{local_lock:?}");
        // Processes of this machine exclude each other either way, and wait for each other.
        let refused = world.run(again.try_lock(TWO, range(5, 1), Shared)).unwrap_err();
        assert_eq!(refused.errno(), Errno::EAGAIN);
        assert!(!is_free(&world, &again, TWO, range(5, 1)) && is_free(&world, &again, TWO, range(10, 1)));
        let elsewhere = world.run(second.try_lock(ONE, range(0, 10), Exclusive));
        assert_eq!(elsewhere.is_ok(), fcntl_is_local, "{local_lock:?}: {elsewhere:?}");
        {
            let mut waiting = pin!(again.lock(TWO, range(5, 1), Exclusive));
            assert!(world.run_for(Duration::from_secs(1), waiting.as_mut()).is_none());
            world.run(first.unlock(ONE, range(0, 10))).unwrap();
            world.run(waiting).unwrap();
        }
        world.run(again.unlock(TWO, range(5, 1))).unwrap();
        world.run(second.unlock(ONE, range(0, 10))).unwrap();
        assert_eq!((calls() == 0, at_server()), (fcntl_is_local, 0), "{local_lock:?}");

        let before = calls();
        world.run(first.flock(Exclusive)).unwrap();
        assert_eq!((calls() == before, at_server() == 0), (flock_is_local, flock_is_local), "{local_lock:?}");
        assert_eq!(world.run(again.try_flock(Shared)).unwrap_err().errno(), Errno::EAGAIN);
        let elsewhere = world.run(second.try_flock(Exclusive));
        assert_eq!(elsewhere.is_ok(), flock_is_local, "{local_lock:?}: {elsewhere:?}");
        // Closing unlocks.
        world.run(first.close()).unwrap();
        world.run(again.flock(Exclusive)).unwrap();
        world.run(again.close()).unwrap();
        world.run(second.close()).unwrap();
        for (fs, _) in &clients {
            world.run(fs.client().close()).unwrap();
        }
        assert_eq!((calls() == before, at_server()), (flock_is_local, 0), "{local_lock:?}");
    }
}
