//! SEQUENCE + PUTFH + GETATTR of the prepared file: the cost of a session, compared with version 3's GETATTR.

use std::rc::Rc;

use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::types::{FileType, Outcome as Answer};
use xdr::{Decode, DecodeError};

use super::ATTRIBUTES;
use super::session::Setup;
use super::slots::{Keep, Request, Slots};
use crate::error::LoadError;
use crate::layout;
use crate::load::replies::Reply;
use crate::load::workload::{Outcome, Workload};

pub(super) struct SequenceGetattr {
    slots: Rc<Slots>,
    /// By slot.
    requests: Vec<Request>,
}

impl SequenceGetattr {
    pub(super) async fn new(setup: &mut Setup<'_>) -> Result<Self, LoadError> {
        let handle = setup.find(layout::READ_FILE).await?;
        let slots = setup.session.slots();
        let operations =
            [Op::PutFh(PutFhArgs { handle }), Op::GetAttr(GetAttrArgs { attributes: ATTRIBUTES })];
        let requests = (0..slots.count()).map(|slot| slots.request(slot, Keep::No, &operations)).collect();
        Ok(Self { slots, requests })
    }
}

impl Workload for SequenceGetattr {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.requests[slot].append(&self.slots, xid, out);
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let results = self.slots.results(slot, reply)?;
        let [OpResult::PutFh(Answer::Ok(())), OpResult::GetAttr(Answer::Ok(attributes))] = &results[..]
        else {
            return Err(format!("results {results:?}"));
        };
        check_file(attributes, layout::FILE_BYTES).map(|()| Outcome::Finished)
    }
}

/// Checks that [`ATTRIBUTES`] are all present and begin like those of a regular file of `bytes` bytes.
pub(super) fn check_file(attributes: &FileAttributes, bytes: u64) -> Result<(), String> {
    if attributes.mask != ATTRIBUTES {
        return Err(format!("attributes {:?} instead of {ATTRIBUTES:?}", attributes.mask));
    }
    // The values are in the order of their numbers: type, change, size first.
    let mut reader = attributes.reader();
    let mut first = || Ok::<_, DecodeError>((FileType::decode(&mut reader)?, reader.u64()?, reader.u64()?));
    match first().map_err(|error| error.to_string())? {
        (FileType::REGULAR, _, size) if size == bytes => Ok(()),
        other => Err(format!("attributes of another file: {other:?}")),
    }
}
