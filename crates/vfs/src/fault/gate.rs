use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Holds operations until it is opened. Clones are the same gate.
#[derive(Clone, Default)]
pub struct Gate {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_open: bool,
    next: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
}

impl Gate {
    /// Creates a closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets all operations pass, now and from now on.
    pub fn open(&self) {
        let mut state = self.state.lock();
        state.is_open = true;
        let wakers: Vec<_> = state.waiting.values_mut().filter_map(Option::take).collect();
        // A woken operation may run at once, and call this again.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Closes it for later operations.
    pub fn close(&self) {
        self.state.lock().is_open = false;
    }

    /// Returns the number of waiting operations.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Resolves once the gate is open. Waiting starts at the call, not at the first poll.
    pub(super) fn opened(&self) -> Opened {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, None);
        drop(state);
        Opened { gate: self.clone(), number }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Gate")
            .field("is_open", &state.is_open)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

pub(super) struct Opened {
    gate: Gate,
    number: u64,
}

impl Future for Opened {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.gate.state.lock();
        if state.is_open {
            return Poll::Ready(());
        }
        state.waiting.insert(self.number, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.gate.state.lock().waiting.remove(&self.number);
    }
}
