//! READs on other servers, for copies from there (RFC 7862 §4.6.2).
//!
//! The core has no sockets. A copy requests a READ ([`Fetches::ask`]); the driver takes each one once
//! ([`Server::poll_work`](crate::Server::poll_work)), reads, and answers. The copy waits with a future and may drop it at any time; the driver
//! is notified then. A READ that the driver drops is answered too. The number of READs is bounded, so that sources that do not answer hold
//! little memory and few connections; a READ without a permit is retried. A READ occupies its permit until its answer was taken, which bounds the
//! bytes that were read and not yet written.

use core::net::{IpAddr, SocketAddr};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::types::{Handle, Stateid, Status};
use vfs::Credentials;

mod read_ahead;
mod span;

pub(crate) use read_ahead::Reading;
pub(crate) use span::Span;

use crate::Now;
use crate::work_signal::WorkSignal;

/// Maximum number of READs that wait for the driver or for a source.
const FETCHES_MAX: usize = 64;
/// Maximum for one source: a source that does not answer must not prevent reads from others.
const FETCHES_A_SOURCE: usize = 16;
/// Maximum for one client: a client that names sources that do not answer must not prevent other copies.
const FETCHES_A_CLIENT: usize = 16;
/// Read-ahead must leave at least as much room as it takes: a copy that reads ahead must not delay the next READs of others.
const AHEAD_SHARE: usize = 2;
/// Maximum bytes of one READ.
pub(crate) const FETCH_BYTES: u32 = 1 << 20;

/// The urgency of a READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The copy waits for it.
    Now,
    /// The copy reads ahead.
    Later,
}

/// A file on another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Addresses of that server, in the order in which to try them.
    pub addresses: Vec<SocketAddr>,
    /// The address by which the client reaches this server, and which it named to the source.
    pub local: IpAddr,
    /// The address of the copying client, which can have any number of client IDs.
    pub client: IpAddr,
    /// The file handle on that server.
    pub handle: Handle,
    /// The stateid of COPY_NOTIFY there: the right to read the file.
    pub stateid: Stateid,
    /// The credentials of the caller.
    pub credentials: Arc<Credentials>,
}

impl SourceFile {
    /// Returns all holders of shares that a READ counts for, each once. The client chooses the order of the addresses, and may name any port of
    /// a host.
    fn parties(&self) -> Vec<Party> {
        let mut parties = vec![Party::Client(self.client.to_canonical())];
        for address in &self.addresses {
            let source = Party::Source(address.ip().to_canonical());
            if !parties.contains(&source) {
                parties.push(source);
            }
        }
        parties
    }
}

/// A holder of a share of the READs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Party {
    /// The client that copies.
    Client(IpAddr),
    /// The host that is read from.
    Source(IpAddr),
}

impl Party {
    fn most(self) -> usize {
        match self {
            Self::Client(_) => FETCHES_A_CLIENT,
            Self::Source(_) => FETCHES_A_SOURCE,
        }
    }
}

/// A READ for the driver.
#[derive(Debug)]
pub struct Fetch {
    /// The file to read.
    pub file: Arc<SourceFile>,
    /// The offset.
    pub offset: u64,
    /// The maximum number of bytes.
    pub count: u32,
    /// Whether the file's size is requested too.
    pub wants_size: bool,
    exchange: Arc<Exchange>,
}

/// A source's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Consecutive data: at least one byte unless the file ends before, and at most as many as requested.
    pub content: Vec<Extent>,
    /// Whether they reach the file's end.
    pub is_end: bool,
    /// Maximum bytes of one READ at the source; at least one.
    pub granted: u32,
    /// The file's size, if requested.
    pub size: Option<u64>,
    /// The time of arrival: the copy may take them much later.
    pub at: Now,
}

/// Why a READ failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchError {
    /// The source answered with this status.
    Refused(Status),
    /// The source does not serve NFSv4.2.
    Unsupported,
    /// The source cannot be reached, does not answer in time, or sends an invalid reply.
    Unreachable,
    /// Too many READs are in progress.
    Busy,
}

