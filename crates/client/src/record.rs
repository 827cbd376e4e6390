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

    /// Adds opaque data of variable length, with length and padding.
    pub(crate) fn opaque(&mut self, data: &Bytes) {
        if data.len() < SHARED_FROM {
            return self.writer.opaque(data);
        }
        self.writer.u32(data.len() as u32);
        self.parts.push(std::mem::take(&mut self.writer).into_bytes());
        self.parts.push(data.clone());
        self.writer.raw(&[0; 4][..padding(data.len())]);
    }

    /// Returns the record.
    pub(crate) fn finish(mut self) -> Record {
        if !self.writer.is_empty() {
            self.parts.push(self.writer.into_bytes());
        }
        self.parts
    }
}

/// Joins the parts of a record.
#[cfg(test)]
pub(crate) fn joined(record: &[Bytes]) -> Bytes {
    record.concat().into()
}
