//! Record marking (RFC 5531 §11), also with hostile senders.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rpc::record::{
    HEADER_LENGTH, LAST_FRAGMENT, MAX_FRAGMENTS, RecordDecoder, RecordError, finish_record, start_record,
};
use xdr::Writer;

fn header(length: u32, last: bool) -> [u8; 4] {
    (length | if last { LAST_FRAGMENT } else { 0 }).to_be_bytes()
}

fn fragments(pieces: &[&[u8]]) -> Vec<u8> {
    let mut wire = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        wire.extend(header(piece.len() as u32, index + 1 == pieces.len()));
        wire.extend(*piece);
    }
    wire
}

fn decode_one(max_record: usize, wire: &[u8]) -> Result<Option<Bytes>, RecordError> {
    RecordDecoder::new(max_record).decode(&mut BytesMut::from(wire))
}

#[test]
fn record_of_one_fragment_shares_the_buffer() {
    let mut buffer = BytesMut::from(&fragments(&[b"hello"])[..]);
    let payload = buffer[HEADER_LENGTH..].as_ptr();
    let record = RecordDecoder::new(5).decode(&mut buffer).unwrap().unwrap();
    assert_eq!(&record[..], b"hello");
    assert_eq!(record.as_ptr(), payload, "the record was copied");
    assert!(buffer.is_empty());
}

#[test]
fn joins_fragments_in_order() {
    assert_eq!(&decode_one(5, &fragments(&[b"he", b"", b"llo"])).unwrap().unwrap()[..], b"hello");
    assert_eq!(&decode_one(5, &fragments(&[b"hello", b""])).unwrap().unwrap()[..], b"hello");
}

#[test]
fn decodes_an_empty_record() {
    assert_eq!(&decode_one(5, &header(0, true)).unwrap().unwrap()[..], b"");
}

#[test]
fn returns_the_records_of_one_read_one_by_one() {
    let mut buffer =
        BytesMut::from(&[fragments(&[b"ab"]), fragments(&[b"c", b"d"]), fragments(&[b"ef"])].concat()[..]);
    let mut decoder = RecordDecoder::new(2);
    for expected in [b"ab", b"cd", b"ef"] {
        assert_eq!(&decoder.decode(&mut buffer).unwrap().unwrap()[..], expected);
    }
    assert_eq!(decoder.decode(&mut buffer), Ok(None));
    assert!(decoder.is_between_records(&buffer));
}

#[test]
fn returns_the_number_of_missing_bytes() {
    let mut decoder = RecordDecoder::new(100);
    let mut buffer = BytesMut::new();
    assert_eq!(decoder.decode(&mut buffer), Ok(None));
    assert_eq!(decoder.bytes_wanted(), 4);
    buffer.extend_from_slice(&header(10, true)[..3]);
    assert_eq!(decoder.decode(&mut buffer), Ok(None));
    assert_eq!(decoder.bytes_wanted(), 1);
    buffer.extend_from_slice(&header(10, true)[3..]);
    buffer.extend_from_slice(b"abc");
    assert_eq!(decoder.decode(&mut buffer), Ok(None));
    assert_eq!(decoder.bytes_wanted(), 7);
    assert!(!decoder.is_between_records(&buffer));
    buffer.extend_from_slice(b"defghij");
    assert_eq!(&decoder.decode(&mut buffer).unwrap().unwrap()[..], b"abcdefghij");

    buffer.extend_from_slice(&header(10, false));
    buffer.extend_from_slice(b"abc");
    assert_eq!(decoder.decode(&mut buffer), Ok(None));
    assert_eq!(decoder.bytes_wanted(), 7 + 4, "the rest of the fragment and the next header");
    assert!(buffer.is_empty(), "fragments leave the receive buffer as they arrive");
    assert!(!decoder.is_between_records(&buffer));
}

