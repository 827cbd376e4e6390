//! A client process: its engine, its programs as one future, and the state of its transport.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::engine::{AcceptedId, Action, ConnectionId, Engine, Record};

use super::link::ClientEnd;

/// Remembers that a task was woken. Only woken tasks are polled: a lost wake-up stops the run.
#[derive(Default)]
pub(super) struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Woken {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

pub(super) type Programs = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// A client process.
pub(super) struct Host {
    /// Number of starts.
    pub(super) boot: u64,
    pub(super) engine: Arc<Engine>,
    /// Its running programs; `None` once they have ended.
    programs: Option<Programs>,
    program_woken: Arc<Woken>,
    transport_woken: Arc<Woken>,
    /// The numbers of the links of the engine's connections.
    links: BTreeMap<usize, (ConnectionId, usize)>,
    /// The numbers of the links that the server has made.
    accepted: BTreeMap<AcceptedId, usize>,
    /// The earliest timer that is scheduled.
    pub(super) timer: Option<Duration>,
}

/// An action that a host requests.
pub(super) enum Wish {
    Act(Action),
    Send(usize, Record),
    Close(usize),
}

impl Host {
    pub(super) fn new(boot: u64, engine: Arc<Engine>, programs: Programs) -> Self {
        Self {
            boot,
            engine,
            programs: Some(programs),
            program_woken: Woken::new(),
            transport_woken: Woken::new(),
            links: BTreeMap::new(),
            accepted: BTreeMap::new(),
            timer: None,
        }
    }

    /// Returns whether all its programs have ended.
    pub(super) fn is_done(&self) -> bool {
        self.programs.is_none()
    }

    /// Runs the programs until all of them wait.
    ///
    /// # Errors
    /// An error that a program found.
    pub(super) fn run(&mut self) -> Result<bool, String> {
        let mut has_run = false;
        while self.program_woken.take() {
            let Some(programs) = &mut self.programs else { break };
            has_run = true;
            let waker = Waker::from(Arc::clone(&self.program_woken));
            if let Poll::Ready(outcome) = programs.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.programs = None;
                outcome?;
            }
        }
        Ok(has_run)
    }

    /// Returns the engine's next action, if it has woken its transport.
    pub(super) fn wishes(&mut self) -> Vec<Wish> {
        let mut wishes = Vec::new();
        if !self.transport_woken.take() {
            return wishes;
        }
        let waker = Waker::from(Arc::clone(&self.transport_woken));
        let mut context = Context::from_waker(&waker);
        while let Poll::Ready(Some(action)) = self.engine.poll_action(&mut context) {
            wishes.push(Wish::Act(action));
        }
        for (connection, link) in self.links.values() {
            while let Poll::Ready(Some(record)) = self.engine.poll_record(*connection, &mut context) {
                wishes.push(Wish::Send(*link, record));
            }
        }
        let engine = &self.engine;
        self.accepted.retain(|id, link| {
            while let Poll::Ready(reply) = engine.poll_accepted_reply(*id, &mut context) {
                let Some(reply) = reply else {
                    wishes.push(Wish::Close(*link));
                    return false;
                };
                wishes.push(Wish::Send(*link, vec![reply]));
            }
            true
        });
        wishes
    }

    /// Makes the transport poll again, because a connection was made.
    pub(super) fn wake_transport(&self) {
        self.transport_woken.wake_by_ref();
    }

    /// Notes the link of a connection.
    pub(super) fn set_link(&mut self, connection: ConnectionId, link: usize) {
        self.links.insert(connection.index(), (connection, link));
    }

    /// Notes the link of a connection that the server has made.
    pub(super) fn set_accepted(&mut self, id: AcceptedId, link: usize) {
        self.accepted.insert(id, link);
    }

    /// Gives a record to the engine. Returns false if the connection must be closed.
    pub(super) fn deliver(&self, at_client: ClientEnd, link: usize, record: Bytes) -> bool {
        match at_client {
            ClientEnd::Made(connection) if self.has_link(connection, link) => {
                self.engine.handle_record(connection, record)
            }
            ClientEnd::Made(_) => true,
            ClientEnd::Accepted(id) => self.engine.handle_accepted_call(id, record),
        }
    }

    /// Handles the loss of a link.
    pub(super) fn lose_link(&mut self, at_client: ClientEnd, link: usize) {
        match at_client {
            ClientEnd::Made(connection) if self.has_link(connection, link) => {
                self.take_link(connection);
                self.engine.handle_disconnected(connection);
            }
            ClientEnd::Made(_) => return,
            ClientEnd::Accepted(id) => {
                self.accepted.remove(&id);
                self.engine.handle_accepted_closed(id);
            }
        }
        self.wake_transport();
    }

    /// Removes and returns the link of a closed connection.
    pub(super) fn take_link(&mut self, connection: ConnectionId) -> Option<usize> {
        self.links.remove(&connection.index()).map(|(_, link)| link)
    }

    /// Returns whether a link is the current one of its connection.
    pub(super) fn has_link(&self, connection: ConnectionId, link: usize) -> bool {
        self.links.get(&connection.index()).is_some_and(|(_, current)| *current == link)
    }
}
