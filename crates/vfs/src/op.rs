use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Error, Result};

/// The result of an operation of a [`Backend`](crate::Backend): the answer, or a future of it.
///
/// Rejected: a boxed future for every call. It costs an allocation for each GETATTR, which a cached descriptor
/// answers in half a microsecond.
#[must_use = "an operation does nothing more unless awaited"]
pub enum Op<'a, T> {
    /// The answer. `None` after the poll that returned it.
    Ready(Option<Result<T>>),
    /// Waits for a cold read, an fsync, or media that are offline.
    Pending(Later<'a, T>),
}

/// A future answer. A read does nothing before it is polled; a change may have been made already, and wait for stable
/// storage.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Boxes the future that `make` returns, which is constructed in the box. `Box::pin` would construct a future of
/// kilobytes on the stack and copy it, although it contains only its arguments so far.
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

impl<'a, T> Op<'a, T> {
    /// Creates an immediate success.
    pub fn ok(value: T) -> Self {
        Self::Ready(Some(Ok(value)))
    }

    /// Creates an immediate failure.
    pub fn err(error: Error) -> Self {
        Self::Ready(Some(Err(error)))
    }

    /// Creates a future answer.
    pub fn pending(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Takes the answer if it is immediate. Otherwise the operation can still be awaited; one that changes nothing
    /// can be dropped too, as if it had not been requested.
    pub fn take_ready(&mut self) -> Option<Result<T>> {
        match self {
            Self::Ready(result) => result.take(),
            Self::Pending(_) => None,
        }
    }

    /// Returns the answer if it is immediate, otherwise the future, so that the caller matches once.
    pub fn at_once(self) -> core::result::Result<Result<T>, Later<'a, T>> {
        match self {
            Self::Ready(Some(result)) => Ok(result),
            Self::Ready(None) => unreachable!("an answer is taken once"),
            Self::Pending(later) => Err(later),
        }
    }

    /// Returns the immediate answer.
    ///
    /// # Panics
    /// If the operation is pending: for backends in memory and their tests.
    pub fn now(self) -> Result<T> {
        match self {
            Self::Ready(Some(result)) => result,
            Self::Ready(None) => unreachable!("an answer is taken once"),
            Self::Pending(_) => panic!("the operation is not answered at once"),
        }
    }
}

impl<T> From<Result<T>> for Op<'_, T> {
    fn from(result: Result<T>) -> Self {
        Self::Ready(Some(result))
    }
}

// The answer is never pinned: it moves out whole.
impl<T> Unpin for Op<'_, T> {}

impl<T> Future for Op<'_, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(result) => Poll::Ready(result.take().expect("an answer is taken once")),
            Self::Pending(future) => future.as_mut().poll(context),
        }
    }
}
