//! Segments in any order, and captures that are cut.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use fastrand::Rng;
use protocol::nfs3::{self, FileHandle, ReadArgs};
use rpc::message::{CallHeader, encode_call};
use rpc::record::{finish_record, start_record};
use xdr::{Encode as _, Writer};

use super::capture::Segment;
use super::streams::{Streams, Timed};
use super::*;
use crate::trace::Trace;

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "10.0.0.2:2049";

/// Returns the bytes of `count` READ calls, and their records.
fn calls(count: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut stream, mut records) = (Vec::new(), Vec::new());
    for xid in 0..count {
        let mut writer = Writer::new();
        let start = start_record(&mut writer);
        let arguments = ReadArgs {
            file: FileHandle::new(b"handle").unwrap(),
            offset: u64::from(xid) * 4096,
            count: 4096,
        };
        encode_call(&mut writer, &CallHeader::new(xid, nfs3::PROGRAM, 3, nfs3::Proc::READ.0), &arguments);
        finish_record(&mut writer, start);
        let bytes = writer.into_bytes();
        records.push(bytes[4..].to_vec());
        stream.extend_from_slice(&bytes);
    }
    (stream, records)
}

fn segment(sequence: u32, payload: &[u8]) -> Segment<'_> {
    let (from, to): (SocketAddr, SocketAddr) = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
    Segment { time_us: 5, from, to, sequence, is_syn: false, payload, missing: 0 }
}

fn bytes(timed: Vec<Timed>) -> Vec<Vec<u8>> {
    timed.into_iter().map(|timed| timed.record.to_vec()).collect()
}

#[test]
fn segments_make_the_records_that_were_sent() {
    let (stream, records) = calls(40);
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        // Sequence numbers pass zero on the way.
        let first = 0u32.wrapping_sub(1000);
        let mut parts = Vec::new();
        let mut at = 0;
        while at < stream.len() {
            let length = rng.usize(1..300).min(stream.len() - at);
            parts.push((at, length));
            at += length;
        }
        // Some segments come twice, together with bytes before and after, and some later than their successors.
        for _ in 0..20 {
            let from = rng.usize(0..stream.len() - 1);
            let length = rng.usize(1..500).min(stream.len() - from);
            parts.insert(rng.usize(0..parts.len()), (from, length));
        }
        for _ in 0..20 {
            let index = rng.usize(0..parts.len() - 1);
            parts.swap(index, index + 1);
        }
        let mut streams = Streams::default();
        let syn = Segment { is_syn: true, ..segment(first.wrapping_sub(1), &[]) };
        assert_eq!(streams.add(&syn), []);
        let mut found = Vec::new();
        for (at, length) in parts {
            let sequence = first.wrapping_add(at as u32);
            found.extend(bytes(streams.add(&segment(sequence, &stream[at..at + length]))));
        }
        assert_eq!(found, records, "seed {seed}");
        assert_eq!((streams.gaps, streams.cut), (0, 0));
    }
}

#[test]
fn a_capture_that_begins_in_a_connection_continues_at_the_next_record() {
    let (stream, records) = calls(3);
    let second = records[0].len() + 4;
    let mut streams = Streams::default();
    assert_eq!(streams.add(&segment(500, &stream[10..second])), [], "the rest of a record");
    let sequence = 500 + (second - 10) as u32;
    assert_eq!(bytes(streams.add(&segment(sequence, &stream[second..]))), records[1..]);
}

#[test]
fn a_lost_segment_loses_only_its_records() {
    // In the second case, more bytes follow than may wait for a segment.
    for (count, waits) in [(1000, true), (100_000, false)] {
        let (stream, records) = calls(count);
        let length = records[0].len() + 4;
        let mut streams = Streams::default();
        streams.add(&Segment { is_syn: true, ..segment(0, &[]) });
        let mut found = Vec::new();
        for (index, payload) in stream.chunks(length).enumerate() {
            if index != 7 {
                found.extend(bytes(streams.add(&segment(1 + (index * length) as u32, payload))));
            }
        }
        assert_eq!((found.len() == 7, streams.gaps == 0), (waits, waits));
        found.extend(bytes(streams.finish()));
        assert_eq!(streams.gaps, 1);
        assert_eq!(found[..7], records[..7]);
        assert_eq!(found.last(), records.last());
        assert_eq!(found.len(), records.len() - 1);
    }
}

