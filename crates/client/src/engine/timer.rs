//! Tasks that wait for a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Engine;

/// Waits until a time, or until the engine is shut down.
pub struct Sleep {
    engine: Arc<Engine>,
    until: Duration,
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn new(engine: Arc<Engine>, until: Duration) -> Self {
        Self { engine, until, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.engine.now() >= this.until {
            return Poll::Ready(());
        }
        let mut state = this.engine.state.lock();
        if state.is_shut_down {
            return Poll::Ready(());
        }
        let number = *this.number.get_or_insert_with(|| {
            state.next_sleeper += 1;
            state.next_sleeper
        });
        state.sleepers.insert((this.until, number), context.waker().clone());
        // The transport waits for the earliest deadline, which may be this one now.
        super::wake(&mut state.action_waker);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.engine.state.lock().sleepers.remove(&(self.until, number));
        }
    }
}
