//! Splits a byte stream into replies, without copying unused data.

use bytes::Bytes;
use rpc::message::{self, ReplyHeader};
use xdr::{Decode, Reader};

use crate::operation::LARGE_BYTES;

/// The part of a reply that a check may look at; file data beyond it are only counted.
pub(crate) const HEAD_BYTES: usize = 1024;
/// Maximum length of a reply of a measured operation: its data and an ample head.
pub(crate) const REPLY_BYTES_MAX: usize = LARGE_BYTES as usize + 8 * HEAD_BYTES;

/// One complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// Its bytes from the xid on: all of them if it arrived in one piece, otherwise at most as many as the splitter keeps.
    pub(crate) head: &'a [u8],
    /// Its whole length in bytes, record marks not counted.
    pub(crate) length: usize,
}

impl Reply<'_> {
    /// Returns the transaction ID.
    pub(crate) fn xid(&self) -> Result<u32, String> {
        message::peek(self.head).map(|(xid, _)| xid).map_err(|error| error.to_string())
    }

    /// Decodes the results of an accepted and successful call, which must fill the reply to its last byte.
    pub(crate) fn results<T: Decode>(&self) -> Result<T, String> {
        if self.head.len() != self.length {
            return Err(format!("{} bytes, more than any right reply has", self.length));
        }
        message::parse_reply(Bytes::copy_from_slice(self.head)).map_err(|error| error.to_string())
    }

    /// Returns a reader of the head of an accepted and successful call, at the results.
    pub(crate) fn reader(&self) -> Result<Reader, String> {
        let mut reader = Reader::new(Bytes::copy_from_slice(&self.head[..self.head.len().min(HEAD_BYTES)]));
        let header = ReplyHeader::parse(&mut reader).map_err(|error| error.to_string())?;
        header.success().map_err(|error| error.to_string())?;
        Ok(reader)
    }
}

/// Cuts a stream into records. Whole records are passed on in place; one that is split over reads or fragments keeps
/// only its head.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// Length of the kept part of a head, in bytes.
    keeps: usize,
    /// Head of the record in progress.
    head: Vec<u8>,
    /// Bytes of the record in progress that were passed.
    length: usize,
    /// Bytes of its current fragment still to come.
    fragment_left: usize,
    /// The current fragment is the record's last.
    last: bool,
    /// A record is in progress.
    open: bool,
}

impl Splitter {
    /// Creates an empty state. It keeps `keeps` bytes of a record that is split over reads.
    pub(crate) fn keeping(keeps: usize) -> Self {
        Self { keeps, head: Vec::new(), length: 0, fragment_left: 0, last: false, open: false }
    }

    /// Hands every complete record of `bytes` to `visit` and returns how many bytes were used;
    /// the rest, shorter than a record mark, must come again in front of the next read.
    ///
    /// # Errors
    /// A record longer than [`REPLY_BYTES_MAX`], and the errors of `visit`.
    pub(crate) fn split(
        &mut self,
        bytes: &[u8],
        mut visit: impl FnMut(Reply<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut at = 0;
        loop {
            if self.fragment_left > 0 {
                let take = self.fragment_left.min(bytes.len() - at);
                let keep = take.min(self.keeps - self.head.len());
                self.head.extend_from_slice(&bytes[at..at + keep]);
                self.length += take;
                self.fragment_left -= take;
                at += take;
                if self.fragment_left > 0 {
                    return Ok(at);
                }
            }
            if self.open && self.last {
                visit(Reply { head: &self.head, length: self.length })?;
                self.open = false;
            }
            let Some(mark) = bytes.get(at..at + 4) else { return Ok(at) };
            let mark = u32::from_be_bytes(mark.try_into().expect("four bytes"));
            let length = (mark & !(1 << 31)) as usize;
            let last = mark >> 31 == 1;
            let started = if self.open { self.length } else { 0 };
            if length > REPLY_BYTES_MAX - started {
                return Err(format!("a record of {} bytes or more", started + length));
            }
            at += 4;
            match bytes.get(at..at + length) {
                Some(whole) if last && !self.open => {
                    visit(Reply { head: whole, length })?;
                    at += length;
                }
                _ => self.begin(length, last),
            }
        }
    }

    fn begin(&mut self, fragment_bytes: usize, last: bool) {
        if !self.open {
            self.head.clear();
            self.length = 0;
            self.open = true;
        }
        self.fragment_left = fragment_bytes;
        self.last = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fragments: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, fragment) in fragments.iter().enumerate() {
            let last = u32::from(index + 1 == fragments.len()) << 31;
            out.extend_from_slice(&(fragment.len() as u32 | last).to_be_bytes());
            out.extend_from_slice(fragment);
        }
        out
    }