#[test]
fn rejects_a_record_above_the_limit_by_its_header() {
    let error = |announced| Err(RecordError::TooLong { announced, max: 8 });
    // One fragment, complete or announced.
    assert_eq!(decode_one(8, &fragments(&[b"123456789"])), error(9));
    assert_eq!(decode_one(8, &header(9, true)), error(9));
    assert_eq!(decode_one(8, &header(0x7fff_ffff, true)), error(0x7fff_ffff));
    // The first fragment of several.
    assert_eq!(decode_one(8, &header(9, false)), error(9));
    assert_eq!(decode_one(8, &header(0x7fff_ffff, false)), error(0x7fff_ffff));
    // The sum of several fragments, at a middle or the last one.
    for last in [false, true] {
        let mut wire = header(5, false).to_vec();
        wire.extend(b"12345");
        wire.extend(header(4, last));
        assert_eq!(decode_one(8, &wire), error(9));
    }
}

#[test]
fn error_is_returned_again() {
    let mut decoder = RecordDecoder::new(8);
    let error = decoder.decode(&mut BytesMut::from(&header(9, true)[..])).unwrap_err();
    assert_eq!(decoder.decode(&mut BytesMut::from(&fragments(&[b"fine"])[..])), Err(error));
}

#[test]
fn rejects_endless_fragments() {
    for size in [0, 1] {
        let piece = [&header(size, false)[..], &b"x"[..size as usize]].concat();
        let mut decoder = RecordDecoder::new(usize::MAX >> 1);
        for _ in 0..MAX_FRAGMENTS {
            assert_eq!(decoder.decode(&mut BytesMut::from(&piece[..])), Ok(None));
        }
        assert_eq!(decoder.decode(&mut BytesMut::from(&piece[..])), Err(RecordError::TooManyFragments));
    }
}

#[test]
fn counts_fragments_per_record() {
    let wire = fragments(&[b"a", b"b", b"c"]);
    let mut decoder = RecordDecoder::new(3);
    for _ in 0..MAX_FRAGMENTS {
        assert_eq!(&decoder.decode(&mut BytesMut::from(&wire[..])).unwrap().unwrap()[..], b"abc");
    }
}

#[test]
fn finished_record_has_its_length_and_the_last_bit() {
    let mut writer = Writer::new();
    writer.raw(b"before");
    let start = start_record(&mut writer);
    writer.u32(7);
    writer.u64(8);
    finish_record(&mut writer, start);
    assert_eq!(&writer.inline()[6..10], &[0x80, 0, 0, 12]);
    assert_eq!(writer.length(), 6 + 4 + 12);
}

/// Generates records as lists of fragments.
fn records() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let fragment = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop::collection::vec(fragment, 1..5), 0..8)
}

proptest! {
    #[test]
    fn every_chunking_returns_the_same_records(
        records in records(),
        chunks in prop::collection::vec(1usize..30, 1..40),
    ) {
        let mut wire = Vec::new();
        let mut expected = Vec::new();
        for record in &records {
            wire.extend(fragments(&record.iter().map(Vec::as_slice).collect::<Vec<_>>()));
            expected.push(record.concat());
        }
        let mut decoder = RecordDecoder::new(200);
        let (mut buffer, mut found, mut rest) = (BytesMut::new(), Vec::new(), &wire[..]);
        for size in chunks.iter().cycle() {
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            buffer.extend_from_slice(chunk);
            rest = after;
            while let Some(record) = decoder.decode(&mut buffer).unwrap() {
                found.push(record.to_vec());
            }
            prop_assert!(decoder.bytes_wanted() > 0 && decoder.bytes_wanted() <= 200 + HEADER_LENGTH);
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert!(decoder.is_between_records(&buffer));
    }

    #[test]
    fn random_bytes_neither_panic_nor_exceed_the_limit(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        max in 0usize..100,
    ) {
        let mut decoder = RecordDecoder::new(max);
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(record)) = decoder.decode(&mut buffer) {
            prop_assert!(record.len() <= max);
        }
    }

    #[test]
    fn wanted_bytes_never_exceed_the_missing_ones(
        record in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let wire = fragments(&record.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let cut = cut.index(wire.len());
        let mut decoder = RecordDecoder::new(200);
        prop_assert_eq!(decoder.decode(&mut BytesMut::from(&wire[..cut])), Ok(None));
        prop_assert!(decoder.bytes_wanted() <= wire.len() - cut);
    }
}
