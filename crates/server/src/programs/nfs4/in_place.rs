//! The outcome of an operation that was tried in place.

/// The progress of an operation that was tried in place, before a future is made for it.
pub(crate) enum InPlace<T> {
    /// Its results are written.
    Done,
    /// It may have to wait, for the backend call that it has started, if any. It continues with that call.
    Pending(Option<T>),
}
