//! The end of a client.

use std::time::Duration;

use client::config::Version;
use client::fs::OpenOptions;

use crate::world::World;

/// A server that has restarted waits for its clients to reclaim; other clients' opens wait with it.
#[test]
fn a_client_that_leaves_a_restarted_server_is_not_waited_for() {
    for version in [Version::V41, Version::V42] {
        let world = World::new();
        let (fs, _) = world.mounted(version);
        let make = async |fs: &client::fs::FileSystem, name: &[u8]| {
            fs.open(name, &OpenOptions::CREATE).await.unwrap().close().await.unwrap();
        };
        world.run(make(&fs, b"file"));
        world.restart();
        let (other, _) = world.mounted(version);
        world.run(fs.client().close()).unwrap();
        let before = world.now();
        world.run(make(&other, b"other"));
        assert!(world.now() - before < Duration::from_secs(1), "{version:?}: the open has waited");
    }
}
