//! TCP segments of a packet capture, in pcap or pcapng.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// Bytes of the read buffer: several of the largest packets.
const BUFFER_BYTES: usize = 4 << 20;
/// Reads without a whole block after which the capture counts as truncated.
const EMPTY_READS_MAX: u32 = 8;
/// EtherTypes of IP.
const IP: &[u16] = &[0x0800, 0x86dd];

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    /// When it was captured, in microseconds since 1970.
    pub(super) time_us: u64,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Number of its first byte.
    pub(super) sequence: u32,
    pub(super) is_syn: bool,
    pub(super) payload: &'a [u8],
    /// Bytes at the end of the payload that were not captured.
    pub(super) missing: usize,
}

/// How far a capture could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) packets: u64,
    /// Why the packets after these could not be read.
    pub(super) damage: Option<String>,
}

/// One interface of a capture.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Parts of a second in times.
    resolution: u64,
    offset_seconds: i64,
}

/// Reads a capture, and passes each TCP segment on.
///
/// # Errors
/// If the file cannot be read, or is no capture.
pub(super) fn read(path: &Path, mut each: impl FnMut(&Segment<'_>)) -> Result<Read, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = File::open(path).map_err(|error| wrong(&error))?;
    let mut reader = create_reader(BUFFER_BYTES, file)
        .map_err(|_| wrong(&"not a packet capture: expected pcap or pcapng"))?;
    let (mut read, mut interfaces) = (Read::default(), Vec::new());
    let mut empty = 0;
    let why = loop {
        match reader.next() {
            Ok((length, block)) => {
                empty = 0;
                if let Some((time_us, link, data)) = packet(&block, &mut interfaces) {
                    read.packets += 1;
                    if let Some(segment) = segment(time_us, link, data) {
                        each(&segment);
                    }
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return Ok(read),
            Err(PcapError::Incomplete(_)) if empty < EMPTY_READS_MAX => {
                empty += 1;
                if let Err(error) = reader.refill() {
                    break format!("{error}");
                }
            }
            Err(PcapError::Incomplete(_) | PcapError::UnexpectedEof) => break "truncated".to_owned(),
            Err(error) => break format!("damaged: {error}"),
        }
    };
    read.damage = Some(format!("packet {}: {why}", read.packets + 1));
    Ok(read)
}

/// Returns the time, the kind of link and the bytes of a packet; `None` for other blocks, which may describe interfaces.
fn packet<'b>(
    block: &PcapBlockOwned<'b>,
    interfaces: &mut Vec<Interface>,
) -> Option<(u64, Linktype, &'b [u8])> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push(Interface { link: header.network, resolution, offset_seconds: 0 });
            None
        }
        PcapBlockOwned::Legacy(packet) => {
            let interface = interfaces.first()?;
            let parts = u64::from(packet.ts_usec) * 1_000_000 / interface.resolution;
            Some((u64::from(packet.ts_sec) * 1_000_000 + parts, interface.link, packet.data))
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            let resolution = interface.ts_resolution().filter(|parts| *parts > 0).unwrap_or(1_000_000);
            let offset_seconds = interface.ts_offset();
            interfaces.push(Interface { link: interface.linktype, resolution, offset_seconds });
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = interfaces.get(packet.if_id as usize)?;
            let ticks = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
            let time_us = (ticks * 1_000_000 / u128::from(interface.resolution)) as u64;
            let offset_us = interface.offset_seconds.saturating_mul(1_000_000);
            Some((time_us.saturating_add_signed(offset_us), interface.link, packet.data))
        }
        PcapBlockOwned::NG(_) => None,
    }
}

/// Returns the TCP segment in a packet.
fn segment(time_us: u64, link: Linktype, data: &[u8]) -> Option<Segment<'_>> {
    let sliced = match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok()?,
        // The protocol family in four bytes, then IP.
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(data.get(4..)?).ok()?,
        Linktype::LINUX_SLL => LaxSlicedPacket::from_ip(after_ether_type(data, 14, 16)?).ok()?,
        Linktype::LINUX_SLL2 => LaxSlicedPacket::from_ip(after_ether_type(data, 0, 20)?).ok()?,
        _ => LaxSlicedPacket::from_ip(data).ok()?,
    };
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return None };
    let (from, to, announced): (IpAddr, IpAddr, usize) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let announced = usize::from(header.total_len()).saturating_sub(usize::from(header.ihl()) * 4);
            (header.source_addr().into(), header.destination_addr().into(), announced)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let announced = usize::from(header.payload_length());
            (header.source_addr().into(), header.destination_addr().into(), announced)
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let payload = tcp.payload();
    let header_bytes = tcp.header_slice().len();
    Some(Segment {
        time_us,
        from: (from, tcp.source_port()).into(),
        to: (to, tcp.destination_port()).into(),
        sequence: tcp.sequence_number(),
        is_syn: tcp.syn(),
        payload,
        missing: announced.saturating_sub(header_bytes + payload.len()),
    })
}

/// Returns what follows a header that has the EtherType of IP at `at`.
fn after_ether_type(data: &[u8], at: usize, header: usize) -> Option<&[u8]> {
    let ether_type = u16::from_be_bytes(*data.get(at..)?.first_chunk()?);
    if IP.contains(&ether_type) { data.get(header..) } else { None }
}
