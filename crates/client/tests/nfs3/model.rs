//! Random operations through the caches against a model of a POSIX file.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::SetAttributes;
use client::config::{Caches, Config, Version};
use client::engine::CallError;
use client::error::OpError;
use client::fs::inode::{Inode, Mount, OpenFile, OpenFlags};
use client::results::Creation;
use client::url::Transport;
use proptest::prelude::*;

use crate::link::{Link, config, root};

const SIZE: u64 = 1 << 16;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Write(u64, u64),
    Read(u64, u64),
    Truncate(u64),
    Stat,
    Sync,
    Reopen,
    /// The caches are lost, but not the block store.
    Remount,
    /// Time passes, so that aged data are sent.
    Wait(u64),
    /// Another client opens the file after this one closed it, reads all, and writes.
    Other(u64, u64),
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let (at, length) = (|| 0..SIZE, || prop_oneof![1..100_u64, 1..SIZE / 2]);
    prop_oneof![
        8 => (at(), length()).prop_map(|(at, length)| Op::Write(at, length)),
        6 => (at(), length()).prop_map(|(at, length)| Op::Read(at, length)),
        2 => at().prop_map(Op::Truncate),
        2 => Just(Op::Stat),
        1 => Just(Op::Sync),
        2 => Just(Op::Reopen),
        2 => Just(Op::Remount),
        2 => (0..5000_u64).prop_map(Op::Wait),
        1 => (at(), length()).prop_map(|(at, length)| Op::Other(at, length)),
    ]
}

async fn open(top: &Inode) -> OpenFile {
    let set = SetAttributes::with_mode(0o644);
    top.create(&root(), b"file", OpenFlags::BOTH, Creation::IfMissing, &set).await.unwrap()
}

async fn close(file: OpenFile) {
    file.flush().await.unwrap();
    file.release().await.unwrap();
}

async fn read(file: &OpenFile, at: u64, length: u64) -> Vec<u8> {
    file.read(at, length as usize).await.unwrap().concat()
}

/// Applies a write to the model.
fn write(model: &mut Vec<u8>, at: u64, length: u64, byte: u8) -> Bytes {
    let (at, end) = (at as usize, (at + length) as usize);
    model.resize(model.len().max(end), 0);
    model[at..end].fill(byte);
    Bytes::from(vec![byte; end - at])
}

fn part(model: &[u8], at: u64, length: u64) -> &[u8] {
    let end = model.len().min((at + length) as usize);
    &model[end.min(at as usize)..end]
}

pub(crate) fn play(version: Version, data: bool, ops: Vec<Op>) {
    let caches = if data { Caches::default() } else { Caches::none() };
    play_on(&Link::new(), Config { version: Some(version), caches, ..config() }, || {}, ops);
}

/// Applies operations through a client with this configuration, after a call of `start`.
pub(crate) fn play_on(link: &Link, config: Config, start: impl FnOnce(), ops: Vec<Op>) {
    // Small requests, so that there are many.
    let config = Config { read_size: 8192, write_size: 8192, ..config };
    // MOUNT gives up after some repetitions, all of which a network can lose.
    let attempts = if config.mount_transport == Transport::Udp { 10 } else { 1 };
    let other_config = Config { owner: Bytes::from_static(b"other"), ..config.clone() };
    let (client, other) = (link.connect(config).unwrap(), link.connect(other_config).unwrap());
    start();
    link.run(async {
        let mount = async |client: &Client| {
            for _ in 1..attempts {
                match Mount::new(client.clone(), &root(), &[b"export"]).await {
                    Err(OpError::Call(CallError::TimedOut)) => {}
                    mounted => return mounted.unwrap().root(),
                }
            }
            Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root()
        };
        let (mut top, mut other_top) = (mount(&client).await, mount(&other).await);
        let (mut file, mut model, mut byte) = (open(&top).await, Vec::new(), 0_u8);
        for op in ops {
            byte = byte.wrapping_add(1);
            match op {
                Op::Write(at, length) => {
                    let data = write(&mut model, at, length, byte);
                    file.write(at, data).await.unwrap();
                }
                Op::Read(at, length) => {
                    assert!(read(&file, at, length).await == part(&model, at, length), "{at} {length}");
                }
                Op::Truncate(size) => {
                    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                    let attributes = file.set_attributes(&set).await.unwrap();
                    model.resize(size as usize, 0);
                    assert_eq!(attributes.size, size);
                }
                Op::Stat => assert_eq!(file.attributes().await.unwrap().size, model.len() as u64),
                Op::Sync => file.sync().await.unwrap(),
                Op::Reopen => {
                    close(file).await;
                    file = open(&top).await;
                }
                Op::Remount => {
                    close(file).await;
                    (top, other_top) = (mount(&client).await, mount(&other).await);
                    file = open(&top).await;
                }
                Op::Wait(milliseconds) => client.engine().sleep(Duration::from_millis(milliseconds)).await,
                Op::Other(at, length) => {
                    close(file).await;
                    let others = open(&other_top).await;
                    assert!(read(&others, 0, 2 * SIZE).await == model, "close-to-open");
                    let data = write(&mut model, at, length, byte);
                    others.write(at, data).await.unwrap();
                    close(others).await;
                    file = open(&top).await;
                }
            }
        }
        assert!(read(&file, 0, 2 * SIZE).await == model);
        close(file).await;
        let others = open(&other_top).await;
        assert!(read(&others, 0, 2 * SIZE).await == model);
        close(others).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn programs_see_a_posix_file_with_caches(ops in prop::collection::vec(op(), 1..60)) {
        play(crate::VERSION, true, ops);
    }

    #[test]
    fn programs_see_a_posix_file_without_caches(ops in prop::collection::vec(op(), 1..40)) {
        play(crate::VERSION, false, ops);
    }
}
