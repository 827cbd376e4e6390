use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use xdr::{External, Part, Writer};

use crate::pool;

/// Replies up to this length are gathered into one write by copying; longer ones leave from where they are.
const GATHER_AT_MOST: usize = 16 << 10;

/// Bytes that wait to be sent before a connection's next calls are looked at.
const HIGH_WATER: usize = 256 << 10;

/// Bytes sent at once from a source that has no descriptor.
const COPY_AT_ONCE: usize = 256 << 10;

/// What a connection has to send, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    queue: VecDeque<Chunk>,
    /// Behind everything in the queue.
    tail: BytesMut,
    length: usize,
}

#[derive(Debug)]
enum Chunk {
    Inline(BytesMut),
    /// A long reply in a buffer of its own, which goes back to the pool.
    Whole {
        reply: BytesMut,
        sent: usize,
    },
    External {
        source: Box<dyn External>,
        sent: usize,
    },
}

impl Output {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether enough waits that it should be sent before more is produced.
    pub(crate) fn is_high(&self) -> bool {
        self.length >= HIGH_WATER
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Appends a whole record; `writer` comes back empty, with its memory if that was copied from.
    pub(crate) fn push(&mut self, writer: &mut Writer) {
        self.length += writer.length();
        if !writer.has_externals() && writer.length() <= GATHER_AT_MOST {
            self.append(writer.inline());
            writer.clear();
            return;
        }
        let (mut inline, externals) = std::mem::take(writer).into_parts();
        if externals.is_empty() {
            self.close_tail();
            self.queue.push_back(Chunk::Whole { reply: inline, sent: 0 });
            return;
        }
        let mut taken = 0;
        for (offset, source) in externals {
            self.push_inline(inline.split_to(offset - taken));
            taken = offset;
            self.close_tail();
            self.queue.push_back(Chunk::External { source, sent: 0 });
        }
        self.push_inline(inline);
    }

    fn push_inline(&mut self, bytes: BytesMut) {
        if bytes.len() <= GATHER_AT_MOST {
            self.append(&bytes);
        } else {
            self.close_tail();
            self.queue.push_back(Chunk::Inline(bytes));
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queue.push_back(Chunk::Inline(self.tail.split()));
        }
    }

    /// Sends everything.
    ///
    /// # Errors
    /// What the socket says; `TimedOut` where the peer takes nothing for `stall_timeout`.
    pub(crate) async fn flush(&mut self, stream: &TcpStream, stall_timeout: Duration) -> io::Result<()> {
        while !self.is_empty() {
            match self.send_some(stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match tokio::time::timeout(stall_timeout, stream.writable()).await {
                        Ok(ready) => ready?,
                        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends from the front with one system call.
    fn send_some(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let more_follows = self.queue.len() > 1 || !self.tail.is_empty();
        let sent = match self.queue.front_mut() {
            None => {
                let sent = stream.try_io(Interest::WRITABLE, || send(stream, &self.tail, false))?;
                self.tail.advance(sent);
                sent
            }
            Some(Chunk::Inline(bytes)) => {
                let sent = stream.try_io(Interest::WRITABLE, || send(stream, bytes, more_follows))?;
                bytes.advance(sent);
                if bytes.is_empty() {
                    self.queue.pop_front();
                }
                sent
            }
            Some(Chunk::Whole { reply, sent }) => {
                let count =
                    stream.try_io(Interest::WRITABLE, || send(stream, &reply[*sent..], more_follows))?;
                *sent += count;
                if *sent == reply.len() {
                    pool::give_sent_reply(std::mem::take(reply));
                    self.queue.pop_front();
                }
                count
            }
            Some(Chunk::External { source, sent }) => {
                let count = send_external(stream, source.as_ref(), *sent, more_follows)?;
                *sent += count;
                if *sent == source.length() {
                    self.queue.pop_front();
                }
                count
            }
        };
        self.length -= sent;
        if self.length == 0 {
            // Nothing refers to the memory any more: the next reply starts at its front again.
            self.tail.clear();
        }
        Ok(sent)
    }

    /// Gives back memory that an idle connection should not hold.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.is_empty());
        pool::give_output_buffer(std::mem::take(&mut self.tail));
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.tail.capacity() == 0 {
            self.tail = pool::take_output_buffer();
        }
        self.tail.extend_from_slice(bytes);
    }
}

/// MSG_MORE keeps a header and the data that `sendfile` brings behind it in full segments.
fn send(stream: &TcpStream, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
    let more = if more_follows { SendFlags::MORE } else { SendFlags::empty() };
    Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL | more)?)
}

/// Whether it was reading that failed: of a bad sector (EIO), or of a remote file that is gone.
fn is_about_the_file(sent: &rustix::io::Result<usize>) -> bool {
    use rustix::io::Errno;
    matches!(sent, Err(Errno::IO | Errno::STALE | Errno::NODATA | Errno::ILSEQ | Errno::UCLEAN))
}

fn send_external(
    stream: &TcpStream,
    source: &dyn External,
    sent: usize,
    more_follows: bool,
) -> io::Result<usize> {
    let left = source.length() - sent;
    if let Some(bytes) = source.bytes() {
        return stream.try_io(Interest::WRITABLE, || send(stream, &bytes[sent..], more_follows));
    }
    if let Some((descriptor, offset)) = source.descriptor() {
        let mut position = offset + sent as u64;
        let count = stream.try_io(Interest::WRITABLE, || {
            let sent = rustix::fs::sendfile(stream, descriptor, Some(&mut position), left);
            if is_about_the_file(&sent) {
                source.failed();
            }
            Ok(sent?)
        })?;
        if count > 0 {
            return Ok(count);
        }
        // The file ends before the range does: somebody truncated it since the reply was begun. Zeros follow, as if the
        // read had come a moment later in a file that is sparse there.
    }
    let mut copy = vec![0; left.min(COPY_AT_ONCE)];
    source.copy_to(sent, &mut copy);
    stream.try_io(Interest::WRITABLE, || send(stream, &copy, more_follows))
}

/// Writes a record's parts into one buffer: for datagrams.
pub(crate) fn gather(writer: &Writer, into: &mut Vec<u8>) {
    into.clear();
    writer.for_each_part(|part| match part {
        Part::Inline(bytes) => into.extend_from_slice(bytes),
        Part::External(source) => {
            let start = into.len();
            into.resize(start + source.length(), 0);
            source.copy_to(0, &mut into[start..]);
        }
    });
}
