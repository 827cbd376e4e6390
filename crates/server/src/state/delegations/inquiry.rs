//! CB_GETATTR (RFC 8881 §10.4.3, §20.1): the holder of a write delegation knows the file's size, and whether it has changed;
//! and its times, where it keeps them (RFC 9754 §5).
//!
//! Whoever asks for attributes meanwhile asks the holder, through the server: many who ask at once ask once. Where the holder
//! does not answer, the delegation is recalled.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::attributes::{Attributes as Said, number};
use protocol::nfs4::callback::recall::CbGetAttrArgs;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::types::Bitmap;
use vfs::{Attributes, Timestamp};

use super::delegation::{Against, Delegation};
use super::times::{HeldTimes, Times, timestamp};
use crate::Now;
use crate::state::State;
use crate::state::callbacks::callback::{Callback, Purpose};
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::shard::Shard;
use crate::state::tables::stateid::Place;
use crate::state::tables::waiter::Waiter;

/// How long a holder may take: it answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// What every holder is asked for.
const ASKED: Bitmap = Bitmap::of(&[number::CHANGE, number::SIZE]);
/// RFC 9754 §5: a server that has granted it "MUST query the client via a CB_GETATTR for" both.
const ASKED_OF_KEEPER: Bitmap = Bitmap::of(&[number::TIME_DELEG_ACCESS, number::TIME_DELEG_MODIFY]);

/// What a holder said of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    /// Bytes.
    size: u64,
    /// Whether it holds changes that are not here yet.
    is_modified: bool,
}

/// What the holder of a file's delegation knows better than the file itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// By which delegation.
    place: Place,
    /// Bytes, where it holds changes that are not here yet.
    size: Option<u64>,
    /// The file's times, where it keeps them.
    times: Option<Times>,
    /// Whether others see another file than before.
    pub is_news: bool,
}

impl Held {
    /// `known` are the file's times as they are known by now, where the holder keeps them.
    fn put_over(&self, known: Option<Times>, attributes: &mut Attributes) {
        attributes.size = self.size.unwrap_or(attributes.size);
        if let Some(Times { accessed, modified }) = known {
            (attributes.accessed, attributes.modified) = (accessed, modified);
            // RFC 9754 §5: "The change time can be derived from the modify time."
            attributes.changed = attributes.changed.max(modified);
        }
    }
}

/// What a delegation remembers of the questions about it.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// `change` when it was granted.
    change: u64,
    asked: u64,
    answered: u64,
    told: Option<Told>,
}

impl Questions {
    pub(crate) fn new(change: u64) -> Self {
        Self { change, ..Self::default() }
    }

    /// `change` when it was granted.
    pub(crate) fn change_of_grant(&self) -> u64 {
        self.change
    }

    /// Whether the holder's answer is awaited.
    pub(crate) fn is_open(&self) -> bool {
        self.asked > self.answered
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
    Told(Held),
    /// There was none.
    Refused,
}

impl Delegation {
    /// The holder's answer, if it is one.
    fn hear(&mut self, said: Option<Said>) {
        let questions = &mut self.questions;
        questions.answered = questions.asked;
        questions.told = said.and_then(|said| {
            if let Some(keeping) = &mut self.keeping {
                // RFC 9754 §5: who asked to keep times "MUST support" them here.
                let accessed = Some(timestamp(said.time_deleg_access?)?);
                let modified = Some(timestamp(said.time_deleg_modify?)?);
                keeping.hear(HeldTimes { accessed, modified });
            }
            // §10.4.3: "If the value cc is equal to sc, the file is not modified".
            let is_modified = said.change? != questions.change;
            Some(Told { size: said.size?, is_modified })
        });
    }

    /// What others are told by that. It is news to each of those who share an answer, until the file shows it.
    fn held(&mut self, place: Place, now: Timestamp) -> Option<Held> {
        let Told { size, is_modified } = self.questions.told?;
        let size = is_modified.then_some(size);
        let Some(keeping) = &mut self.keeping else {
            return Some(Held { place, size, times: None, is_news: is_modified });
        };
        keeping.hold(now);
        // Whatever it has changed has a time. An answer from before it handed that in is no news: the file would get another one.
        Some(Held { place, size, times: Some(keeping.known), is_news: keeping.is_news })
    }
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
        now: Now,
        deadline: Duration,
        who: Option<&Client>,
        file: FileKey,
        number: Option<u64>,
    ) -> Inquiry {
        let mut shard = self.shards[self.shard_of(file)].lock();
        let Some(index) = shard.holder(file, who) else { return Inquiry::Nobody };
        let client = Arc::clone(&shard.entry(index).client);
        // A client whose lease is over holds nothing that others need to know: §8.4.3.
        if client.is_expired(now.monotonic, self.lease) {
            return Inquiry::Nobody;
        }
        let place = shard.place(index);
        let delegation = shard.delegation_at_mut(index);
        let questions = &mut delegation.questions;
        if let Some(number) = number
            && questions.answered >= number
        {
            return delegation.held(place, now.wall).map_or(Inquiry::Refused, Inquiry::Told);
        }
        let is_new = !questions.is_open();
        questions.asked += u64::from(is_new);
        let number = number.unwrap_or(questions.asked);
        let call = is_new.then(|| {
            let attributes = if delegation.keeping.is_some() { ASKED.union(ASKED_OF_KEEPER) } else { ASKED };
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

    /// Puts what a holder said over what the file itself said later; its times as they are known by now, since it may have handed
    /// in others in between, which the file shows already. False where the delegation has ended: the file is to be looked at again.
    /// All that the holder knew may be there by now, and more, and the holder's word, beside a `change` that is newer, would be
    /// believed from then on; and what the file said while its holder kept the times is told to nobody.
    #[must_use]
    pub fn put_over(&self, held: Option<Held>, attributes: &mut Attributes) -> bool {
        let Some(held) = held else { return true };
        let shard = self.shards[held.place.shard].lock();
        if !shard.is_delegation(held.place) {
            return false;
        }
        let keeping = shard.delegation_at(held.place.index).keeping.as_ref();
        held.put_over(keeping.map(|keeping| keeping.known), attributes);
        true
    }

    /// Whether whoever said this has the file still.
    pub fn still_holds(&self, held: &Held) -> bool {
        self.shards[held.place.shard].lock().is_delegation(held.place)
    }

    /// The file's times and its change attribute have moved on since a holder said this.
    pub fn touched(&self, held: &Held) {
        let (mut shard, place) = (self.shards[held.place.shard].lock(), held.place);
        if shard.is_delegation(place)
            && let Some(keeping) = &mut shard.delegation_at_mut(place.index).keeping
            && let Some(shown) = held.times
        {
            keeping.is_news &= keeping.known.modified > shown.modified;
        }
    }

    /// What the holder said.
    pub(crate) fn getattr_answered(&self, place: Place, result: Option<CbOpResult>) {
        let said = result.and_then(|result| match result {
            CbOpResult::GetAttr(result) => result.into_result().ok(),
            _ => None,
        });
        let attributes = said.and_then(|said| Said::from_file_attributes(&said).ok());
        let mut shard = self.shards[place.shard].lock();
        if !shard.is_delegation(place) {
            return;
        }
        let file = shard.entry(place.index).file;
        shard.delegation_at_mut(place.index).hear(attributes);
        shard.wake_waiting(file);
    }
}