#[test]
fn data_that_were_not_captured_are_not_needed() {
    let (stream, records) = calls(2);
    let mut streams = Streams::default();
    streams.add(&Segment { is_syn: true, ..segment(0, &[]) });
    let cut = Segment { missing: 4, ..segment(1, &stream[..records[0].len()]) };
    let found = bytes(streams.add(&cut));
    assert_eq!(found[0][..records[0].len() - 4], records[0][..records[0].len() - 4]);
    assert_eq!(streams.cut, 1);
    assert_eq!(
        bytes(streams.add(&segment(1 + records[0].len() as u32 + 4, &stream[records[0].len() + 4..]))),
        records[1..]
    );
}

/// Returns a capture in pcap with IP packets: READs of one file and their replies.
fn capture(count: u32) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    let (mut sent, mut received) = (1u32, 1u32);
    let (stream, records) = calls(count);
    let length = records.first().map_or(1, |record| record.len() + 4);
    for (xid, call) in stream.chunks(length).enumerate() {
        let mut writer = Writer::new();
        let start = start_record(&mut writer);
        rpc::message::encode_success(&mut writer, xid as u32);
        nfs3::NfsStat::OK.encode(&mut writer);
        nfs3::ReadOk {
            file_attributes: None,
            count: 100,
            eof: true,
            data: xdr::Opaque::new(Bytes::from(vec![7; 100])).unwrap(),
        }
        .encode(&mut writer);
        finish_record(&mut writer, start);
        let reply = writer.into_bytes();
        packet(&mut file, xid as u32 * 10, true, sent, call);
        packet(&mut file, xid as u32 * 10 + 4, false, received, &reply);
        sent += call.len() as u32;
        received += reply.len() as u32;
    }
    file
}

/// Appends a packet to a capture.
fn packet(file: &mut Vec<u8>, microseconds: u32, is_call: bool, sequence: u32, payload: &[u8]) {
    let ends = if is_call {
        ([10, 0, 0, 1], [10, 0, 0, 2], 1000, 2049)
    } else {
        ([10, 0, 0, 2], [10, 0, 0, 1], 2049, 1000)
    };
    let (from, to, from_port, to_port) = ends;
    let builder =
        etherparse::PacketBuilder::ipv4(from, to, 64).tcp(from_port, to_port, sequence, 1000).ack(1);
    let length = builder.size(payload.len()) as u32;
    for word in [1, microseconds, length, length] {
        file.extend(word.to_le_bytes());
    }
    builder.write(file, payload).unwrap();
}

fn imported(directory: &Path, capture: &[u8]) -> Result<(Imported, Trace), String> {
    let (from, to) = (directory.join("x.pcap"), directory.join("x.trace"));
    std::fs::write(&from, capture).unwrap();
    let imported = import(&from, &to)?;
    Ok((imported, Trace::read(&to).unwrap()))
}

#[test]
fn a_capture_that_is_cut_anywhere_has_the_operations_before() {
    let directory = tempfile::tempdir().unwrap();
    let whole = capture(6);
    let (all, trace) = imported(directory.path(), &whole).unwrap();
    assert_eq!((all.packets, all.calls, all.operations, &all.damage), (12, 6, 6, &None));
    assert_eq!(trace.records.len(), 6);
    let second = &trace.records[1];
    assert_eq!((second.at_us, second.took_us, second.path()), (10, 4, "unknown-00001"));
    assert_eq!((second.offset, second.length, second.result), (Some(4096), Some(4096), Some(100)));
    let mut damaged = 0;
    for length in (0..whole.len()).step_by(7) {
        let Ok((part, trace)) = imported(directory.path(), &whole[..length]) else { continue };
        assert_eq!(trace.records, all_before(&trace.records, &directory, &whole), "{length}");
        assert_eq!(part.operations, part.packets / 2, "{length}");
        if let Some(damage) = part.damage {
            assert!(damage.starts_with(&format!("packet {}: ", part.packets + 1)), "{damage}");
            assert!(trace.incomplete.is_some(), "the trace says so");
            damaged += 1;
        }
    }
    assert!(damaged > 50, "{damaged}");
}

/// Returns as many operations of the whole capture.
fn all_before(some: &[Record], directory: &tempfile::TempDir, whole: &[u8]) -> Vec<Record> {
    imported(directory.path(), whole).unwrap().1.records[..some.len()].to_vec()
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for bytes in [&b""[..], b"text", &[0; 4096]] {
        let why = imported(directory.path(), bytes).unwrap_err();
        assert!(why.contains("not a packet capture"), "{why}");
    }
    let why = imported(directory.path(), &capture(0)).unwrap_err();
    assert!(why.contains("no operations of NFS"), "{why}");
}
