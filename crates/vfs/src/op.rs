use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Error, Result};

/// What an operation of a [`Backend`](crate::Backend) returns: the answer, or a future of it.
///
/// The rejected alternative is a boxed future for every call: an allocation for each GETATTR that a cached
/// descriptor answers in half a microsecond.
#[must_use = "an operation does nothing more unless awaited"]
pub enum Op<'a, T> {
    /// Answered in place. `None` once taken by the poll that returned it.
    Ready(Option<Result<T>>),
    /// Waits for something: a cold read, an fsync, a medium that is offline.
    Pending(Later<'a, T>),
}

/// An answer that takes time. Nothing of a look is done before it is polled; a change may have been made by then, and wait to be on
/// stable storage.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// `Box::pin` of what `make` makes, which is written where it stays: made before the box is there, a future of kilobytes would be copied
/// into it whole, though it holds no more than its arguments yet.
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

impl<'a, T> Op<'a, T> {
    /// Success at once.
    pub fn ok(value: T) -> Self {
        Self::Ready(Some(Ok(value)))
    }

    /// Failure at once.
    pub fn err(error: Error) -> Self {
        Self::Ready(Some(Err(error)))
    }

    /// An answer that will take time.
    pub fn pending(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Takes the answer, where there is one without waiting. Elsewhere the operation can still be awaited; one that changes nothing
    /// can be dropped too, as if it had never been asked for.
    pub fn take_ready(&mut self) -> Option<Result<T>> {
        match self {
            Self::Ready(result) => result.take(),
            Self::Pending(_) => None,
        }
    }

    /// The answer, where there is one without waiting; what to wait for elsewhere, so that nobody has to ask twice.
    pub fn at_once(self) -> core::result::Result<Result<T>, Later<'a, T>> {
        match self {
            Self::Ready(Some(result)) => Ok(result),
            Self::Ready(None) => unreachable!("an answer is taken once"),
            Self::Pending(later) => Err(later),
        }
    }

    /// The answer, where there is one without waiting.
    ///
    /// # Panics
    /// Where the operation is still pending: for backends in memory and their tests.
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
