//! OPEN, READ and CLOSE of a small file in one compound, with the attributes for close-to-open consistency.

use std::rc::Rc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::open::{OpenHow, ShareAccess};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::types::{Outcome as Answer, Stateid};

use super::getattr::check_file;
use super::session::Setup;
use super::slots::{Keep, Request, Slots};
use super::{ATTRIBUTES, open};
use crate::error::LoadError;
use crate::layout;
use crate::load::replies::Reply;
use crate::load::small_files::{self, NameField, Walk};
use crate::load::workload::{Outcome, Workload};
use crate::operation::SMALL_BYTES;

/// Room for the other operations' results around the data.
const REPLY_BYTES_MAX: usize = SMALL_BYTES as usize + 2048;

pub(super) struct OpenReadClose {
    slots: Rc<Slots>,
    /// By slot.
    requests: Vec<Request>,
    /// The names in them.
    names: Vec<NameField>,
    walk: Walk,
    /// The requested file of each slot.
    asked: Vec<u32>,
}

impl OpenReadClose {
    pub(super) async fn new(setup: &mut Setup<'_>) -> Result<Self, LoadError> {
        let handle = setup.find(layout::SMALL_DIRECTORY).await?;
        let slots = setup.session.slots();
        let render = |slot, index| {
            // RFC 8881 §16.2.3.1.2: OPEN sets the current handle and the current stateid.
            let operations = [
                Op::PutFh(PutFhArgs { handle }),
                Op::Open(open(slot, ShareAccess::READ, OpenHow::NoCreate, small_files::name(index))),
                Op::GetAttr(GetAttrArgs { attributes: ATTRIBUTES }),
                Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: SMALL_BYTES }),
                Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }),
            ];
            slots.request(slot, Keep::No, &operations)
        };
        let name = |slot| NameField::find(|index| render(slot, index).into_template());
        Ok(Self {
            requests: (0..slots.count()).map(|slot| render(slot, 0)).collect(),
            names: (0..slots.count()).map(name).collect(),
            walk: Walk::of_connection(setup.connection),
            asked: vec![0; slots.count()],
            slots,
        })
    }
}

impl Workload for OpenReadClose {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.asked[slot] = self.walk.next();
        let start = self.requests[slot].append(&self.slots, xid, out);
        self.names[slot].patch(out, start, self.asked[slot]);
    }

    fn reply_head_bytes(&self) -> usize {
        REPLY_BYTES_MAX
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let results = self.slots.results(slot, reply)?;
        let [
            OpResult::PutFh(Answer::Ok(())),
            OpResult::Open(Answer::Ok(_)),
            OpResult::GetAttr(Answer::Ok(attributes)),
            OpResult::Read(Answer::Ok(read)),
            OpResult::Close(Answer::Ok(_)),
        ] = &results[..]
        else {
            return Err(format!("results {results:?}"));
        };
        check_file(attributes, u64::from(SMALL_BYTES))?;
        if !read.eof {
            return Err("no end of file".into());
        }
        small_files::check_data(self.asked[slot], read.data.bytes())?;
        Ok(Outcome::Finished)
    }
}
