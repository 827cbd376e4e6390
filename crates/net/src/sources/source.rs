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
/// How long a READ that was sent may remain unanswered, whatever else is answered: its slot is taken until then.
const CALL_PATIENCE: Duration = Duration::from_secs(60);
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

/// A READ that the source has not answered yet.
struct Sent {
    read: Read,
    ask: Ask,
    since: Instant,
}

struct Source {
    stream: TcpStream,
    session: Session,
    decoder: RecordDecoder,
    buffer: BytesMut,
    /// What has no slot yet.
    waiting: VecDeque<Ask>,
    /// What the source has not answered yet.
    sent: HashMap<CallId, Sent>,
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
                        return Err(self.give_up());
                    }
                    self.session.end();
                }
            }
        }
    }

    /// When to do something although nothing happens.
    fn deadline(&self) -> Instant {
        if !self.session.is_waiting() {
            return self.answered + IDLE_PATIENCE;
        }
        let answer = (self.heard + SILENCE_PATIENCE).min(self.answered + ANSWER_PATIENCE);
        self.sent.values().map(|sent| sent.since + CALL_PATIENCE).fold(answer, Instant::min)
    }

    /// What to tell those who wait when the deadline has passed. Where the source has answered others in time, only those whose
    /// READs it has not answered for too long are told that it is silent; the others ask again over another connection.
    fn give_up(&mut self) -> Trouble {
        let now = Instant::now();
        if now >= (self.heard + SILENCE_PATIENCE).min(self.answered + ANSWER_PATIENCE) {
            return Trouble::Silent;
        }
        for (_, sent) in self.sent.extract_if(|_, sent| now >= sent.since + CALL_PATIENCE) {
            let _ = sent.ask.answer.send(Err(Trouble::Silent));
        }
        Trouble::Lost
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
            self.sent.insert(call, Sent { read, ask, since: Instant::now() });
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
            if let Some(Sent { read, ask, .. }) = self.sent.remove(&call) {
                // Whoever asked may not want it any more.
                let _ = ask.answer.send(outcome_of(&read, outcome));
            }
        }
        Ok(())
    }

    /// Tells all who wait.
    fn fail(&mut self, trouble: Trouble) {
        let sent = self.sent.drain().map(|(_, sent)| sent.ask);
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use futures_util::FutureExt;
    use protocol::nfs4::types::{Handle, Stateid};
    use server::{Connection, ConnectionId, ExportTable, HandleKey, Now, Server, Settings, Transport};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;
    use xdr::Opaque;

    use super::super::credential;
    use super::*;

    /// A session that a server has granted.
    fn ready() -> Session {
        let settings = Settings::new(HandleKey([5; 16]), 1, [3; 16], b"source".to_vec());
        let server = Server::new(settings, ExportTable::new(Vec::new()).unwrap());
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
        let connection = Arc::new(connection);
        let identity = Identity {
            owner: Opaque::from_static(b"destination"),
            verifier: [1; 8],
            credential: credential(1000, 1000, &[]),
        };
        let mut session = Session::new(identity, 1);
        let wall = vfs::Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        let now = Now { monotonic: Duration::from_secs(1), wall };
        while let Some(record) = session.poll_record() {
            let mut reply = Writer::new();
            server.handle(&connection, now, record, &mut reply).now_or_never().expect("it answers at once");
            session.handle_record(reply.into_bytes()).unwrap();
        }
        assert!(session.can_call());
        session
    }

    type Outcome = oneshot::Receiver<Result<client::ReadData, Trouble>>;

    fn ask() -> (Ask, Outcome) {
        let handle = Handle::new(b"file").unwrap();
        let read = Read { handle, stateid: Stateid::ANONYMOUS, offset: 0, count: 1, wants_size: false };
        let (answer, outcome) = oneshot::channel();
        (Ask { read, credential: credential(1000, 1000, &[]), answer }, outcome)
    }

    #[test]
    fn one_read_that_is_not_answered_ends_the_session_though_others_are() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(one_is_forgotten());
    }

    async fn one_is_forgotten() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let _source_end = listener.accept().await.unwrap();
        let mut source = Source::new(stream, ready());
        let ((first, mut forgotten), (second, mut new)) = (ask(), ask());
        source.waiting.push_back(first);
        source.send().await.unwrap();
        for sent in source.sent.values_mut() {
            sent.since -= CALL_PATIENCE;
        }
        source.waiting.push_back(second);
        source.send().await.unwrap();
        assert_eq!(source.sent.len(), 2);
        // Just now something else was answered.
        (source.heard, source.answered) = (Instant::now(), Instant::now());
        let (_asks, mut asked) = mpsc::unbounded_channel();
        let ended = source.run(&mut asked).await;
        assert_eq!(ended, Err(Trouble::Lost));
        source.fail(Trouble::Lost);
        assert_eq!(forgotten.try_recv().unwrap().unwrap_err(), Trouble::Silent);
        assert_eq!(new.try_recv().unwrap().unwrap_err(), Trouble::Lost, "it is asked again elsewhere");
    }
}
