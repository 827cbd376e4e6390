use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::budget::Charge;

/// Reusable memory for the future of one call: a call allocates only if it has to wait.
pub(crate) struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    /// The budget that the waiting call holds.
    charge: Option<Charge>,
}

impl<F: Future> Slot<F> {
    pub(crate) fn new() -> Self {
        Self { future: Box::pin(None), charge: None }
    }

    /// Holds a charge for the call until it is answered.
    pub(crate) fn hold(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// Starts a call in the slot.
    #[inline]
    pub(crate) fn fill(&mut self, start: impl FnOnce() -> F) {
        assert!(self.future.as_ref().is_none(), "only an empty slot is filled");
        // Build the future in place: a move would copy kilobytes that hold only its arguments so far.
        self.future.set(Some(start()));
    }
}

/// Completes when the call is answered; the slot is empty then.
impl<F: Future> Future for Slot<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().as_pin_mut().expect("only a filled slot is polled");
        let output = std::task::ready!(future.poll(context));
        self.future.set(None);
        self.charge = None;
        Poll::Ready(output)
    }
}
