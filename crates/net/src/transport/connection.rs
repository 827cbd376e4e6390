//! One connection: records out by gathered writes, records in without a copy.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use client::engine::{Action, ConnectionId, Engine};
use rpc::record::{HEADER_LENGTH, LAST_FRAGMENT, RecordDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Minimum room for a read.
const READ_SIZE: usize = 64 << 10;
/// Parts of one gathered write.
const PARTS_MAX: usize = 64;

/// A connection that carries records of an [`Engine`].
pub struct Carrier {
    stream: TcpStream,
    incoming: Incoming,
    /// The rest of a record that is being sent.
    unsent: VecDeque<Bytes>,
}

/// Received bytes of incomplete records.
struct Incoming {
    decoder: RecordDecoder,
    buffer: BytesMut,
}

impl Carrier {
    /// Takes an established connection. `record_max` is the maximum bytes of a record from the server.
    #[must_use]
    pub fn new(stream: TcpStream, record_max: usize) -> Self {
        let incoming = Incoming { decoder: RecordDecoder::new(record_max), buffer: BytesMut::new() };
        Self { stream, incoming, unsent: VecDeque::new() }
    }

    /// Runs `work`, which uses the engine, and carries its records meanwhile in the same task. The engine must have no connection but
    /// this one. When the connection ends, the engine is shut down, so that all calls of the work fail.
    pub async fn carry<T>(
        &mut self,
        engine: &Arc<Engine>,
        id: ConnectionId,
        work: impl Future<Output = T>,
    ) -> T {
        engine.handle_connected(id);
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            // Calls in flight fail with the known result, if the policy does not allow retries.
            _ = self.serve(engine, id) => engine.handle_disconnected(id),
            () = given_up(engine) => {}
        }
        engine.shut_down();
        work.await
    }

    /// Returns the connection. No record may be in flight.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Carries records in both directions until either ends.
    pub(super) async fn serve(&mut self, engine: &Engine, id: ConnectionId) -> io::Result<()> {
        let (reader, writer) = self.stream.split();
        tokio::select! {
            ended = self.incoming.receive(engine, id, reader) => ended,
            ended = send(engine, id, writer, &mut self.unsent) => ended,
        }
    }
}

/// Waits until the engine abandons its connection, and passes its deadlines meanwhile.
async fn given_up(engine: &Engine) {
    loop {
        match super::next_action(engine).await {
            Some(Action::Connect { .. }) => {}
            // It has one connection.
            Some(Action::Listen { .. }) => engine.handle_listening(None),
            Some(Action::Disconnect { .. }) | None => return,
        }
    }
}

impl Incoming {
    async fn receive(
        &mut self,
        engine: &Engine,
        id: ConnectionId,
        mut reader: ReadHalf<'_>,
    ) -> io::Result<()> {
        let Self { decoder, buffer } = self;
        loop {
            while let Some(record) = decoder.decode(buffer).map_err(io::Error::other)? {
                if !engine.handle_record(id, record) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            buffer.reserve(decoder.bytes_wanted().max(READ_SIZE));
            if reader.read_buf(buffer).await? == 0 {
                return Ok(());
            }
            engine.handle_bytes(id);
        }
    }
}

async fn send(
    engine: &Engine,
    id: ConnectionId,
    mut writer: WriteHalf<'_>,
    unsent: &mut VecDeque<Bytes>,
) -> io::Result<()> {
    loop {
        write_all(&mut writer, unsent).await?;
        let Some(record) = poll_fn(|context| engine.poll_record(id, context)).await else { return Ok(()) };
        let length: usize = record.iter().map(Bytes::len).sum();
        let mark = (length as u32 | LAST_FRAGMENT).to_be_bytes();
        debug_assert_eq!(mark.len(), HEADER_LENGTH);
        unsent.push_back(Bytes::copy_from_slice(&mark));
        unsent.extend(record);
    }
}

/// Writes all parts, several at a time.
async fn write_all(writer: &mut WriteHalf<'_>, parts: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !parts.is_empty() {
        let slices: Vec<IoSlice<'_>> = parts.iter().take(PARTS_MAX).map(|part| IoSlice::new(part)).collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(part) = parts.front_mut() {
            if written < part.len() {
                part.advance(written);
                break;
            }
            written -= part.len();
            parts.pop_front();
        }
    }
    Ok(())
}
