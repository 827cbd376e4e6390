//! Records under construction, whose large data are not copied.

use bytes::Bytes;
use xdr::{Writer, padding};

use crate::engine::Record;

/// Data from this many bytes on are a part of their own; fewer are copied.
pub(crate) const SHARED_FROM: usize = 4096;

/// Writes a record as a list of parts.
#[derive(Default)]
pub(crate) struct RecordWriter {
    parts: Record,
    writer: Writer,
}

impl RecordWriter {
    /// Returns the writer of the rest.
    pub(crate) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Adds opaque data of variable length that consist of these parts, with length and padding.
    pub(crate) fn opaque(&mut self, data: &[Bytes]) {
        let length = length(data);
        self.writer.u32(length as u32);
        for part in data {
            if part.len() < SHARED_FROM {
                self.writer.raw(part);
                continue;
            }
            self.parts.push(std::mem::take(&mut self.writer).into_bytes());
            self.parts.push(part.clone());
        }
        self.writer.raw(&[0; 4][..padding(length)]);
    }

    /// Returns the record.
    pub(crate) fn finish(mut self) -> Record {
        if !self.writer.is_empty() {
            self.parts.push(self.writer.into_bytes());
        }
        self.parts
    }
}

/// Returns the number of bytes in parts.
pub(crate) fn length(parts: &[Bytes]) -> usize {
    parts.iter().map(Bytes::len).sum()
}

/// Returns the first bytes of data in parts.
pub(crate) fn first_bytes(data: &[Bytes], max: usize) -> Vec<Bytes> {
    let mut left = max;
    let parts = data.iter().map(|part| {
        let taken = part.slice(..part.len().min(left));
        left -= taken.len();
        taken
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Joins the parts of a record.
#[cfg(test)]
pub(crate) fn joined(record: &[Bytes]) -> Bytes {
    record.concat().into()
}
