//! Buffers shared by the connections of a core. An idle connection holds none, so that thousands of them cost little, and the few
//! buffers in use stay in the processor's cache.

use std::cell::RefCell;

use bytes::BytesMut;
use xdr::Writer;

/// Bytes of a receive buffer; longer records make it grow.
pub(crate) const RECEIVE_BUFFER: usize = 64 << 10;

/// Bytes of a reply before it grows.
const REPLY_BUFFER: usize = 4 << 10;

/// Bytes of a buffer for gathered replies before it grows.
const OUTPUT_BUFFER: usize = 16 << 10;

/// A buffer that grew beyond this is not kept: a core's cache holds about 2 MiB.
const KEEP_AT_MOST: usize = 2 << 20;

/// The same for a reply that was sent separately: large enough for a listing.
const KEEP_SENT_AT_MOST: usize = 512 << 10;

/// Buffers of a kind that a core keeps.
const BUFFERS_KEPT: usize = 8;

#[derive(Default)]
struct Pool {
    receive: Vec<BytesMut>,
    replies: Vec<BytesMut>,
    output: Vec<BytesMut>,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

fn take(kind: impl FnOnce(&mut Pool) -> &mut Vec<BytesMut>, capacity: usize) -> BytesMut {
    let kept = POOL.with_borrow_mut(|pool| kind(pool).pop());
    kept.unwrap_or_else(|| BytesMut::with_capacity(capacity))
}

fn give(kind: impl FnOnce(&mut Pool) -> &mut Vec<BytesMut>, mut buffer: BytesMut) {
    buffer.clear();
    POOL.with_borrow_mut(|pool| {
        let kept = kind(pool);
        if buffer.capacity() > 0 && buffer.capacity() <= KEEP_AT_MOST && kept.len() < BUFFERS_KEPT {
            kept.push(buffer);
        }
    });
}

pub(crate) fn take_receive_buffer() -> BytesMut {
    take(|pool| &mut pool.receive, RECEIVE_BUFFER)
}

pub(crate) fn give_receive_buffer(buffer: BytesMut) {
    give(|pool| &mut pool.receive, buffer);
}

pub(crate) fn take_reply_buffer() -> Writer {
    Writer::with_buffer(take(|pool| &mut pool.replies, REPLY_BUFFER))
}

pub(crate) fn give_reply_buffer(reply: Writer) {
    give(|pool| &mut pool.replies, reply.into_parts().0);
}

/// Returns the memory of a long reply that was sent from its own buffer, so that the next long reply need not grow into fresh pages.
pub(crate) fn give_sent_reply(buffer: BytesMut) {
    if buffer.capacity() <= KEEP_SENT_AT_MOST {
        give(|pool| &mut pool.replies, buffer);
    }
}

pub(crate) fn take_output_buffer() -> BytesMut {
    take(|pool| &mut pool.output, OUTPUT_BUFFER)
}

pub(crate) fn give_output_buffer(buffer: BytesMut) {
    give(|pool| &mut pool.output, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_long_replies_is_reused_up_to_a_limit() {
        for (length, expected) in
            [(KEEP_SENT_AT_MOST, KEEP_SENT_AT_MOST), (KEEP_SENT_AT_MOST + 1, REPLY_BUFFER)]
        {
            let mut reply = BytesMut::with_capacity(length);
            reply.extend_from_slice(b"sent");
            give_sent_reply(reply);
            let (buffer, _) = take_reply_buffer().into_parts();
            assert_eq!((buffer.len(), buffer.capacity()), (0, expected));
        }
    }
}
