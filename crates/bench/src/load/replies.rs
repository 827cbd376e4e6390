//! From a byte stream to replies, without copying what nobody looks at.

use crate::operation::LARGE_BYTES;

/// The part of a reply that a check may look at; file data beyond it are only counted.
pub(crate) const HEAD_BYTES: usize = 1024;
/// No reply of a measured operation is longer: its data, and a generous head.
pub(crate) const REPLY_BYTES_MAX: usize = LARGE_BYTES as usize + 8 * HEAD_BYTES;

/// One complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// Its first bytes, from the xid on, at most [`HEAD_BYTES`] unless it arrived in one piece.
    pub(crate) head: &'a [u8],
    /// Its whole length in bytes, record marks not counted.
    pub(crate) length: usize,
}

impl Reply<'_> {
    /// The big-endian word at `at`; a reply that ends before it is an error.
    pub(crate) fn word(&self, at: usize) -> Result<u32, String> {
        let bytes = self.head.get(at..at + 4).ok_or_else(|| format!("ends at byte {}", self.length))?;
        Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    /// Checks the RPC reply header and returns where the results start.
    pub(crate) fn results(&self) -> Result<usize, String> {
        // RFC 5531 §9: msg_type REPLY = 1, reply_stat MSG_ACCEPTED = 0.
        if (self.word(4)?, self.word(8)?) != (1, 0) {
            return Err(format!("not an accepted reply: {:02x?}", &self.head[..self.head.len().min(24)]));
        }
        // RFC 5531 §8.2: the verifier's body is opaque<400>.
        let verifier_bytes = self.word(16)? as usize;
        if verifier_bytes > 400 {
            return Err(format!("a verifier of {verifier_bytes} bytes"));
        }
        let at = 20 + verifier_bytes.next_multiple_of(4);
        match self.word(at)? {
            0 => Ok(at + 4),
            status => Err(format!("accept_stat {status}")),
        }
    }
}

/// Cuts a stream into records. Whole records are handed on in place; one that is split over reads or fragments keeps
/// only its head.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// Head of the record in progress.
    head: Vec<u8>,
    /// Bytes of the record in progress that have gone by.
    length: usize,
    /// Bytes of its current fragment still to come.
    fragment_left: usize,
    /// The current fragment is the record's last.
    last: bool,
    /// A record is in progress.
    open: bool,
}

impl Splitter {
    /// Hands every complete record of `bytes` to `visit` and returns how many bytes were used;
    /// the rest, shorter than a record mark, must come again in front of the next read.
    ///
    /// # Errors
    /// A record longer than [`REPLY_BYTES_MAX`], and whatever `visit` answers.
    pub(crate) fn split(
        &mut self,
        bytes: &[u8],
        mut visit: impl FnMut(Reply<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut at = 0;
        loop {
            if self.fragment_left > 0 {
                let take = self.fragment_left.min(bytes.len() - at);
                let keep = take.min(HEAD_BYTES - self.head.len());
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
        let mut splitter = Splitter::default();
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
    fn records_come_out_alike_however_the_stream_is_cut() {
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
    fn rejects_record_longer_than_limit_in_one_or_many_fragments() {
        let mut one = Splitter::default();
        assert!(one.split(&(1u32 << 31 | (REPLY_BYTES_MAX as u32 + 1)).to_be_bytes(), |_| Ok(())).is_err());
        let mut many = Splitter::default();
        let half = vec![0; REPLY_BYTES_MAX / 2 + 1];
        let stream = record(&[&half, &half]);
        assert!(many.split(&stream, |_| Ok(())).is_err());
    }

    #[test]
    fn results_start_after_any_verifier_and_only_success_passes() {
        let reply = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let check = |bytes: &[u8]| Reply { head: bytes, length: bytes.len() }.results();
        assert_eq!(check(&reply(&[5, 1, 0, 0, 0, 0])), Ok(24));
        assert_eq!(check(&reply(&[5, 1, 0, 6, 3, 0xaabb_cc00, 0])), Ok(28));
        assert_eq!(check(&reply(&[5, 1, 0, 0, 0, 1])), Err("accept_stat 1".into()));
        assert!(check(&reply(&[5, 1, 1, 0, 0, 0])).is_err(), "MSG_DENIED");
        assert!(check(&reply(&[5, 0, 0, 0, 0, 0])).is_err(), "a call");
        assert!(check(&reply(&[5, 1, 0, 6, 404])).is_err(), "verifier too long");
        assert!(check(&reply(&[5, 1, 0])).is_err(), "cut off");
    }
}
