//! One connection: records out by gathered writes, records in without a copy.

use std::future::poll_fn;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use client::engine::{ConnectionId, Engine};
use rpc::record::{HEADER_LENGTH, LAST_FRAGMENT, RecordDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Least room for a read.
const READ_SIZE: usize = 64 << 10;
/// Parts of one gathered write.
const PARTS_MAX: usize = 64;

/// Carries records in both directions until either ends.
pub(super) async fn serve(
    engine: &Engine,
    id: ConnectionId,
    mut stream: TcpStream,
    record_max: usize,
) -> io::Result<()> {
    let (reader, writer) = stream.split();
    tokio::select! {
        ended = receive(engine, id, reader, record_max) => ended,
        ended = send(engine, id, writer) => ended,
    }
}

async fn receive(
    engine: &Engine,
    id: ConnectionId,
    mut reader: ReadHalf<'_>,
    record_max: usize,
) -> io::Result<()> {
    let (mut decoder, mut buffer) = (RecordDecoder::new(record_max), BytesMut::new());
    loop {
        while let Some(record) = decoder.decode(&mut buffer).map_err(io::Error::other)? {
            if !engine.handle_record(id, record) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        buffer.reserve(decoder.bytes_wanted().max(READ_SIZE));
        if reader.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

async fn send(engine: &Engine, id: ConnectionId, mut writer: WriteHalf<'_>) -> io::Result<()> {
    while let Some(record) = poll_fn(|context| engine.poll_record(id, context)).await {
        let length: usize = record.iter().map(Bytes::len).sum();
        let mark = (length as u32 | LAST_FRAGMENT).to_be_bytes();
        debug_assert_eq!(mark.len(), HEADER_LENGTH);
        let mut parts = Vec::with_capacity(record.len() + 1);
        parts.push(Bytes::copy_from_slice(&mark));
        parts.extend(record);
        write_all(&mut writer, parts).await?;
    }
    Ok(())
}

/// Writes all parts, several at a time.
async fn write_all(writer: &mut WriteHalf<'_>, parts: Vec<Bytes>) -> io::Result<()> {
    let mut parts = std::collections::VecDeque::from(parts);
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
