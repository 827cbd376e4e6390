//! Data of READ and cached listings for a reply: short data are copied, long data are sent without a copy.

use std::os::fd::BorrowedFd;

use bytes::Bytes;
use vfs::{FileRange, Payload};
use xdr::{External, Writer};

/// Data up to this many bytes are copied into the reply: a separate part costs the transport more than a copy (measured at 4 KiB:
/// sendfile takes four times as long as copying).
const COPY_AT_MOST: usize = 8 << 10;

/// The longest READ that is tried before a future is made for it, in bytes. A longer one could copy its cached part twice if the rest is
/// not in memory.
pub(crate) const AT_ONCE_MAX: u32 = 16 << 10;

/// Appends the `count` bytes of a READ and their padding (RFC 4506 §4.10) to the reply. Their length was written
/// before; [`Payload::Appended`] data are in the buffer already.
pub(crate) fn attach(reply: &mut Writer, payload: Payload, count: u32) {
    match payload {
        Payload::Appended => {}
        Payload::Bytes(bytes) => share(reply, bytes),
        Payload::Range(range) => reply.external(Box::new(InFile(range))),
    }
    reply.pad(count as usize);
}

/// Appends shared bytes to the reply.
pub(crate) fn share(reply: &mut Writer, bytes: Bytes) {
    if bytes.len() <= COPY_AT_MOST { reply.raw(&bytes) } else { reply.external(Box::new(Shared(bytes))) }
}

/// Memory that is sent without a copy.
#[derive(Debug)]
struct Shared(Bytes);

impl External for Shared {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> Option<&Bytes> {
        Some(&self.0)
    }

    fn descriptor(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    fn copy_to(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset..offset + into.len()]);
    }
}

/// A range of a file that the connection sends from the page cache.
#[derive(Debug)]
struct InFile(FileRange);

impl External for InFile {
    fn length(&self) -> usize {
        self.0.length as usize
    }

    fn bytes(&self) -> Option<&Bytes> {
        None
    }

    fn descriptor(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.0.source.descriptor(), self.0.offset))
    }

    fn failed(&self) {
        self.0.source.failed();
    }

    fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.0.source.read_at(self.0.offset + offset as u64, into);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use vfs::RangeSource;
    use xdr::Part;

    use super::*;

    /// A file whose byte at offset `n` is `n` (mod 256).
    #[derive(Debug)]
    struct Counting(std::io::Stdin);

    impl RangeSource for Counting {
        fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn failed(&self) {}

        fn read_at(&self, offset: u64, into: &mut [u8]) {
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = (offset + at as u64) as u8;
            }
        }
    }

    fn written(payload: Payload, count: u32) -> Writer {
        let mut reply = Writer::new();
        reply.u32(count);
        attach(&mut reply, payload, count);
        reply
    }

    #[test]
    fn copies_short_data_and_pads_them() {
        let reply = written(Payload::Bytes(Bytes::from_static(b"enfys")), 5);
        assert!(!reply.has_externals());
        assert_eq!(reply.inline(), b"\0\0\0\x05enfys\0\0\0");
    }

    #[test]
    fn shares_long_data() {
        let long = Bytes::from(vec![7; COPY_AT_MOST + 1]);
        let reply = written(Payload::Bytes(long.clone()), long.len() as u32);
        let mut pieces = Vec::new();
        reply.for_each_part(|part| match part {
            Part::Inline(bytes) => pieces.push(bytes.len()),
            Part::External(external) => {
                assert_eq!(external.bytes().map(|b| b.as_ptr()), Some(long.as_ptr()));
                pieces.push(external.length());
            }
        });
        assert_eq!(pieces, [4, COPY_AT_MOST + 1, 3]);
    }

    #[test]
    fn a_range_of_a_file_stays_in_the_file() {
        let range = FileRange { source: Arc::new(Counting(std::io::stdin())), offset: 250, length: 10 };
        let reply = written(Payload::Range(range), 10);
        reply.for_each_part(|part| {
            if let Part::External(external) = part {
                assert_eq!(external.descriptor().map(|(_, offset)| offset), Some(250));
                let mut middle = [0; 4];
                external.copy_to(4, &mut middle);
                assert_eq!(middle, [254, 255, 0, 1]);
            }
        });
        assert_eq!(reply.length(), 16);
        assert_eq!(&reply.into_bytes()[4..], &[250, 251, 252, 253, 254, 255, 0, 1, 2, 3, 0, 0]);
    }
}
