//! CB_GETATTR (RFC 8881 §10.4.3, §20.1): the holder of a write delegation knows the file's size, and whether it has changed.
//!
//! Whoever asks for attributes meanwhile asks the holder, through the server: many who ask at once ask once. Where the holder
//! does not answer, the delegation is recalled.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::attributes::{Attributes, number};
use protocol::nfs4::callback::recall::CbGetAttrArgs;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::types::Bitmap;

use super::State;
use super::callback::{Callback, Purpose};
use super::client::Client;
use super::delegation::Against;
use super::shard::{FileKey, Shard};
use super::stateid::Place;
use super::waiter::Waiter;

/// How long a holder may take: it answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a holder said of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Bytes.
    pub size: u64,
    /// Whether it holds changes that are not here yet.
    pub is_modified: bool,
}

/// What a delegation remembers of the questions about it.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// `change` when it was granted.
    change: u64,
    asked: u64,
    answered: u64,
    told: Option<Told>,
}

impl Questions {
    pub(super) fn new(change: u64) -> Self {
        Self { change, ..Self::default() }
    }
}

/// Where a question to a holder stands.
#[derive(Debug)]
pub enum Inquiry {
    /// Nobody else has the file delegated for writing (any more).
    Nobody,
    /// It is on its way: wait, and look again with the number.
    Asked(u64, Arc<Waiter>),
    /// The answer.
    Told(Told),
    /// There was none.
    Refused,
}

impl Shard {
    fn holder(&self, file: FileKey, who: Option<&Client>) -> Option<u32> {
        self.conflicts(file, who.map(Client::id), Against::Writers).first().copied()
    }
}

impl State {
    /// By when a holder that is asked at `now` should have answered.
    #[must_use]
    pub fn answer_until(&self, now: Duration) -> Duration {
        now + PATIENCE.min(self.lease / 3)
    }

    /// Asks the holder of another's write delegation of a file, or looks for the answer to question `number`.
    pub fn inquire(
        &self,
        now: Duration,
        deadline: Duration,
        who: Option<&Client>,
        file: FileKey,
        number: Option<u64>,
    ) -> Inquiry {
        let mut shard = self.shards[self.shard_of(file)].lock();
        let Some(index) = shard.holder(file, who) else { return Inquiry::Nobody };
        let client = Arc::clone(&shard.entry(index).client);
        // A client whose lease is over holds nothing that others need to know: §8.4.3.
        if client.is_expired(now, self.lease) {
            return Inquiry::Nobody;
        }
        let place = shard.place(index);
        let delegation = shard.delegation_at_mut(index);
        let questions = &mut delegation.questions;
        if let Some(number) = number
            && questions.answered >= number
        {
            return questions.told.map_or(Inquiry::Refused, Inquiry::Told);
        }
        let is_new = questions.asked == questions.answered;
        questions.asked += u64::from(is_new);
        let number = number.unwrap_or(questions.asked);
        let call = is_new.then(|| {
            let attributes = Bitmap::of(&[number::CHANGE, number::SIZE]);
            let args = CbGetAttrArgs { handle: delegation.handle, attributes };
            let referring = delegation.granted_by.clone();
            Callback::new(CbOp::GetAttr(args), Purpose::GetAttr(place), referring)
        });
        let waiter = self.wait_for(&mut shard, file, deadline);
        drop(shard);
        if let Some(call) = call {
            self.delegations.counts.inquiries.fetch_add(1, Relaxed);
            self.call(&client, call);
        }
        Inquiry::Asked(number, waiter)
    }

    /// What the holder said.
    pub(super) fn getattr_answered(&self, place: Place, result: Option<CbOpResult>) {
        let said = result.and_then(|result| match result {
            CbOpResult::GetAttr(result) => result.into_result().ok(),
            _ => None,
        });
        let attributes = said.and_then(|said| Attributes::from_file_attributes(&said).ok());
        let mut shard = self.shards[place.shard].lock();
        if !shard.is_delegation(place) {
            return;
        }
        let file = shard.entry(place.index).file;
        let questions = &mut shard.delegation_at_mut(place.index).questions;
        questions.answered = questions.asked;
        // §10.4.3: "If the value cc is equal to sc, the file is not modified".
        questions.told = attributes.and_then(|said| {
            let is_modified = said.change? != questions.change;
            Some(Told { size: said.size?, is_modified })
        });
        shard.wake_waiting(file);
    }
}
