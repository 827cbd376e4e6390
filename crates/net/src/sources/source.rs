//! The connection to one source, and the session on it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use client::{Answer, CallId, Executed, Identity, MAX_REPLY, Read, Session, SessionError};
use protocol::nfs4::types::Status;
use rpc::message::{Rejection, RpcError};
use rpc::record::{self, RecordDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use xdr::Writer;

use super::{Ask, Route, Trouble};

/// How long a source may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long a source may say nothing while something is asked of it.
const SILENCE_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to complete an answer, however steadily its bytes drip.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection stays when nothing is asked; less than any lease that it would have to renew.
const IDLE_PATIENCE: Duration = Duration::from_secs(5);

/// Serves what is asked of one source until it is given up or nothing is asked any more.
pub(super) async fn serve(route: Route, identity: Identity, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let (_, peer) = route;
    let trouble = match connect(route).await {
        Ok(stream) => {
            let mut source = Source::new(stream, Session::new(identity, 1));
            let ended = source.run(&mut asks).await;
            source.fail(ended.err().unwrap_or(Trouble::Lost));
            ended.err()
        }
        Err(error) => {
            debug!(%peer, "no connection to read from: {error}");
            Some(Trouble::Silent)
        }
    };
    // What comes from now on is asked over another connection; what has come already hears why.
    asks.close();
    while let Ok(ask) = asks.try_recv() {
        let _ = ask.answer.send(Err(trouble.unwrap_or(Trouble::Lost)));
    }
    debug!(%peer, "read from no more: {trouble:?}");
}

/// Connects from the address that is wanted, or from any.
async fn connect((local, address): Route) -> io::Result<TcpStream> {
    let bound = async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind(SocketAddr::new(local, 0))?;
        socket.connect(address).await
    };
    let stream = match timeout(CONNECT_PATIENCE, bound).await {
        Ok(Ok(stream)) => stream,
        _ => timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await??,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Source {
    stream: TcpStream,
    session: Session,
    decoder: RecordDecoder,
    buffer: BytesMut,
    /// What has no slot yet.
    waiting: VecDeque<Ask>,
    /// What the source has not answered yet.
    sent: HashMap<CallId, (Read, Ask)>,
    /// When bytes came last, or what is waited for was sent.
    heard: Instant,
    /// The same of whole answers.
    answered: Instant,
}

impl Source {
    fn new(stream: TcpStream, session: Session) -> Self {
        Self {
            stream,
            session,
            decoder: RecordDecoder::new(MAX_REPLY as usize),
            buffer: BytesMut::new(),
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            heard: Instant::now(),
            answered: Instant::now(),
        }
    }

    /// Returns when nothing was asked for a while.
    async fn run(&mut self, asks: &mut mpsc::UnboundedReceiver<Ask>) -> Result<(), Trouble> {
        loop {
            self.send().await?;
            if self.session.is_over() {
                return Ok(());
            }
            let deadline = self.deadline();
            tokio::select! {
                ask = asks.recv() => self.waiting.push_back(ask.ok_or(Trouble::Lost)?),
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(0) | Err(_) => return Err(Trouble::Lost),
                    Ok(_) => self.receive()?,
                },
                () = sleep_until(deadline) => {
                    if self.session.is_waiting() {
                        return Err(Trouble::Silent);
                    }
                    self.session.end();
                }
            }
        }
    }

    /// When to do something although nothing happens.
    fn deadline(&self) -> Instant {
        if self.session.is_waiting() {
            (self.heard + SILENCE_PATIENCE).min(self.answered + ANSWER_PATIENCE)
        } else {
            self.answered + IDLE_PATIENCE
        }
    }

    /// Sends what can be sent.
    async fn send(&mut self) -> Result<(), Trouble> {
        let was_waiting = self.session.is_waiting();
        while self.session.can_call() {
            let Some(ask) = self.waiting.pop_front() else { break };
            if ask.answer.is_closed() {
                continue;
            }
            let read = Read { count: ask.read.count.min(self.session.max_read()), ..ask.read };
            let Some(call) = self.session.call(&ask.credential, read.operations()) else { break };
            self.sent.insert(call, (read, ask));
        }
        let mut output = Writer::new();
        while let Some(record) = self.session.poll_record() {
            let start = record::start_record(&mut output);
            output.raw(&record);
            record::finish_record(&mut output, start);
        }
        if output.is_empty() {
            return Ok(());
        }
        if !was_waiting {
            (self.heard, self.answered) = (Instant::now(), Instant::now());
        }
        let written = timeout(SILENCE_PATIENCE, self.stream.write_all(output.inline())).await;
        written.map_err(|_| Trouble::Silent)?.map_err(|_| Trouble::Lost)
    }

    /// Takes what has come.
    fn receive(&mut self) -> Result<(), Trouble> {
        self.heard = Instant::now();
        let garbled = |error| {
            debug!("a source's record: {error}");
            Trouble::Silent
        };
        while let Some(record) = self.decoder.decode(&mut self.buffer).map_err(garbled)? {
            self.answered = Instant::now();
            self.session.handle_record(record).map_err(|error| trouble_of(&error))?;
        }
        self.buffer.reserve(self.decoder.bytes_wanted());
        while let Some(Answer { call, outcome }) = self.session.poll_answer() {
            if let Some((read, ask)) = self.sent.remove(&call) {
                // Whoever asked may not want it any more.
                let _ = ask.answer.send(outcome_of(&read, outcome));
            }
        }
        Ok(())
    }

    /// Tells all who wait.
    fn fail(&mut self, trouble: Trouble) {
        let sent = self.sent.drain().map(|(_, (_, ask))| ask);
        for ask in sent.chain(self.waiting.drain(..)) {
            let _ = ask.answer.send(Err(trouble));
        }
    }
}

fn outcome_of(read: &Read, outcome: Result<Executed, RpcError>) -> Result<client::ReadData, Trouble> {
    match outcome {
        // What makes no sense is as good as nothing.
        Ok(Executed { status: Status::OK, results }) => read.data(&results).ok_or(Trouble::Silent),
        Ok(Executed { status, .. }) => Err(Trouble::Refused(status)),
        // Of the user's credentials.
        Err(RpcError::Denied(Rejection::AuthError(_))) => Err(Trouble::Refused(Status::ACCESS)),
        Err(_) => Err(Trouble::Silent),
    }
}

/// What ends a session. One that the source has forgotten is made anew; what makes no sense is not asked for again.
fn trouble_of(error: &SessionError) -> Trouble {
    debug!("a source's session: {error}");
    match error {
        _ if error.is_unsupported() => Trouble::Unsupported,
        SessionError::Refused(_) => Trouble::Lost,
        SessionError::NotTaken(_) | SessionError::Garbled(_) | SessionError::Unexpected => Trouble::Silent,
    }
}
