use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use xdr::{External, Part, Writer};

use crate::end::{End, Stall};
use crate::pool;

/// Replies up to this length are copied into one write; longer ones are sent from their own memory.
const GATHER_AT_MOST: usize = 16 << 10;

/// Bytes of unsent replies above which no further calls are started.
const HIGH_WATER: usize = 256 << 10;

/// Maximum time for the unsent replies, in stall timeouts, even if the peer reads them steadily.
const SEND_TIMEOUTS_MAX: u32 = 5;

/// Bytes sent at once from a source that has no descriptor.
const COPY_AT_ONCE: usize = 256 << 10;

/// Replies and callbacks that a connection has to send, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    queue: VecDeque<Chunk>,
    /// Inline bytes after everything in the queue.
    tail: BytesMut,
    length: usize,
}

#[derive(Debug)]
enum Chunk {
    Inline(BytesMut),
    /// A long reply in its own buffer, which returns to the pool.
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
    /// Returns whether nothing is unsent.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns whether so much is unsent that it should be sent before more is produced.
    pub(crate) fn is_high(&self) -> bool {
        self.length >= HIGH_WATER
    }

    /// Unsent bytes.
    #[cfg(test)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Appends a whole record. `writer` is left empty, with its memory if the record was copied.
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
    /// The socket's error; [`Stall::Receiving`] if the peer reads nothing for `stall_timeout`, or not everything within
    /// [`SEND_TIMEOUTS_MAX`] times that.
    pub(crate) async fn flush(&mut self, stream: &TcpStream, stall_timeout: Duration) -> Result<(), End> {
        let mut deadline = None;
        let mut attempt = Attempt::WhenReady;
        let mut has_sent = false;
        while !self.is_empty() {
            match self.send_some(stream, attempt) {
                Ok(0) => return Err(End::Io(io::ErrorKind::WriteZero.into())),
                Ok(_) => has_sent = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = tokio::time::Instant::now();
                    let deadline = *deadline.get_or_insert(now + stall_timeout * SEND_TIMEOUTS_MAX);
                    let is_stalled = attempt == Attempt::Now && !has_sent;
                    if is_stalled || now >= deadline {
                        return Err(End::Stalled(Stall::Receiving { unsent: self.length }));
                    }
                    has_sent = false;
                    let until = deadline.min(now + stall_timeout);
                    attempt = match tokio::time::timeout_at(until, stream.writable()).await {
                        Ok(ready) => ready.map(|()| Attempt::WhenReady)?,
                        Err(_) => Attempt::Now,
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends from the front with one system call.
    fn send_some(&mut self, stream: &TcpStream, attempt: Attempt) -> io::Result<usize> {
        let more_follows = self.queue.len() > 1 || !self.tail.is_empty();
        let sent = match self.queue.front_mut() {
            None => {
                let sent = attempt.on(stream, || send(stream, &self.tail, false))?;
                self.tail.advance(sent);
                sent
            }
            Some(Chunk::Inline(bytes)) => {
                let sent = attempt.on(stream, || send(stream, bytes, more_follows))?;
                bytes.advance(sent);
                if bytes.is_empty() {
                    self.queue.pop_front();
                }
                sent
            }
            Some(Chunk::Whole { reply, sent }) => {
                let count = attempt.on(stream, || send(stream, &reply[*sent..], more_follows))?;
                *sent += count;
                if *sent == reply.len() {
                    pool::give_sent_reply(std::mem::take(reply));
                    self.queue.pop_front();
                }
                count
            }
            Some(Chunk::External { source, sent }) => {
                let count = send_external(stream, source.as_ref(), *sent, more_follows, attempt)?;
                *sent += count;
                if *sent == source.length() {
                    self.queue.pop_front();
                }
                count
            }
        };
        self.length -= sent;
        if self.length == 0 {
            // The memory is unreferenced now: the next reply starts at its beginning.
            self.tail.clear();
        }
        Ok(sent)
    }

    /// Returns memory that an idle connection should not hold.
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

/// Whether to try a write before epoll(7) reports the socket as writable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    WhenReady,
    /// A socket is reported as writable once a third of its send buffer is free. That may be a megabyte, for which a slow peer needs
    /// longer than the timeout; the socket takes bytes as soon as any of the buffer is free.
    Now,
}

impl Attempt {
    fn on(self, stream: &TcpStream, send: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        match self {
            Self::WhenReady => stream.try_io(Interest::WRITABLE, send),
            Self::Now => send(),
        }
    }
}

/// MSG_MORE keeps a header and the following data of `sendfile` in full segments.
fn send(stream: &TcpStream, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
    let more = if more_follows { SendFlags::MORE } else { SendFlags::empty() };
    Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL | more)?)
}

/// Returns whether reading the file failed: a bad sector (EIO), or a removed remote file.
fn is_about_the_file(sent: &rustix::io::Result<usize>) -> bool {
    use rustix::io::Errno;
    matches!(sent, Err(Errno::IO | Errno::STALE | Errno::NODATA | Errno::ILSEQ | Errno::UCLEAN))
}

fn send_external(
    stream: &TcpStream,
    source: &dyn External,
    sent: usize,
    more_follows: bool,
    attempt: Attempt,
) -> io::Result<usize> {
    let left = source.length() - sent;
    if let Some(bytes) = source.bytes() {
        return attempt.on(stream, || send(stream, &bytes[sent..], more_follows));
    }
    if let Some((descriptor, offset)) = source.descriptor() {
        let mut position = offset + sent as u64;
        let count = attempt.on(stream, || {
            let sent = rustix::fs::sendfile(stream, descriptor, Some(&mut position), left);
            if is_about_the_file(&sent) {
                source.failed();
            }
            Ok(sent?)
        })?;
        if count > 0 {
            return Ok(count);
        }
        // The file was truncated since the reply was started. Zeros follow, as if it were sparse there.
    }
    let mut copy = vec![0; left.min(COPY_AT_ONCE)];
    source.copy_to(sent, &mut copy);
    attempt.on(stream, || send(stream, &copy, more_follows))
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// A peer with a short receive buffer, and the server's end of its connection.
    fn connection() -> (std::net::TcpStream, TcpStream) {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let peer = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_recv_buffer_size(&peer, 64 << 10).expect("an option");
        connect(&peer, &address).expect("a connection");
        let (ours, _) = listener.accept().expect("a connection");
        ours.set_nonblocking(true).expect("an option");
        (peer.into(), TcpStream::from_std(ours).expect("a runtime"))
    }

    /// Flushes until the peer counts as stalled; returns the remaining bytes.
    async fn flush_in_vain(output: &mut Output, stream: &TcpStream) -> usize {
        match output.flush(stream, Duration::from_millis(20)).await {
            Err(End::Stalled(Stall::Receiving { unsent })) => unsent,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_slow_peer_makes_progress_before_the_socket_is_writable() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let (mut peer, stream) = connection();
            let mut output = Output::default();
            for _ in 0..64 {
                let mut reply = Writer::new();
                reply.raw(&vec![0; 1 << 20]);
                output.push(&mut reply);
            }
            let unsent = flush_in_vain(&mut output, &stream).await;
            // Twice the size of its receive buffer: some of the server's send buffer is free, but less than a third.
            peer.read_exact(&mut vec![0; 256 << 10]).expect("the first bytes");
            let unsent_then = flush_in_vain(&mut output, &stream).await;
            assert!(unsent_then < unsent, "{unsent_then} of {unsent} bytes remain");
        });
    }
}