    fn split_in_steps(stream: &[u8], step: usize) -> Vec<(Vec<u8>, usize)> {
        let mut splitter = Splitter::keeping(HEAD_BYTES);
        let mut seen = Vec::new();
        let mut waiting = Vec::new();
        for chunk in stream.chunks(step) {
            waiting.extend_from_slice(chunk);
            let used = splitter
                .split(&waiting, |reply| {
                    seen.push((reply.head[..reply.head.len().min(HEAD_BYTES)].to_vec(), reply.length));
                    Ok(())
                })
                .unwrap();
            waiting.drain(..used);
        }
        assert!(waiting.is_empty());
        seen
    }

    #[test]
    fn every_division_of_a_stream_gives_the_same_records() {
        let long = vec![9; 5000];
        let stream = [
            record(&[b"abcd"]),
            record(&[b"ef", b"", b"ghijk"]),
            record(&[&long]),
            record(&[b"x", &long, b""]),
            record(&[b"last"]),
        ]
        .concat();
        let mut split_head = vec![b'x'];
        split_head.extend_from_slice(&long[..HEAD_BYTES - 1]);
        let expected = vec![
            (b"abcd".to_vec(), 4),
            (b"efghijk".to_vec(), 7),
            (long[..HEAD_BYTES].to_vec(), 5000),
            (split_head, 5001),
            (b"last".to_vec(), 4),
        ];
        for step in [1, 2, 3, 5, 7, 100, 4096, stream.len()] {
            assert_eq!(split_in_steps(&stream, step), expected, "step {step}");
        }
    }

    #[test]
    fn a_long_record_is_whole_on_request() {
        let long: Vec<u8> = (0..5000).map(|byte| byte as u8).collect();
        let stream = record(&[b"x", &long]);
        let mut splitter = Splitter::keeping(REPLY_BYTES_MAX);
        let mut seen = Vec::new();
        for chunk in [&stream[..2000], &stream[2000..]] {
            let visit = |reply: Reply<'_>| {
                seen.extend_from_slice(reply.head);
                Ok(())
            };
            assert_eq!(splitter.split(chunk, visit), Ok(chunk.len()));
        }
        assert_eq!((seen[0], &seen[1..]), (b'x', &long[..]));
    }

    #[test]
    fn rejects_record_longer_than_limit_in_one_or_many_fragments() {
        let mut one = Splitter::keeping(HEAD_BYTES);
        assert!(one.split(&(1u32 << 31 | (REPLY_BYTES_MAX as u32 + 1)).to_be_bytes(), |_| Ok(())).is_err());
        let mut many = Splitter::keeping(HEAD_BYTES);
        let half = vec![0; REPLY_BYTES_MAX / 2 + 1];
        let stream = record(&[&half, &half]);
        assert!(many.split(&stream, |_| Ok(())).is_err());
    }

    #[test]
    fn only_an_accepted_success_that_ends_right_has_results() {
        // RFC 5531 §9: xid, REPLY, MSG_ACCEPTED, verifier (flavor, length, body), SUCCESS, results.
        let check = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            Reply { head: &bytes, length: bytes.len() }.results::<u32>().ok()
        };
        assert_eq!(check(&[5, 1, 0, 0, 0, 0, 42]), Some(42));
        assert_eq!(check(&[5, 1, 0, 6, 3, 0xaabb_cc00, 0, 42]), Some(42), "any verifier");
        assert_eq!(check(&[5, 1, 0, 0, 0, 0, 42, 43]), None, "trailing bytes");
        assert_eq!(check(&[5, 1, 0, 0, 0, 0]), None, "no results");
        assert_eq!(check(&[5, 1, 0, 0, 0, 1]), None, "PROG_UNAVAIL");
        assert_eq!(check(&[5, 1, 1, 1, 5]), None, "MSG_DENIED");
        assert_eq!(check(&[5, 0, 0, 0, 0, 0, 42]), None, "a call");
    }
}
