//! What an answer need not wait for: done when this thread has sent what it has, and has nothing else to do.

use std::cell::RefCell;
use std::sync::Arc;

use crate::patience;

thread_local! {
    static GONE: RefCell<Vec<Arc<dyn Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

/// Drops something behind the answer, where this thread answers calls in place; elsewhere at once.
pub(crate) fn drop_later(it: Arc<dyn Send + Sync>) {
    // Elsewhere the task would run on another thread than this.
    if !patience::is_in_place() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let is_first = GONE.with_borrow_mut(|gone| {
        gone.push(it);
        gone.len() == 1
    });
    if is_first {
        let all = All;
        runtime.spawn(async move { drop(all) });
    }
}

/// All that is gone: dropped with this, be it that the task has run, or that its runtime has ended before. Else nothing that came later would be dropped,
/// as it was not the first.
struct All;

impl Drop for All {
    fn drop(&mut self) {
        // At the end of the thread they go with it.
        let gone = GONE.try_with(RefCell::take).unwrap_or_default();
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::InPlace;

    #[test]
    fn what_is_gone_is_dropped_behind_the_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..2 {
                let (one, other) = (Arc::new(1), Arc::new(2));
                let stretch = InPlace::begin(1);
                drop_later(Arc::clone(&one) as _);
                drop_later(Arc::clone(&other) as _);
                stretch.end();
                assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (2, 2));
                tokio::task::yield_now().await;
                assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 1));
            }
        });
    }

    #[test]
    fn what_a_runtime_leaves_behind_is_dropped_with_it() {
        for _ in 0..2 {
            let it = Arc::new(1);
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let stretch = InPlace::begin(1);
                drop_later(Arc::clone(&it) as _);
                stretch.end();
            });
            drop(runtime);
            assert_eq!(Arc::strong_count(&it), 1);
        }
    }

    #[test]
    fn elsewhere_it_is_dropped_at_once() {
        let it = Arc::new(1);
        drop_later(Arc::clone(&it) as _);
        let stretch = InPlace::begin(1);
        drop_later(Arc::clone(&it) as _);
        stretch.end();
        assert_eq!(Arc::strong_count(&it), 1, "out of place, and without a runtime");
    }
}
