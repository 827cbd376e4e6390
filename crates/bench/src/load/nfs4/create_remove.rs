//! A file created, closed and removed again: OPEN and CLOSE in one compound, REMOVE in another; the pair counts as one
//! operation.

use std::rc::Rc;

use protocol::nfs4::attributes::SetAttributes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenHow, ShareAccess};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::types::{Mode, Outcome as Answer, Stateid};

use super::getattr::check_file;
use super::session::Setup;
use super::slots::{Keep, Request, Slots};
use super::{ATTRIBUTES, component, open};
use crate::error::LoadError;
use crate::layout;
use crate::load::replies::Reply;
use crate::load::workload::{Outcome, Workload};

pub(super) struct CreateRemove {
    slots: Rc<Slots>,
    /// The two compounds of each slot.
    requests: Vec<[Request; 2]>,
    /// Slots whose file exists, so that the REMOVE comes next.
    created: Vec<bool>,
}

impl CreateRemove {
    pub(super) async fn new(setup: &mut Setup<'_>) -> Result<Self, LoadError> {
        let handle = setup.find(layout::CHURN_DIRECTORY).await?;
        let slots = setup.session.slots();
        let connection = setup.connection;
        let pair = |slot| {
            let name = component(&format!("file-{connection:02}-{slot:02}"));
            let attributes =
                SetAttributes { mode: Some(Mode::from_bits_retain(0o644)), ..SetAttributes::default() };
            let how = OpenHow::Create(CreateHow::Guarded((&attributes).into()));
            // The handle and the attributes belong to a creation, as version 3's CREATE answers them.
            let create = [
                Op::PutFh(PutFhArgs { handle }),
                Op::Open(open(slot, ShareAccess::BOTH, how, name.clone())),
                Op::GetFh,
                Op::GetAttr(GetAttrArgs { attributes: ATTRIBUTES }),
                Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }),
            ];
            let remove = [Op::PutFh(PutFhArgs { handle }), Op::Remove(RemoveArgs { target: name })];
            [slots.request(slot, Keep::Yes, &create), slots.request(slot, Keep::Yes, &remove)]
        };
        let requests = (0..slots.count()).map(pair).collect();
        Ok(Self { created: vec![false; slots.count()], requests, slots })
    }
}

impl Workload for CreateRemove {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.requests[slot][usize::from(self.created[slot])].append(&self.slots, xid, out);
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let results = self.slots.results(slot, reply)?;
        let outcome = match &results[..] {
            [
                OpResult::PutFh(Answer::Ok(())),
                OpResult::Open(Answer::Ok(_)),
                OpResult::GetFh(Answer::Ok(_)),
                OpResult::GetAttr(Answer::Ok(attributes)),
                OpResult::Close(Answer::Ok(_)),
            ] if !self.created[slot] => {
                check_file(attributes, 0)?;
                Outcome::Continues
            }
            [OpResult::PutFh(Answer::Ok(())), OpResult::Remove(Answer::Ok(_))] if self.created[slot] => {
                Outcome::Finished
            }
            _ => return Err(format!("results {results:?}")),
        };
        self.created[slot] = !self.created[slot];
        Ok(outcome)
    }
}
