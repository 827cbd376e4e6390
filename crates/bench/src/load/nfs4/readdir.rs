//! READDIR of the directory of small files with handles and attributes; all calls of a listing count as one operation.

use std::rc::Rc;

use protocol::nfs4::attributes::number;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::types::{Bitmap, Outcome as Answer, Verifier};

use super::ATTRIBUTES;
use super::session::Setup;
use super::slots::{Keep, Request, Slots};
use crate::error::LoadError;
use crate::layout;
use crate::load::replies::{REPLY_BYTES_MAX, Reply};
use crate::load::small_files::Listing;
use crate::load::template::{Template, patch};
use crate::load::workload::{Outcome, Workload};
use crate::operation::LARGE_BYTES;

/// The information of version 3's READDIRPLUS for each entry: the handle, and stat(2)'s attributes.
const ENTRY_ATTRIBUTES: Bitmap = ATTRIBUTES.union(Bitmap::of(&[number::RDATTR_ERROR, number::FILEHANDLE]));

/// The position of a slot's listing.
#[derive(Clone, Debug)]
struct Position {
    cookie: u64,
    verifier: Verifier,
    listing: Listing,
}

pub(super) struct Readdir {
    slots: Rc<Slots>,
    /// By slot.
    requests: Vec<Request>,
    cookie_at: usize,
    verifier_at: usize,
    positions: Vec<Position>,
}

impl Readdir {
    pub(super) async fn new(setup: &mut Setup<'_>) -> Result<Self, LoadError> {
        let handle = setup.find(layout::SMALL_DIRECTORY).await?;
        let slots = setup.session.slots();
        let render = |slot, cookie, cookie_verifier| {
            let arguments = ReadDirArgs {
                cookie,
                cookie_verifier,
                dircount: LARGE_BYTES,
                maxcount: LARGE_BYTES,
                attributes: ENTRY_ATTRIBUTES,
            };
            slots.request(slot, Keep::No, &[Op::PutFh(PutFhArgs { handle }), Op::ReadDir(arguments)])
        };
        let template = |cookie, verifier| render(0, cookie, verifier).into_template();
        let first = template(0, [0; 8]);
        let start = Position { cookie: 0, verifier: [0; 8], listing: Listing::new() };
        Ok(Self {
            cookie_at: Template::field(&first, &template(u64::MAX, [0; 8])),
            verifier_at: Template::field(&first, &template(0, [u8::MAX; 8])),
            requests: (0..slots.count()).map(|slot| render(slot, 0, [0; 8])).collect(),
            positions: vec![start; slots.count()],
            slots,
        })
    }
}

impl Workload for Readdir {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let position = &self.positions[slot];
        let start = self.requests[slot].append(&self.slots, xid, out);
        patch(out, start + self.cookie_at, &position.cookie.to_be_bytes());
        patch(out, start + self.verifier_at, &position.verifier);
    }

    fn reply_head_bytes(&self) -> usize {
        REPLY_BYTES_MAX
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let results = self.slots.results(slot, reply)?;
        let [OpResult::PutFh(Answer::Ok(())), OpResult::ReadDir(Answer::Ok(page))] = &results[..] else {
            return Err(format!("results {results:?}"));
        };
        let position = &mut self.positions[slot];
        for entry in &page.entries {
            // RFC 8881 §18.23.3: an entry without available attributes would carry only rdattr_error.
            if entry.attributes.mask != ENTRY_ATTRIBUTES || !position.listing.add(entry.name.bytes())? {
                return Err(format!("an entry {entry:?}"));
            }
            position.cookie = entry.cookie;
        }
        if page.eof {
            position.listing.end()?;
            (position.cookie, position.verifier) = (0, [0; 8]);
            return Ok(Outcome::Finished);
        }
        if page.entries.is_empty() {
            return Err("no entry and no end".into());
        }
        position.verifier = page.cookie_verifier;
        Ok(Outcome::Continues)
    }
}
