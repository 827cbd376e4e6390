//! Soft mounts (nfs(5)): operations fail while there is no server, and succeed after its restart.

use client::config::Version;
use client::engine::CallError;
use client::error::{Error, OpError};
use client::fs::OpenOptions;
use client::results::{OpenMode, Stability};
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, World};

const CREATE: OpenOptions = OpenOptions {
    mode: OpenMode::BOTH,
    create: true,
    exclusive: None,
    truncate: false,
    permissions: 0o640,
    stability: Stability::Unstable,
};
const VERSIONS: [Version; 3] = [Version::V40, Version::V41, Version::V42];

/// Returns whether an operation failed because there was no server.
fn is_without_server<T>(result: &Result<T, Error>) -> bool {
    let Err(Error { cause: OpError::Call(error), .. }) = result else { return false };
    matches!(error, CallError::Unreachable(_) | CallError::TimedOut)
}

#[test]
fn operations_fail_while_there_is_no_server() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = world.mounted_soft(version, 2);
        peer.cut(&world, true);
        for _ in 0..5 {
            assert!(is_without_server(&world.run(fs.stat(b"missing"))), "{version:?}");
        }
        world.restart();
        peer.cut(&world, false);
        world.pass(LEASE);
        world.run(fs.stat(b"")).unwrap();
    }
}

#[test]
fn operations_fail_when_the_server_is_down_after_a_restart() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = world.mounted_soft(version, 2);
        // The client detects the loss of the session; its replacement then finds no server.
        peer.judge(|ops| match ops.iter().any(|op| [OpNum::EXCHANGE_ID, OpNum::SETCLIENTID].contains(op)) {
            true => Fate::Hold,
            false => Fate::Serve,
        });
        world.restart();
        for _ in 0..5 {
            assert!(is_without_server(&world.run(fs.open(b"file", &CREATE))), "{version:?}");
        }
        peer.release(&world);
        world.pass(LEASE);
        world.run(async { fs.open(b"file", &CREATE).await.unwrap().close().await.unwrap() });
    }
}
