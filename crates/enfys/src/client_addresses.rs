//! The addresses that clients use if the server listens on all addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Returns the addresses for clients: `0.0.0.0` and `[::]` become an address of one of this machine's interfaces.
pub fn addresses_for_clients(listening: &[SocketAddr]) -> Vec<SocketAddr> {
    // Without a list of interfaces, the address is for clients on this machine.
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let own: Vec<_> = interfaces.iter().filter(|own| own.is_oper_up()).map(if_addrs::Interface::ip).collect();
    replace_wildcards(listening, &own)
}

fn replace_wildcards(listening: &[SocketAddr], own: &[IpAddr]) -> Vec<SocketAddr> {
    let is_ipv4_elsewhere =
        |port| listening.iter().any(|address| address.is_ipv4() && address.port() == port);
    let usable = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(first_ipv4(own).unwrap_or(Ipv4Addr::LOCALHOST)),
        // `[::]` accepts IPv4 too, unless another listener does.
        IpAddr::V6(ip) if ip.is_unspecified() => {
            let ipv4 = first_ipv4(own).filter(|_| !is_ipv4_elsewhere(address.port()));
            let found = first_ipv6(own).map(IpAddr::V6).or(ipv4.map(IpAddr::V4));
            found.unwrap_or(IpAddr::V6(Ipv6Addr::LOCALHOST))
        }
        ip => ip,
    };
    listening.iter().map(|address| SocketAddr::new(usable(address), address.port())).collect()
}

fn first_ipv4(own: &[IpAddr]) -> Option<Ipv4Addr> {
    let addresses = own.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None });
    addresses.into_iter().find(|ip| !ip.is_loopback() && !ip.is_link_local())
}

/// Returns the first usable address. A link-local one would need the client's interface name.
fn first_ipv6(own: &[IpAddr]) -> Option<Ipv6Addr> {
    let addresses = own.iter().filter_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None });
    addresses.into_iter().find(|ip| !ip.is_loopback() && !ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(listening: &[&str], own: &[&str]) -> Vec<String> {
        let listening: Vec<_> = listening.iter().map(|text| text.parse().unwrap()).collect();
        let own: Vec<_> = own.iter().map(|text| text.parse().unwrap()).collect();
        replace_wildcards(&listening, &own).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_wildcard_becomes_an_address_of_an_interface() {
        let own = ["127.0.0.1", "::1", "169.254.7.7", "fe80::1", "192.0.2.7", "10.0.0.7", "2001:db8::7"];
        assert_eq!(shown(&["0.0.0.0:2049"], &own), ["192.0.2.7:2049"]);
        assert_eq!(shown(&["[::]:2049"], &own), ["[2001:db8::7]:2049"]);
        assert_eq!(shown(&["0.0.0.0:2049", "[::]:2050"], &own), ["192.0.2.7:2049", "[2001:db8::7]:2050"]);
        assert_eq!(shown(&["127.0.0.1:1", "[fd00::1]:2"], &own), ["127.0.0.1:1", "[fd00::1]:2"]);
    }

    #[test]
    fn without_an_address_of_the_family_another_one_is_used() {
        let own = ["127.0.0.1", "::1", "fe80::1", "192.0.2.7"];
        assert_eq!(shown(&["[::]:2049"], &own), ["192.0.2.7:2049"]);
        assert_eq!(shown(&["0.0.0.0:2049", "[::]:2049"], &own), ["192.0.2.7:2049", "[::1]:2049"]);
        assert_eq!(shown(&["0.0.0.0:2049", "[::]:2050"], &[]), ["127.0.0.1:2049", "[::1]:2050"]);
    }
}
