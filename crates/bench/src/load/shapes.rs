//! Forms of requests that several versions have: equal ones, READs and WRITEs whose offset alone differs.

use bytes::Bytes;
use xdr::Reader;

use super::replies::Reply;
use super::template::{Template, patch};
use super::workload::{Offsets, Outcome, Workload};
use crate::layout;

/// An operation whose requests are all equal.
pub(super) struct Plain<C> {
    pub(super) template: Template,
    /// Checks a reply.
    pub(super) check: C,
}

impl<C: Fn(&Reply<'_>) -> Result<(), String>> Workload for Plain<C> {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.template.append(xid, out);
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        (self.check)(reply).map(|()| Outcome::Finished)
    }
}

/// A request in which only the offset differs.
pub(super) struct AtOffset {
    template: Template,
    /// Where the offset is, and its length in bytes.
    at: usize,
    width: usize,
}

impl AtOffset {
    /// Finds the offset, which is `width` bytes long, by two encodings of the request: with the offsets 0 and -1.
    pub(super) fn new(first: Template, last: &Template, width: usize) -> Self {
        let at = Template::field(&first, last);
        Self { template: first, at, width }
    }

    fn append(&self, xid: u32, offset: u64, out: &mut Vec<u8>) {
        let start = self.template.append(xid, out);
        // The files are far shorter than 4 GiB.
        patch(out, start + self.at, &offset.to_be_bytes()[8 - self.width..]);
    }
}

/// READ.
pub(super) struct Read<H> {
    request: AtOffset,
    count: u32,
    offsets: Offsets,
    /// The offset that each slot requested.
    asked: Vec<u64>,
    /// Reads and checks everything before the data; returns their length.
    head: H,
}

impl<H> Read<H> {
    pub(super) fn new(request: AtOffset, count: u32, offsets: Offsets, depth: usize, head: H) -> Self {
        Self { request, count, offsets, asked: vec![0; depth], head }
    }
}

impl<H: Fn(&mut Reader) -> Result<u32, String>> Workload for Read<H> {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let offset = self.offsets.next();
        self.asked[slot] = offset;
        self.request.append(xid, offset, out);
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        // The data are too long to be decoded as a value: everything before them is, then their first word.
        let mut reader = reply.reader()?;
        let length = (self.head)(&mut reader)?;
        if length != self.count {
            return Err(format!("{length} bytes of data instead of {}", self.count));
        }
        let at = reader.position();
        let word = reader.opaque_fixed::<8>().map_err(|error| error.to_string())?;
        if word != layout::pattern_word(self.asked[slot]) {
            return Err(format!("other data than the file holds at {}", self.asked[slot]));
        }
        match at + self.count as usize {
            end if end == reply.length => Ok(Outcome::Finished),
            end => Err(format!("{} bytes instead of {end}", reply.length)),
        }
    }
}

/// WRITE of the same data at different offsets.
pub(super) struct Write<C> {
    request: AtOffset,
    offsets: Offsets,
    payload: Bytes,
    /// Checks a reply.
    check: C,
}

/// Returns the data of a WRITE.
pub(super) fn payload(count: u32) -> Bytes {
    let mut payload = vec![0; count as usize];
    layout::fill_pattern(0, &mut payload);
    Bytes::from(payload)
}

impl<C> Write<C> {
    /// `request` lacks the payload.
    pub(super) fn new(request: AtOffset, offsets: Offsets, payload: Bytes, check: C) -> Self {
        Self { request, offsets, payload, check }
    }
}

impl<C: FnMut(&Reply<'_>) -> Result<(), String>> Workload for Write<C> {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.request.append(xid, self.offsets.next(), out);
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        (self.check)(reply).map(|()| Outcome::Finished)
    }
}
