//! Calls over UDP, where datagrams are lost, late, or arrive twice.

use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::{Config, Version};
use client::engine::{CallError, RetryPolicy};
use client::errno::Errno;
use client::error::OpError;
use client::fs::{FileSystem, OpenOptions};
use client::results::NewObject;
use client::url::Transport;
use proptest::prelude::*;

use crate::link::{Delivery, Link, config, root};
use crate::model::{op, play_on};

/// The timeout of a first call.
const TIMEOUT: Duration = Duration::from_millis(1100);

fn udp() -> Config {
    let retry = RetryPolicy { timeout: TIMEOUT, retries: None, fails_fast: true };
    Config { transport: Transport::Udp, mount_transport: Transport::Udp, retry, ..config() }
}

#[test]
fn transfers_fit_into_datagrams() {
    let link = Link::new();
    let client = link.connect(udp()).unwrap();
    link.run(async {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
        fs.mkdir(b"d", 0o755).await.unwrap();
        let file = fs.open(b"d/file", &OpenOptions::CREATE).await.unwrap();
        file.write_at(0, Bytes::from(content.clone())).await.unwrap();
        file.close().await.unwrap();
        let file = fs.open(b"d/file", &OpenOptions::READ).await.unwrap();
        assert!(file.read_at(0, 2_000_000).await.unwrap().concat() == content);
        for number in 0..600 {
            fs.mkdir(format!("d/directory with a long name {number}").as_bytes(), 0o755).await.unwrap();
        }
        assert_eq!(fs.read_dir(b"d", true).await.unwrap().len(), 601);
    });
    let most = if crate::VERSION == Version::V2 { 8 << 10 } else { 32 << 10 };
    let longest = link.longest_datagram.get();
    assert!((most..most + 512).contains(&longest), "{longest}");
}

#[test]
fn a_lost_call_is_repeated_at_growing_intervals_until_it_is_answered() {
    let link = Link::new();
    let client = link.connect(udp()).unwrap();
    link.run(async {
        let top = client.mount(&root(), &[b"export"]).await.unwrap().handle;
        let mut left = 5;
        link.network(move || {
            left -= 1;
            if left >= 0 { Delivery::LoseCall } else { Delivery::Once }
        });
        let (began, sent) = (link.now(), client.engine().requests_sent());
        let set = SetAttributes::with_mode(0o755);
        client.create_object(&root(), top, b"d", &NewObject::Directory, &set).await.unwrap();
        // MKDIR has no measured round trip: 1.1 s, 2.2 s, 4.4 s, 8.8 s and 17.6 s.
        assert_eq!(link.now() - began, TIMEOUT * 31);
        assert_eq!(client.engine().requests_sent() - sent, 6);
    });
}

#[test]
fn a_lost_reply_changes_nothing_twice() {
    let link = Link::new();
    let client = link.connect(udp()).unwrap();
    link.run(async {
        let top = client.mount(&root(), &[b"export"]).await.unwrap().handle;
        let set = SetAttributes::with_mode(0o755);
        let mut lost = false;
        link.network(move || {
            lost = !lost;
            if lost { Delivery::LoseReply } else { Delivery::Once }
        });
        client.create_object(&root(), top, b"d", &NewObject::Directory, &set).await.unwrap();
        client.rename(&root(), (top, b"d"), (top, b"e")).await.unwrap();
        client.remove_directory(&root(), top, b"e").await.unwrap();
    });
}

#[test]
fn a_soft_client_gives_up_after_its_repetitions() {
    let link = Link::new();
    let retry = RetryPolicy { timeout: TIMEOUT, retries: Some(3), fails_fast: true };
    let client = link.connect(Config { retry, ..udp() }).unwrap();
    link.run(async {
        let top = client.mount(&root(), &[b"export"]).await.unwrap().handle;
        link.network(|| Delivery::LoseCall);
        let (began, sent) = (link.now(), client.engine().requests_sent());
        let failed = client.remove_file(&root(), top, b"file").await.unwrap_err();
        assert_eq!(failed, OpError::Call(CallError::TimedOut));
        assert_eq!(link.now() - began, TIMEOUT * 15);
        assert_eq!(client.engine().requests_sent() - sent, 4);
        link.network(|| Delivery::Once);
        assert_eq!(client.remove_file(&root(), top, b"file").await.unwrap_err().errno(), Errno::ENOENT);
    });
}

#[test]
fn a_server_that_never_answers_is_unreachable() {
    let link = Link::new();
    link.network(|| Delivery::LoseCall);
    let failed = link.connect(Config { port: 2050, ..udp() }).map(|_| ()).unwrap_err();
    assert_eq!(failed.errno(), Errno::EHOSTUNREACH);
}

#[test]
fn version_4_has_no_datagrams() {
    for version in [Version::V40, Version::V41, Version::V42] {
        let failed = Link::new().connect(Config { version: Some(version), ..udp() }).map(|_| ());
        assert_eq!(failed.unwrap_err().errno(), Errno::EPROTONOSUPPORT);
    }
    let client = Link::new().connect(Config { version: None, ..udp() }).unwrap();
    assert_eq!(client.version(), Version::V3);
}

fn delivery() -> impl Strategy<Value = Delivery> {
    let later = || (1..3000_u64).prop_map(Duration::from_millis);
    prop_oneof![
        6 => Just(Delivery::Once),
        1 => Just(Delivery::LoseCall),
        1 => Just(Delivery::LoseReply),
        1 => later().prop_map(Delivery::CallAgain),
        1 => later().prop_map(Delivery::CallLate),
        1 => later().prop_map(Delivery::ReplyLate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn programs_see_a_posix_file_over_a_network_that_loses_delays_and_repeats(
        ops in prop::collection::vec(op(), 1..40),
        deliveries in prop::collection::vec(delivery(), 1..200),
    ) {
        let link = Link::new();
        let config = Config { version: Some(crate::VERSION), ..udp() };
        play_on(&link, config, || {
            // A network that loses everything would be no network.
            let mut deliveries = deliveries.clone().into_iter().chain([Delivery::Once]).cycle();
            link.network(move || deliveries.next().unwrap_or(Delivery::Once));
        }, ops);
    }
}
