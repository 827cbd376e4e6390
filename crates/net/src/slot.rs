use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::budget::Charge;

/// Memory for the future of one call, used again for the next: a call allocates only where it has to wait.
pub(crate) struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    /// What the call holds while it waits.
    charge: Option<Charge>,
}

impl<F: Future> Slot<F> {
    pub(crate) fn new() -> Self {
        Self { future: Box::pin(None), charge: None }
    }

    /// Charges the call in it for as long as it waits.
    pub(crate) fn hold(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// Puts in the call that `start` begins.
    #[inline]
    pub(crate) fn fill(&mut self, start: impl FnOnce() -> F) {
        assert!(self.future.as_ref().is_none(), "a slot is filled while it is empty");
        // Written where it stays, since nothing has to be dropped before: made elsewhere, it would be copied in whole, kilobytes that hold no
        // more than its arguments yet.
        self.future.set(Some(start()));
    }
}

/// Ready once the call in it is answered; the slot is empty then.
impl<F: Future> Future for Slot<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().as_pin_mut().expect("a slot is polled while it is filled");
        let output = std::task::ready!(future.poll(context));
        self.future.set(None);
        self.charge = None;
        Poll::Ready(output)
    }
}
