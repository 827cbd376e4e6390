//! The connection to one source: carries the records of a [`Reader`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use client::{Identity, MAX_REPLY, ReadError, Reader, SILENCE_TIMEOUT};
use rpc::record::{self, RecordDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use xdr::Writer;

use super::{AttemptError, ReadRequest, ReplySender, Route};
use crate::reserved;

/// Time limit for a source to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs READs of one source until it fails or is idle.
pub(super) async fn serve(
    route: Route,
    identity: Identity,
    mut requests: mpsc::UnboundedReceiver<ReadRequest>,
) {
    let (_, peer) = route;
    let error = match connect(route).await {
        Ok(stream) => {
            let mut source = Source::new(stream, identity);
            let ended = source.run(&mut requests).await;
            source.reader.fail_all(ended.err().unwrap_or(ReadError::SessionLost));
            source.answer();
            ended.err()
        }
        Err(error) => {
            debug!(%peer, "cannot connect to a source: {error}");
            Some(ReadError::Unresponsive)
        }
    };
    // Later READs take another connection; those that wait here fail with this one.
    requests.close();
    while let Ok(request) = requests.try_recv() {
        let _ = request.answer.send(Err(AttemptError::Read(error.unwrap_or(ReadError::SessionLost))));
    }
    debug!(%peer, "connection to a source closed: {error:?}");
}

/// Connects from `local` if possible, otherwise from any address; from a port below 1024 if permitted, since sources may require it.
async fn connect((local, address): Route) -> io::Result<TcpStream> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = |ip| timeout(CONNECT_TIMEOUT, reserved::connect(SocketAddr::new(ip, 0), address));
    let stream = match from(local).await {
        Ok(Ok(stream)) => stream,
        _ => from(any).await??,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Source {
    stream: TcpStream,
    reader: Reader<ReplySender>,
    decoder: RecordDecoder,
    buffer: BytesMut,
    /// The start of the reader's clock.
    begun: Instant,
}

impl Source {
    fn new(stream: TcpStream, identity: Identity) -> Self {
        Self {
            stream,
            reader: Reader::new(identity, 1, Duration::ZERO),
            decoder: RecordDecoder::new(MAX_REPLY as usize),
            buffer: BytesMut::new(),
            begun: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Runs until the source is idle for [`client::IDLE_TIMEOUT`].
    async fn run(&mut self, requests: &mut mpsc::UnboundedReceiver<ReadRequest>) -> Result<(), ReadError> {
        loop {
            self.send().await?;
            if self.reader.is_closed() {
                return Ok(());
            }
            let deadline = self.begun + self.reader.deadline();
            tokio::select! {
                request = requests.recv() => {
                    let ReadRequest { read, credential, answer } = request.ok_or(ReadError::SessionLost)?;
                    self.reader.read(read, credential, answer);
                }
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(0) | Err(_) => return Err(ReadError::SessionLost),
                    Ok(_) => self.receive()?,
                },
                () = sleep_until(deadline) => self.reader.handle_timeout(self.now())?,
            }
        }
    }

    /// Sends as much as possible.
    async fn send(&mut self) -> Result<(), ReadError> {
        self.reader.drop_waiting(ReplySender::is_closed);
        let (now, mut output) = (self.now(), Writer::new());
        while let Some(record) = self.reader.poll_record(now) {
            let start = record::start_record(&mut output);
            output.raw(&record);
            record::finish_record(&mut output, start);
        }
        if output.is_empty() {
            return Ok(());
        }
        let written = timeout(SILENCE_TIMEOUT, self.stream.write_all(output.inline())).await;
        written.map_err(|_| ReadError::Unresponsive)?.map_err(|_| ReadError::SessionLost)
    }

    /// Takes the received data.
    fn receive(&mut self) -> Result<(), ReadError> {
        let now = self.now();
        self.reader.handle_bytes(now);
        let garbled = |error| {
            debug!("a source's record: {error}");
            ReadError::Unresponsive
        };
        while let Some(record) = self.decoder.decode(&mut self.buffer).map_err(garbled)? {
            self.reader.handle_record(now, record)?;
        }
        self.buffer.reserve(self.decoder.bytes_wanted());
        self.answer();
        Ok(())
    }

    /// Passes on the answers.
    fn answer(&mut self) {
        let granted = self.reader.max_read();
        while let Some((answer, outcome)) = self.reader.poll_answer() {
            // The receiver is gone if the READ is no longer needed.
            let _ = answer.send(outcome.map(|data| (data, granted)).map_err(AttemptError::Read));
        }
    }
}
