//! Drops values after the answer, when this thread has sent its replies and has nothing else to do.

use std::cell::RefCell;
use std::sync::Arc;

use crate::nonblocking;

thread_local! {
    static DEFERRED: RefCell<Vec<Arc<dyn Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

/// Drops a value after the answer where this thread answers calls in place, otherwise at once.
pub(crate) fn drop_deferred(it: Arc<dyn Send + Sync>) {
    // Elsewhere the task would run on another thread.
    if !nonblocking::is_in_place() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let is_first = DEFERRED.with_borrow_mut(|deferred| {
        deferred.push(it);
        deferred.len() == 1
    });
    if is_first {
        let all = Deferred;
        runtime.spawn(async move { drop(all) });
    }
}

/// Drops all deferred values when it is dropped: after the task has run, or when its runtime ends before. Otherwise
/// later values would never be dropped, because only the first one spawns the task.
struct Deferred;

impl Drop for Deferred {
    fn drop(&mut self) {
        // At the end of the thread they are dropped with it.
        let deferred = DEFERRED.try_with(RefCell::take).unwrap_or_default();
        drop(deferred);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nonblocking::InPlace;

    #[test]
    fn values_are_dropped_after_the_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..2 {
                let (one, other) = (Arc::new(1), Arc::new(2));
                let section = InPlace::begin(1);
                drop_deferred(Arc::clone(&one) as _);
                drop_deferred(Arc::clone(&other) as _);
                section.end();
                assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (2, 2));
                tokio::task::yield_now().await;
                assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 1));
            }
        });
    }

    #[test]
    fn values_are_dropped_with_the_runtime() {
        for _ in 0..2 {
            let it = Arc::new(1);
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let section = InPlace::begin(1);
                drop_deferred(Arc::clone(&it) as _);
                section.end();
            });
            drop(runtime);
            assert_eq!(Arc::strong_count(&it), 1);
        }
    }

    #[test]
    fn values_are_dropped_at_once_out_of_place() {
        let it = Arc::new(1);
        drop_deferred(Arc::clone(&it) as _);
        let section = InPlace::begin(1);
        drop_deferred(Arc::clone(&it) as _);
        section.end();
        assert_eq!(Arc::strong_count(&it), 1, "out of place, and without a runtime");
    }
}
