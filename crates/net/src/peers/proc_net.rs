//! The kernel's socket table in proc(5), `/proc/net/tcp` and `/proc/net/tcp6`, for systems without sock_diag.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Entry;

/// Columns of a line, counted from 0.
const BOUND: usize = 1;
const CONNECTED: usize = 2;
const UID: usize = 7;
const INODE: usize = 9;

/// Returns the TCP socket of this network namespace that is bound to `bound` and connected to `connected`.
///
/// # Errors
/// Returns an error if proc(5) cannot be read.
pub(super) fn find(bound: SocketAddr, connected: SocketAddr) -> io::Result<Option<Entry>> {
    if bound.is_ipv4()
        && let Some(entry) = find_in(&std::fs::read_to_string("/proc/net/tcp")?, bound, connected)
    {
        return Ok(Some(entry));
    }
    // An IPv6 socket that is connected to a mapped IPv4 address is in this table.
    match std::fs::read_to_string("/proc/net/tcp6") {
        Ok(table) => Ok(find_in(&table, bound, connected)),
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn find_in(table: &str, bound: SocketAddr, connected: SocketAddr) -> Option<Entry> {
    let is_meant = |text: Option<&&str>, address: SocketAddr| {
        text.and_then(|text| parse(text)).is_some_and(|found| found == (address.ip(), address.port()))
    };
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        if !is_meant(columns.get(BOUND), bound) || !is_meant(columns.get(CONNECTED), connected) {
            return None;
        }
        Some(Entry { uid: columns.get(UID)?.parse().ok()?, inode: columns.get(INODE)?.parse().ok()? })
    })
}

/// `0100007F:0801`: each 32 bits of the address in host order, in hexadecimal.
fn parse(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = (0..address.len() / 8)
        .map(|word| u32::from_str_radix(address.get(8 * word..8 * word + 8)?, 16).ok().map(u32::to_ne_bytes))
        .collect();
    let octets = words?.concat();
    let ip = match octets.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux prints them on a little-endian machine: a listener, a connection, and one that was closed.
    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20021 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:0801 01 00000000:00000000 00:00000000 00000000  1000        0 20144 2 0 20 4 30 10 -1
   2: 0100007F:9C42 0100007F:0801 06 00000000:00000000 03:00000EC4 00000000     0        0 0 3 0
";
    const TCP6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:9C44 0000000000000000FFFF00000100007F:0801 01 00000000:00000000 00:00000000 00000000  1001        0 20200 1 0 20 4 30 10 -1
   1: 00000000000000000000000001000000:9C46 00000000000000000000000001000000:0801 01 00000000:00000000 00:00000000 00000000  1002        0 20201 1 0 20 4 30 10 -1
";

    #[test]
    #[cfg(target_endian = "little")]
    fn finds_the_owner_of_a_connection() {
        let at = |ip: &str, port: u16| SocketAddr::new(ip.parse().unwrap(), port);
        let found = |table, ip: &str, port| find_in(table, at(ip, port), at(ip, 2049));
        assert_eq!(found(TCP, "127.0.0.1", 40_000), Some(Entry { uid: 1000, inode: 20_144 }));
        assert_eq!(found(TCP, "127.0.0.1", 40_002), Some(Entry { uid: 0, inode: 0 }), "closed");
        assert_eq!(found(TCP, "127.0.0.1", 40_001), None);
        assert_eq!(found(TCP6, "127.0.0.1", 40_004), Some(Entry { uid: 1001, inode: 20_200 }), "mapped");
        assert_eq!(found(TCP6, "::1", 40_006), Some(Entry { uid: 1002, inode: 20_201 }));
        assert_eq!(find_in(TCP, at("127.0.0.1", 2049), at("0.0.0.0", 0)).map(|it| it.uid), Some(0));
    }

    #[test]
    fn malformed_lines_have_no_owner() {
        for text in ["", ":", "0100007F", "0100007F:", "0100:0801", "zz00007F:0801", "0100007é:0801"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
