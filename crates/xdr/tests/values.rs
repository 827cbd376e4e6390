//! Encodings compared with bytes derived by hand from RFC 4506.

use bytes::Bytes;
use xdr::{
    Chain, Decode, DecodeError, Encode, InlineOpaque, List, Opaque, Reader, Writer, from_bytes, to_bytes,
};

#[derive(Debug, PartialEq, Encode, Decode)]
struct Pair {
    name: Opaque<5>,
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
enum Kind {
    Text = 0,
    Data = 1,
}

const TWO: u32 = 2;

#[derive(Debug, PartialEq, Encode, Decode)]
enum Union {
    #[xdr(case = 0)]
    Nothing,
    #[xdr(case = TWO)]
    Number(u32),
    #[xdr(default)]
    Other(u32, bool),
}

fn round_trip<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, wire: &[u8]) {
    assert_eq!(&to_bytes(value)[..], wire);
    assert_eq!(&from_bytes::<T>(Bytes::copy_from_slice(wire)).unwrap(), value);
    for length in 0..wire.len() {
        assert!(from_bytes::<T>(Bytes::copy_from_slice(&wire[..length])).is_err(), "cut at {length}");
    }
}

#[test]
fn encodes_structs_opaques_and_hypers() {
    let pair = Pair { name: Opaque::new(&b"abcde"[..]).unwrap(), size: 1 << 40 };
    round_trip(&pair, b"\0\0\0\x05abcde\0\0\0\0\0\x01\0\0\0\0\0");
}

#[test]
fn encodes_enumerations_and_unions() {
    round_trip(&Kind::Data, &[0, 0, 0, 1]);
    round_trip(&Kind::Text, &[0, 0, 0, 0]);
    assert_eq!(
        from_bytes::<Kind>(vec![0, 0, 0, 9]),
        Err(DecodeError::InvalidDiscriminant { type_name: "Kind", value: 9 })
    );
    round_trip(&Union::Nothing, &[0, 0, 0, 0]);
    round_trip(&Union::Number(7), &[0, 0, 0, 2, 0, 0, 0, 7]);
    round_trip(&Union::Other(9, true), &[0, 0, 0, 9, 0, 0, 0, 1]);
}

#[test]
fn encodes_lists_chains_and_options() {
    round_trip(&List::<u32, 2>::new(vec![1, 2]).unwrap(), &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    round_trip(&Chain::<u32, 2>::new(vec![5]).unwrap(), &[0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0]);
    round_trip(&Some(3u32), &[0, 0, 0, 1, 0, 0, 0, 3]);
    round_trip(&None::<u32>, &[0, 0, 0, 0]);
    round_trip(&InlineOpaque::<8>::new(b"xy").unwrap(), b"\0\0\0\x02xy\0\0");
}

#[test]
fn checks_bounds_before_reading() {
    let too_long = DecodeError::TooLong { length: 6, max: 5 };
    assert_eq!(from_bytes::<Opaque<5>>(&b"\0\0\0\x06abcdef\0\0"[..]), Err(too_long));
    assert_eq!(from_bytes::<InlineOpaque<5>>(&b"\0\0\0\x06abcdef\0\0"[..]), Err(too_long));
    let huge = DecodeError::TooLong { length: u32::MAX as usize, max: 2 };
    assert_eq!(from_bytes::<List<u32, 2>>(&[0xff; 4][..]), Err(huge));
    let chain = to_bytes(&Chain::<u32, 3>::new(vec![1, 2, 3]).unwrap());
    assert_eq!(from_bytes::<Chain<u32, 2>>(chain), Err(DecodeError::TooLong { length: 3, max: 2 }));
    assert_eq!(from_bytes::<bool>(&[0, 0, 0, 2][..]), Err(DecodeError::InvalidBool(2)));
    assert_eq!(from_bytes::<u32>(&[0; 5][..]), Err(DecodeError::TrailingBytes(1)));
}

#[derive(Debug)]
struct Elsewhere(Bytes);

impl xdr::External for Elsewhere {
    fn length(&self) -> usize {
        self.0.len()
    }
    fn bytes(&self) -> Option<&Bytes> {
        Some(&self.0)
    }
    fn descriptor(&self) -> Option<(std::os::fd::BorrowedFd<'_>, u64)> {
        None
    }
    fn copy_to(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset..offset + into.len()]);
    }
}

#[test]
fn writer_patches_rewinds_and_copies_external_parts() {
    let mut writer = Writer::new();
    let length = writer.reserve_u32();
    writer.u32(1);
    let before = writer.mark();
    writer.external(Box::new(Elsewhere(Bytes::from_static(b"gone"))));
    writer.u32(2);
    assert_eq!(writer.length_since(before), 8);
    writer.rewind(before);
    assert_eq!(writer.length(), 8);
    let payload = writer.mark();
    writer.external(Box::new(Elsewhere(Bytes::from_static(b"data"))));
    writer.u32(3);
    writer.patch_u32(length, writer.length() as u32);
    assert_eq!(&writer.copy_since(payload)[..], b"data\0\0\0\x03");
    assert_eq!(&writer.into_bytes()[..], b"\0\0\0\x10\0\0\0\x01data\0\0\0\x03");
}

#[test]
fn reader_shares_the_buffer() {
    let record = Bytes::from_static(b"\0\0\0\x04data\0\0\0\x01");
    let mut reader = Reader::new(record.clone());
    let data = reader.opaque(4).unwrap();
    assert_eq!(data.as_ptr(), record[4..].as_ptr());
    assert_eq!(&reader.since(0)[..], b"\0\0\0\x04data");
    assert_eq!(&reader.rest()[..], b"\0\0\0\x01");
    assert!(reader.finish().is_ok());
}
