//! The connection to one source: it carries what a [`Reader`] says and hears.

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

use super::{Answer, Ask, Route, Trouble};
use crate::reserved;

/// How long a source may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// Serves what is asked of one source until it is given up or nothing is asked any more.
pub(super) async fn serve(route: Route, identity: Identity, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let (_, peer) = route;
    let trouble = match connect(route).await {
        Ok(stream) => {
            let mut source = Source::new(stream, identity);
            let ended = source.run(&mut asks).await;
            source.reader.fail_all(ended.err().unwrap_or(ReadError::SessionLost));
            source.answer();
            ended.err()
        }
        Err(error) => {
            debug!(%peer, "no connection to read from: {error}");
            Some(ReadError::Unresponsive)
        }
    };
    // What comes from now on is asked over another connection; what has come already hears why.
    asks.close();
    while let Ok(ask) = asks.try_recv() {
        let _ = ask.answer.send(Err(Trouble::Of(trouble.unwrap_or(ReadError::SessionLost))));
    }
    debug!(%peer, "read from no more: {trouble:?}");
}

/// Connects from the address that is wanted, or from any; from a port below 1024 where that may be had, since sources ask for it.
async fn connect((local, address): Route) -> io::Result<TcpStream> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = |ip| timeout(CONNECT_PATIENCE, reserved::connect(SocketAddr::new(ip, 0), address));
    let stream = match from(local).await {
        Ok(Ok(stream)) => stream,
        _ => from(any).await??,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Source {
    stream: TcpStream,
    reader: Reader<Answer>,
    decoder: RecordDecoder,
    buffer: BytesMut,
    /// When the reader's time began.
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

    /// Returns when nothing was asked for a while.
    async fn run(&mut self, asks: &mut mpsc::UnboundedReceiver<Ask>) -> Result<(), ReadError> {
        loop {
            self.send().await?;
            if self.reader.is_closed() {
                return Ok(());
            }
            let deadline = self.begun + self.reader.deadline();
            tokio::select! {
                ask = asks.recv() => {
                    let Ask { read, credential, answer } = ask.ok_or(ReadError::SessionLost)?;
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

    /// Sends what can be sent.
    async fn send(&mut self) -> Result<(), ReadError> {
        self.reader.drop_waiting(Answer::is_closed);
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

    /// Takes what has come.
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

    /// Passes on what was answered.
    fn answer(&mut self) {
        let granted = self.reader.max_read();
        while let Some((answer, outcome)) = self.reader.poll_answer() {
            // Whoever asked may not want it any more.
            let _ = answer.send(outcome.map(|data| (data, granted)).map_err(Trouble::Of));
        }
    }
}
