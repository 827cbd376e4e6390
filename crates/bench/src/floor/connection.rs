//! One connection of the floor: a read, all its complete records, one write.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::calls::{Answer, Files};
use super::replies::Replies;
use super::unsynced::Unsynced;
use crate::operation::LARGE_BYTES;

/// First read of a batch: small enough that a large record's rest can follow to its end in one piece.
const FIRST_READ_BYTES: usize = 256 << 10;
/// The receive buffer: an incomplete first read, and the rest of the largest record.
const BUFFER_BYTES: usize = FIRST_READ_BYTES + LARGE_BYTES as usize + (4 << 10);

/// Serves until the client closes the connection or sends something that the floor does not support.
pub(super) async fn run(stream: TcpStream, files: &'static Files) {
    if let Err(error) = serve(stream, files).await
        && error.kind() == io::ErrorKind::InvalidData
    {
        eprintln!("floor: {error}");
    }
}

async fn serve(mut stream: TcpStream, files: &'static Files) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut replies = Replies::new();
    let mut unsynced = Unsynced::default();
    let mut filled = 0;
    loop {
        let limit = read_limit(&buffer[..filled])?;
        match stream.read(&mut buffer[filled..limit]).await? {
            0 => return Ok(()),
            bytes => filled += bytes,
        }
        let mut used = 0;
        while let Some(record) = next_record(&buffer[used..filled]) {
            used += 4 + record.len();
            let unknown = |_| io::Error::new(io::ErrorKind::InvalidData, "an unsupported call");
            match files.serve(record, &mut replies, &mut unsynced).map_err(unknown)? {
                Answer::Complete if replies.have_room() => {}
                Answer::Complete => {
                    unsynced.sync()?;
                    flush(&mut stream, &mut replies).await?;
                }
                Answer::Sendfile { file, offset, count } => {
                    flush_more(&stream, &mut replies).await?;
                    send_file(&stream, file, offset, count).await?;
                }
            }
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
        unsynced.sync()?;
        if !replies.is_empty() {
            flush(&mut stream, &mut replies).await?;
        }
    }
}

/// Returns the record at the start of `bytes`, without its mark, if it is complete.
fn next_record(bytes: &[u8]) -> Option<&[u8]> {
    let (mark, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..(u32::from_be_bytes(*mark) & !(1 << 31)) as usize)
}

/// Returns the position up to which the buffer may be filled: to the end of a large record that has begun, so that exactly its rest arrives and no payload
/// is moved.
fn read_limit(partial: &[u8]) -> io::Result<usize> {
    let Some(mark) = partial.first_chunk::<4>() else { return Ok(FIRST_READ_BYTES) };
    let end = 4 + (u32::from_be_bytes(*mark) & !(1 << 31)) as usize;
    // The floor does not support fragmented requests, or records that do not fit.
    if mark[0] & 0x80 == 0 || end > BUFFER_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an unsupported record"));
    }
    Ok(end.max(FIRST_READ_BYTES))
}

async fn flush(stream: &mut TcpStream, replies: &mut Replies) -> io::Result<()> {
    stream.write_all(replies.bytes()).await?;
    replies.clear();
    Ok(())
}

/// Sends `replies`, and tells the kernel that file data follow.
async fn flush_more(stream: &TcpStream, replies: &mut Replies) -> io::Result<()> {
    let mut sent = 0;
    while sent < replies.len() {
        let more = || Ok(send(stream, &replies.bytes()[sent..], SendFlags::MORE | SendFlags::NOSIGNAL)?);
        sent += stream.async_io(Interest::WRITABLE, more).await?;
    }
    replies.clear();
    Ok(())
}

async fn send_file(
    stream: &TcpStream,
    file: BorrowedFd<'_>,
    mut offset: u64,
    mut count: usize,
) -> io::Result<()> {
    while count > 0 {
        let once = || Ok(sendfile(stream, file, Some(&mut offset), count)?);
        match stream.async_io(Interest::WRITABLE, once).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => count -= bytes,
        }
    }
    Ok(())
}
