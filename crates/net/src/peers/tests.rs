//! The socket table of this machine's own kernel.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::mpsc;

use futures_util::FutureExt;
use rustix::process::getuid;
use server::{ClientPattern, Export, ExportId, ExportOptions, HandleKey, Settings};
use vfs::{MemFs, MemOptions};

use super::*;

struct NoNames;

impl NameServices for NoNames {
    fn groups(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }

    fn host_names(&self, _: IpAddr) -> Option<Vec<String>> {
        None
    }
}

/// Returns one policy for each table.
fn policies() -> [Arc<PeerPolicy>; 2] {
    let by_diag = PeerPolicy::new(Arc::new(NoNames), None);
    assert!(matches!(*by_diag.table.lock(), Table::SockDiag(_)), "this kernel has sock_diag");
    let by_proc =
        PeerPolicy { table: Mutex::new(Table::ProcNet), ..PeerPolicy::new(Arc::new(NoNames), None) };
    [by_diag, by_proc].map(Arc::new)
}

fn find(policy: &PeerPolicy, stream: &TcpStream) -> io::Result<Found> {
    policy.find(stream, |error| panic!("{error}"))
}

fn listener(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn finds_the_owner_of_an_open_socket() {
    for policy in policies() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (listener, address) = listener(address);
            let _client = TcpStream::connect(address).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(find(&policy, &accepted).unwrap(), Found::Owner(getuid().as_raw()), "{address}");
        }
    }
}

#[test]
fn proc_net_answers_where_sock_diag_fails() {
    let (listener, address) = listener("127.0.0.1:0");
    let _client = TcpStream::connect(address).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let ends = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
    assert!(SockDiag::broken().find(ends.0, ends.1).is_err());
    let policy = PeerPolicy::new(Arc::new(NoNames), None);
    let policy = PeerPolicy { table: Mutex::new(Table::SockDiag(SockDiag::broken())), ..policy };
    assert_eq!(find(&policy, &accepted).unwrap(), Found::Owner(getuid().as_raw()));
}

#[test]
fn finds_mapped_addresses_of_either_family() {
    let (listener, address) = listener("[::]:0");
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), address.port()));
    for policy in policies() {
        for to in [v4, mapped, SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()))] {
            let _client = TcpStream::connect(to).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(find(&policy, &accepted).unwrap(), Found::Owner(getuid().as_raw()), "{to}");
        }
    }
}

#[test]
fn a_socket_closed_before_accept_has_no_owner() {
    let (listener, address) = listener("127.0.0.1:0");
    for policy in policies() {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"a call").unwrap();
        drop(client);
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(find(&policy, &accepted).unwrap(), Found::Unknown);
    }
}

#[test]
fn a_reset_connection_has_no_owner() {
    let (listener, address) = listener("127.0.0.1:0");
    for policy in policies() {
        let client = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        // The socket has no addresses now, or no owner.
        assert!(matches!(find(&policy, &accepted), Err(_) | Ok(Found::Unknown)));
    }
}

#[test]
fn recognizes_own_addresses() {
    let mut diag = SockDiag::open().unwrap();
    let is_own = |diag: &mut SockDiag, address: &str| diag.is_own(address.parse().unwrap()).unwrap();
    assert!(is_own(&mut diag, "127.0.0.1"));
    assert!(is_own(&mut diag, "127.9.9.9"));
    assert!(is_own(&mut diag, "::1"));
    // TEST-NET-1 and the documentation prefix (RFC 5737, RFC 3849).
    assert!(!is_own(&mut diag, "192.0.2.1"));
    assert!(!is_own(&mut diag, "2001:db8::1"));
    let gone = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    assert_eq!(diag.find(gone, gone).unwrap(), None);
}

#[test]
fn a_listener_on_the_peers_port_is_not_the_peer() {
    let (_listener, address) = listener("127.0.0.1:0");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 2049));
    assert_eq!(SockDiag::open().unwrap().find(address, to).unwrap(), None);
}

#[test]
fn closed_sockets_and_foreign_namespaces_have_no_owner() {
    assert_eq!(owner_of(Entry { uid: 0, inode: 0 }, None), Found::Unknown);
    assert_eq!(owner_of(Entry { uid: 0, inode: 7 }, None), Found::Owner(0));
    assert_eq!(owner_of(Entry { uid: 65_534, inode: 7 }, None), Found::Owner(65_534));
    assert_eq!(owner_of(Entry { uid: 65_534, inode: 7 }, Some(65_534)), Found::Unknown);
    assert!(maps_all("         0          0 4294967295\n"));
    assert!(!maps_all("         0       1000          1\n"));
    assert!(!maps_all("         0       1000          1\n         1     100000      65536\n"));
    assert!(!maps_all(""));
}

