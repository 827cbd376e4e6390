//! Copies that a server makes in the background, and their ends (CB_OFFLOAD, RFC 7862 §16.1).

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use protocol::nfs4::callback::offload::OffloadInfo;
use protocol::nfs4::types::Stateid;

/// Maximum number of kept ends of copies whose COPY has no reply yet.
const EARLY_MAX: usize = 64;

/// A stateid without its seqid.
type Other = [u8; 12];

/// The background copies of a client.
#[derive(Debug, Default)]
pub(crate) struct Offloads {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    copies: HashMap<Other, Copy>,
    /// Ends that came before the reply to COPY.
    early: VecDeque<(Other, OffloadInfo)>,
}

#[derive(Debug, Default)]
struct Copy {
    end: Option<OffloadInfo>,
    waker: Option<Waker>,
}

/// A copy for which a caller waits.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    offloads: &'a Offloads,
    other: Other,
}

impl Offloads {
    /// Notes a copy that the server makes in the background.
    pub(crate) fn begin(&self, stateid: &Stateid) -> Waiting<'_> {
        let mut state = self.state.lock();
        let at = state.early.iter().position(|(other, _)| *other == stateid.other);
        let end = at.and_then(|at| state.early.remove(at)).map(|(_, end)| end);
        state.copies.insert(stateid.other, Copy { end, waker: None });
        Waiting { offloads: self, other: stateid.other }
    }

    /// Notes the end that the server reports.
    pub(crate) fn ended(&self, stateid: &Stateid, end: OffloadInfo) {
        let mut state = self.state.lock();
        match state.copies.get_mut(&stateid.other) {
            Some(copy) => {
                copy.end = Some(end);
                if let Some(waker) = copy.waker.take() {
                    waker.wake();
                }
            }
            None => {
                if state.early.len() >= EARLY_MAX {
                    state.early.pop_front();
                }
                state.early.push_back((stateid.other, end));
            }
        }
    }
}

impl Waiting<'_> {
    /// Waits until the server reports the end, at most until `timeout` has ended.
    pub(crate) async fn end(&self, timeout: impl Future<Output = ()>) -> Option<OffloadInfo> {
        let mut timeout = pin!(timeout);
        poll_fn(|context| {
            if let Some(copy) = self.offloads.state.lock().copies.get_mut(&self.other) {
                if let Some(end) = copy.end.take() {
                    return Poll::Ready(Some(end));
                }
                copy.waker = Some(context.waker().clone());
            }
            timeout.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.offloads.state.lock().copies.remove(&self.other);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use protocol::nfs4::types::Status;

    use super::*;

    #[test]
    fn an_end_is_found_whether_it_comes_before_or_after_the_reply() {
        let (offloads, end) = (Offloads::default(), OffloadInfo::Error(Status::NOSPC, 7));
        let stateid = |number| Stateid { seqid: 1, other: [number; 12] };
        offloads.ended(&stateid(1), end.clone());
        let copy = offloads.begin(&stateid(1));
        assert_eq!(copy.end(pending()).now_or_never(), Some(Some(end.clone())));
        drop(copy);
        let copy = offloads.begin(&stateid(2));
        assert_eq!(copy.end(pending()).now_or_never(), None);
        offloads.ended(&stateid(2), end.clone());
        assert_eq!(copy.end(pending()).now_or_never(), Some(Some(end.clone())));
        for number in 0..=255 {
            offloads.ended(&stateid(number), end.clone());
        }
        drop(copy);
        let state = offloads.state.lock();
        assert_eq!((state.early.len(), state.copies.len()), (EARLY_MAX, 0));
    }
}