/// The state of a READ, shared by copy and driver. It counts as long as either side refers to it.
#[derive(Debug)]
struct Exchange {
    meeting: Mutex<Meeting>,
    parties: Vec<Party>,
    fetches: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Meeting {
    answer: Option<Result<Fetched, FetchError>>,
    is_answered: bool,
    is_unwanted: bool,
    /// Wakes the copy that waits for the READ.
    asker: Option<Waker>,
    /// Wakes the driver when no copy waits for the answer.
    reader: Option<Waker>,
}

/// All READs.
#[derive(Debug, Default)]
pub(crate) struct Fetches(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    work_signal: WorkSignal,
}

#[derive(Debug, Default)]
struct Inner {
    /// READs that the driver has not taken.
    wanted: VecDeque<Fetch>,
    /// Number of [`Fetch`]es.
    all: usize,
    /// Number of [`Fetch`]es by client and host.
    counts: HashMap<Party, usize>,
    /// Set when no further READ is made.
    is_closed: bool,
}

/// Returns the READ for the driver.
impl Fetch {
    /// Handles the outcome.
    pub(crate) fn answer(self, answer: Result<Fetched, FetchError>) {
        self.exchange.answer(answer);
    }

    /// Completes when no copy waits for the answer any more; wakes the task that polled last.
    pub fn poll_unwanted(&self, context: &Context<'_>) -> Poll<()> {
        let mut meeting = self.exchange.meeting.lock();
        if meeting.is_unwanted {
            return Poll::Ready(());
        }
        meeting.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.exchange.answer(Err(FetchError::Unreachable));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.fetches.inner.lock().leave(&self.parties);
    }
}

impl Exchange {
    // Only the first answer counts.
    fn answer(&self, answer: Result<Fetched, FetchError>) {
        let mut meeting = self.meeting.lock();
        if meeting.is_answered {
            return;
        }
        meeting.is_answered = true;
        meeting.answer = (!meeting.is_unwanted).then_some(answer);
        let waker = meeting.asker.take();
        drop(meeting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A requested READ. Dropping it withdraws the request.
#[derive(Debug)]
pub(crate) struct Asking(Arc<Exchange>);

impl Asking {
    /// Waits for the outcome.
    pub(crate) async fn answer(self) -> Result<Fetched, FetchError> {
        poll_fn(|context| {
            let mut meeting = self.0.meeting.lock();
            if let Some(answer) = meeting.answer.take() {
                return Poll::Ready(answer);
            }
            meeting.asker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut meeting = self.0.meeting.lock();
        meeting.is_unwanted = true;
        let reader = meeting.reader.take();
        let is_over = meeting.is_answered;
        drop(meeting);
        if !is_over {
            self.0.fetches.forget(&self.0);
        }
        if let Some(waker) = reader {
            waker.wake();
        }
    }
}

impl Inner {
    /// Counts one more READ, unless there are too many.
    fn enter(&mut self, parties: &[Party], need: Need) -> bool {
        let share = if need == Need::Now { 1 } else { AHEAD_SHARE };
        let is_free =
            |party: &Party| self.counts.get(party).is_none_or(|count| *count < party.most() / share);
        let has_room = self.all < FETCHES_MAX / share && parties.iter().all(is_free);
        if has_room {
            self.all += 1;
            for party in parties {
                *self.counts.entry(*party).or_default() += 1;
            }
        }
        has_room
    }

    fn leave(&mut self, parties: &[Party]) {
        self.all -= 1;
        for party in parties {
            if let Some(count) = self.counts.get_mut(party) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(party);
                }
            }
        }
    }
}

impl Shared {
    /// Withdraws a READ that the driver has not taken.
    fn forget(&self, exchange: &Arc<Exchange>) {
        let mut inner = self.inner.lock();
        let place = inner.wanted.iter().position(|fetch| Arc::ptr_eq(&fetch.exchange, exchange));
        let forgotten = place.and_then(|place| inner.wanted.remove(place));
        // Not under the lock: the drop may wake the task that holds it.
        drop(inner);
        drop(forgotten);
    }
}

impl Fetches {
    /// Requests up to [`FETCH_BYTES`] from `offset`, and the file's size if requested.
    ///
    /// # Errors
    /// [`FetchError::Busy`]; [`FetchError::Unreachable`] after the driver has stopped.
    pub(crate) fn ask(
        &self,
        file: &Arc<SourceFile>,
        (offset, count): (u64, u32),
        wants_size: bool,
        need: Need,
    ) -> Result<Asking, FetchError> {
        let parties = file.parties();
        let mut inner = self.0.inner.lock();
        if inner.is_closed {
            return Err(FetchError::Unreachable);
        }
        if !inner.enter(&parties, need) {
            return Err(FetchError::Busy);
        }
        let meeting = Mutex::default();
        let exchange = Arc::new(Exchange { meeting, parties, fetches: Arc::clone(&self.0) });
        let (file, count, asked) = (Arc::clone(file), count.min(FETCH_BYTES), Arc::clone(&exchange));
        inner.wanted.push_back(Fetch { file, offset, count, wants_size, exchange: asked });
        drop(inner);
        self.0.work_signal.notify();
        Ok(Asking(exchange))
    }

    /// Returns the next READ for the driver.
    pub(crate) fn next(&self) -> Option<Fetch> {
        self.0.inner.lock().wanted.pop_front()
    }

    /// Ends pending and later READs with [`FetchError::Unreachable`].
    pub(crate) fn close(&self) {
        let mut inner = self.0.inner.lock();
        inner.is_closed = true;
        let untaken = core::mem::take(&mut inner.wanted);
        // Dropping an ask wakes its asker: not under the lock.
        drop(inner);
        drop(untaken);
    }

    pub(crate) fn work_signal(&self) -> &WorkSignal {
        &self.0.work_signal
    }

    /// Returns the number of READs that count.
    pub(crate) fn count(&self) -> usize {
        self.0.inner.lock().all
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;
    use crate::Server;
    use crate::testing::lab_42;

    fn file() -> Arc<SourceFile> {
        file_at(1)
    }

    /// Returns a file of one of several sources, each copied by its own client.
    fn file_at(host: u8) -> Arc<SourceFile> {
        file_of(host, &[host])
    }

    fn file_of(client: u8, hosts: &[u8]) -> Arc<SourceFile> {
        Arc::new(SourceFile {
            addresses: hosts.iter().map(|host| SocketAddr::from(([192, 0, 2, *host], 2049))).collect(),
            local: IpAddr::from([127, 0, 0, 1]),
            client: IpAddr::from([198, 51, 100, client]),
            handle: Handle::new(b"file").unwrap(),
            stateid: Stateid::ANONYMOUS,
            credentials: Arc::new(Credentials::root()),
        })
    }

    /// Requests a READ and waits for the outcome.
    async fn fetch(
        server: &Server,
        file: &Arc<SourceFile>,
        range: (u64, u32),
    ) -> Result<Fetched, FetchError> {
        server.shared.fetches.ask(file, range, true, Need::Now)?.answer().await
    }

    fn next(server: &Server) -> Option<Fetch> {
        server.shared.fetches.next()
    }

    #[test]
    fn each_read_is_taken_once_and_answered_once() {
        let lab = lab_42();
        let (at, server) = (lab.now(), lab.server);
        let file = file();
        let mut asking = pin!(fetch(&server, &file, (7, u32::MAX)));
        assert!(asking.as_mut().now_or_never().is_none());
        let taken = next(&server).expect("it is to be read");
        assert!(next(&server).is_none());
        assert_eq!((taken.offset, taken.count, taken.wants_size), (7, FETCH_BYTES, true));
        let content = vec![Extent::Data(Bytes::from_static(b"x"))];
        let fetched = Fetched { content, is_end: true, granted: 1, size: Some(8), at };
        taken.answer(Ok(fetched.clone()));
        assert_eq!(asking.now_or_never(), Some(Ok(fetched)));
    }

    #[test]
    fn a_dropped_read_is_answered() {
        let server = lab_42().server;
        let file = file();
        let mut asking = pin!(fetch(&server, &file, (0, 1)));
        assert!(asking.as_mut().now_or_never().is_none());
        drop(next(&server));
        assert_eq!(asking.now_or_never(), Some(Err(FetchError::Unreachable)));
    }

    #[test]
    fn reads_end_when_the_driver_stops() {
        let server = lab_42().server;
        let file = file();
        let ask = || Box::pin(fetch(&server, &file, (0, 1)));
        let [mut taken, mut queued] = [ask(), ask()];
        assert!(taken.as_mut().now_or_never().is_none() && queued.as_mut().now_or_never().is_none());
        let reading = next(&server).unwrap();
        server.stop_fetching();
        assert_eq!(queued.now_or_never(), Some(Err(FetchError::Unreachable)));
        assert_eq!(ask().now_or_never(), Some(Err(FetchError::Unreachable)));
        assert!(next(&server).is_none());
        // The driver must answer a READ that it has taken.
        assert!(taken.as_mut().now_or_never().is_none());
        reading.answer(Err(FetchError::Unsupported));
        assert_eq!(taken.now_or_never(), Some(Err(FetchError::Unsupported)));
    }

    #[test]
    fn notifies_the_driver_of_unwanted_reads() {
        let server = lab_42().server;
        let file = file();
        let is_unwanted = |fetch: &Fetch| fetch.poll_unwanted(&Context::from_waker(Waker::noop())).is_ready();
        let mut asking = Box::pin(fetch(&server, &file, (0, 1)));
        assert!(asking.as_mut().now_or_never().is_none());
        let reading = next(&server).unwrap();
        assert!(!is_unwanted(&reading));
        drop(asking);
        assert!(is_unwanted(&reading));
        let mut untaken = Box::pin(fetch(&server, &file, (0, 1)));
        assert!(untaken.as_mut().now_or_never().is_none());
        drop(untaken);
        assert!(next(&server).is_none(), "an untaken request is withdrawn");
    }

    #[test]
    fn asks_are_bounded_until_they_are_answered() {
        let server = lab_42().server;
        let files: Vec<_> = (1..=5).map(file_at).collect();
        let (fifth, four) = files.split_last().unwrap();
        let ask = |file| Box::pin(fetch(&server, file, (0, 1)));
        let mut asks: Vec<_> =
            four.iter().flat_map(|file| (0..FETCHES_A_SOURCE).map(move |_| ask(file))).collect();
        assert!(asks.iter_mut().all(|ask| ask.as_mut().now_or_never().is_none()));
        assert_eq!(ask(fifth).now_or_never(), Some(Err(FetchError::Busy)));
        // The copy has ended; the driver still reads.
        let reading = next(&server).unwrap();
        assert_eq!(reading.file, files[0]);
        drop(asks);
        let mut more: Vec<_> = (0..FETCHES_A_SOURCE).map(|_| ask(&files[0])).collect();
        let refused = more.iter_mut().filter_map(|ask| ask.as_mut().now_or_never()).count();
        assert_eq!(refused, 1, "one of this source is left");
        assert!(ask(fifth).now_or_never().is_none(), "others have room");
        drop(reading);
        assert!(ask(&files[0]).now_or_never().is_none());
    }

    #[test]
    fn requests_count_for_their_client_and_for_each_host_at_any_position() {
        let server = lab_42().server;
        let (same, other, others) = (file_of(1, &[2, 1]), file_of(1, &[2]), file_of(2, &[2]));
        let sources: Vec<_> = (0..16).map(|n| file_of(100 + n, &[10 + n, 1, 10 + n])).collect();
        let of_one: Vec<_> = (0..16).map(|n| file_of(1, &[10 + n])).collect();
        let ask = |file| Box::pin(fetch(&server, file, (0, 1)));
        // Names another host first each time, and that host twice.
        let mut asks: Vec<_> = sources.iter().map(ask).collect();
        assert!(asks.iter_mut().all(|ask| ask.as_mut().now_or_never().is_none()));
        assert_eq!(ask(&same).now_or_never(), Some(Err(FetchError::Busy)));
        assert!(ask(&other).now_or_never().is_none());
        drop(asks);
        assert!(ask(&same).now_or_never().is_none());
        // One client names another host each time.
        let mut asks: Vec<_> = of_one.iter().map(ask).collect();
        assert!(asks.iter_mut().all(|ask| ask.as_mut().now_or_never().is_none()));
        assert_eq!(ask(&other).now_or_never(), Some(Err(FetchError::Busy)));
        assert!(ask(&others).now_or_never().is_none());
    }

    #[test]
    fn read_ahead_leaves_room_for_needed_reads() {
        let lab = lab_42();
        let (at, server) = (lab.now(), lab.server);
        let file = file();
        let ask = |need| server.shared.fetches.ask(&file, (0, 1), false, need);
        let ahead: Vec<_> = (0..FETCHES_A_SOURCE / 2).map(|_| ask(Need::Later).unwrap()).collect();
        assert!(matches!(ask(Need::Later), Err(FetchError::Busy)));
        let content = vec![Extent::Data(Bytes::from_static(b"x"))];
        let fetched = Fetched { content, is_end: true, granted: 1, size: None, at };
        for _ in &ahead {
            next(&server).unwrap().answer(Ok(fetched.clone()));
        }
        assert!(matches!(ask(Need::Later), Err(FetchError::Busy)), "an untaken answer counts");
        let needed: Vec<_> = (0..FETCHES_A_SOURCE / 2).map(|_| ask(Need::Now).unwrap()).collect();
        assert!(matches!(ask(Need::Now), Err(FetchError::Busy)));
        drop(needed);
        let mut ahead = ahead.into_iter();
        assert_eq!(ahead.next().unwrap().answer().now_or_never(), Some(Ok(fetched)));
        let again = ask(Need::Later).unwrap();
        drop((ahead, again));
        assert_eq!(server.shared.fetches.count(), 0);
    }
}