#[tokio::test]
async fn an_unprivileged_server_serves_its_own_user_and_root() {
    let policy = Arc::new(PeerPolicy::new(Arc::new(NoNames), Some(1000)));
    let owner = |found| Arc::clone(&policy).owner(found);
    assert_eq!(owner(Found::Owner(0)).await, PeerOwner::Superuser);
    assert!(matches!(owner(Found::Owner(1000)).await, PeerOwner::User(user) if user.uid == 1000));
    assert_eq!(owner(Found::Owner(1001)).await, PeerOwner::NotServed(1001));
    assert_eq!(owner(Found::Unknown).await, PeerOwner::Unknown);
    assert_eq!(owner(Found::Remote).await, PeerOwner::Remote);
}

#[test]
fn a_port_that_every_local_user_may_bind_vouches_for_no_datagram() {
    for policy in policies() {
        let policy = PeerPolicy { first_free_port: 600, ..Arc::into_inner(policy).unwrap() };
        for (peer, local, expected) in [
            ("127.0.0.1", "127.0.0.1", PeerOwner::Unknown),
            ("127.9.9.9", "127.0.0.1", PeerOwner::Unknown),
            ("::1", "::1", PeerOwner::Unknown),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", PeerOwner::Unknown),
            ("::ffff:192.0.2.1", "192.0.2.1", PeerOwner::Unknown),
            // TEST-NET-1 and the documentation prefix (RFC 5737, RFC 3849).
            ("192.0.2.1", "127.0.0.1", PeerOwner::Remote),
            ("::ffff:192.0.2.1", "::ffff:127.0.0.1", PeerOwner::Remote),
            ("2001:db8::1", "::1", PeerOwner::Remote),
        ] {
            let (peer, local): (IpAddr, IpAddr) = (peer.parse().unwrap(), local.parse().unwrap());
            let sender = |port| policy.sender(SocketAddr::new(peer, port), local);
            assert_eq!(
                (sender(600), sender(599)),
                (expected.clone(), PeerOwner::Remote),
                "{peer} to {local}"
            );
            // Exports refuse a port above 1023 unless they are `insecure`.
            let unprivileged = FIRST_UNPRIVILEGED_PORT;
            assert_eq!((sender(unprivileged - 1), sender(unprivileged)), (expected, PeerOwner::Remote));
        }
    }
}

/// Name services that answer when they are asked to.
struct SlowNames {
    asked: Mutex<mpsc::Sender<IpAddr>>,
    answer: Mutex<mpsc::Receiver<()>>,
}

impl NameServices for SlowNames {
    fn groups(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }

    fn host_names(&self, address: IpAddr) -> Option<Vec<String>> {
        self.asked.lock().send(address).unwrap();
        self.answer.lock().recv().unwrap();
        Some(vec!["host.example.org".into()])
    }
}

/// Returns a server whose one export depends on the names of hosts.
fn server_for_names() -> Server {
    let clients = vec![ClientPattern::Netgroup("hosts".into(), vec![Some("host.example.org".into())])];
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend: Arc::new(MemFs::new(&MemOptions::default())),
        options: ExportOptions { clients, ..ExportOptions::default() },
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let settings = Settings::new(HandleKey([9; 16]), 1, [3; 16], b"test".to_vec());
    Server::new(settings, ExportTable::new(vec![export]).unwrap())
}

#[tokio::test]
async fn datagrams_wait_for_no_query_but_their_own_and_delay_no_connection() {
    let ((asked, questions), (answers, answer)) = (mpsc::channel(), mpsc::channel());
    let names = SlowNames { asked: Mutex::new(asked), answer: Mutex::new(answer) };
    let (policy, server) = (PeerPolicy::new(Arc::new(names), None), server_for_names());
    let exports = server.exports();
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    let mut first = Box::pin(policy.try_introduce(&server, &exports, address(1)));
    assert!((&mut first).now_or_never().is_none(), "it asks");
    for last in 2..50 {
        let other =
            futures_util::FutureExt::now_or_never(policy.try_introduce(&server, &exports, address(last)));
        assert_eq!(other, Some(false), "{last} is dropped at once");
    }
    assert_eq!(policy.host_questions.available_permits(), QUESTIONS_MAX, "connections can ask");
    answers.send(()).unwrap();
    assert!(first.await);
    let again = futures_util::FutureExt::now_or_never(policy.try_introduce(&server, &exports, address(1)));
    assert_eq!(again, Some(true), "its names are known");
    answers.send(()).unwrap();
    assert!(policy.try_introduce(&server, &exports, address(2)).await, "the place is free again");
    assert_eq!(questions.try_iter().collect::<Vec<_>>(), [address(1), address(2)]);
}
