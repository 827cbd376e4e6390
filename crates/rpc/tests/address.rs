//! Universal addresses (RFC 5665 §5.2.3.3 and §5.2.3.4).

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use rpc::address::{InvalidUniversalAddress, MAX_UNIVERSAL_ADDRESS, NetId, UniversalAddress};

fn parse(text: &str) -> Result<UniversalAddress, InvalidUniversalAddress> {
    UniversalAddress::from_bytes(text.as_bytes())
}

#[test]
fn parses_the_example_of_the_rfc() {
    let address = UniversalAddress((Ipv4Addr::new(0xc0, 0, 2, 7), 0xcb51).into());
    assert_eq!(address.to_string(), "192.0.2.7.203.81");
    assert_eq!(parse("192.0.2.7.203.81"), Ok(address));
}

#[test]
fn parses_all_three_forms_of_ipv6() {
    let address = UniversalAddress((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 2049).into());
    assert_eq!(address.to_string(), "2001:db8::1.8.1");
    for text in ["2001:db8::1.8.1", "2001:db8:0:0:0:0:0:1.8.1", "2001:db8::0.0.0.1.8.1"] {
        assert_eq!(parse(text), Ok(address), "{text}");
    }
    assert_eq!(NetId::Tcp6.any(111).to_string(), "::.0.111");
    assert_eq!(NetId::Udp.any(111).to_string(), "0.0.0.0.0.111");
}

#[test]
fn rejects_invalid_addresses() {
    for text in [
        "",
        ".",
        "..",
        "1.2",
        "127.0.0.1",
        "127.0.0.1.8",
        "127.0.0.1.8.256",
        "127.0.0.1.8.-1",
        "127.0.0.1.+8.1",
        "127.0.0.1.8.1.",
        "127.0.0.1.8.",
        "127.0.0.1..8",
        "127.0.0.1.8.1\0",
        " 127.0.0.1.8.1",
        "host.8.1",
        "/run/rpcbind.sock",
        "300.0.0.1.8.1",
    ] {
        assert_eq!(parse(text), Err(InvalidUniversalAddress), "{text:?}");
    }
    assert_eq!(UniversalAddress::from_bytes(&[0xff, b'.', b'1', b'.', b'1']), Err(InvalidUniversalAddress));
}

#[test]
fn maps_network_identifiers() {
    for id in NetId::ALL {
        assert_eq!(NetId::from_bytes(id.to_string().as_bytes()), Some(id));
    }
    assert_eq!(NetId::from_bytes(b"tcp6"), Some(NetId::Tcp6));
    assert_eq!(NetId::from_bytes(b"ticlts"), None);
    assert_eq!(NetId::tcp(&"[::1]:1".parse().unwrap()), NetId::Tcp6);
    assert_eq!(NetId::udp(&"1.2.3.4:1".parse().unwrap()), NetId::Udp);
    assert!(NetId::Tcp6.is_tcp() && NetId::Tcp6.is_ipv6() && !NetId::Udp.is_tcp() && !NetId::Udp.is_ipv6());
}

proptest! {
    #[test]
    fn every_address_round_trips(v4 in any::<u32>(), v6 in any::<u128>(), port in any::<u16>()) {
        for address in [SocketAddr::from((Ipv4Addr::from(v4), port)), (Ipv6Addr::from(v6), port).into()] {
            let text = UniversalAddress(address).to_string();
            prop_assert!(text.len() <= MAX_UNIVERSAL_ADDRESS);
            prop_assert_eq!(text.parse(), Ok(UniversalAddress(address)));
        }
    }
}
