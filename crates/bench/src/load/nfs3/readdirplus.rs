//! READDIRPLUS of the directory of small files: all calls of a listing count as one operation; and a reply of the same length without a
//! listing.

use protocol::nfs3::{CookieVerf, FileHandle, Proc, ReaddirplusArgs, ReaddirplusResult};

use super::{request, success};
use crate::floor::SEND;
use crate::layout::LISTING_BYTES;
use crate::load::replies::{REPLY_BYTES_MAX, Reply};
use crate::load::small_files::Listing;
use crate::load::template::{Template, patch};
use crate::load::workload::{Outcome, Workload};
use crate::operation::{LARGE_BYTES, SMALL_BYTES};

/// The position of a slot's listing.
#[derive(Clone, Debug)]
struct Position {
    cookie: u64,
    verifier: CookieVerf,
    listing: Listing,
}

/// Listings of one directory.
pub(super) struct Readdirplus {
    template: Template,
    cookie_at: usize,
    verifier_at: usize,
    slots: Vec<Position>,
}

impl Readdirplus {
    /// Lists `directory`, requesting as much as fits into a reply.
    pub(super) fn new(directory: FileHandle, depth: usize) -> Self {
        let render = |cookie, cookieverf| {
            let arguments = ReaddirplusArgs {
                dir: directory,
                cookie,
                cookieverf,
                dircount: LARGE_BYTES,
                maxcount: LARGE_BYTES,
            };
            request(Proc::READDIRPLUS, &arguments)
        };
        let template = render(0, [0; 8]);
        Self {
            cookie_at: Template::field(&template, &render(u64::MAX, [0; 8])),
            verifier_at: Template::field(&template, &render(0, [u8::MAX; 8])),
            template,
            slots: vec![Position { cookie: 0, verifier: [0; 8], listing: Listing::new() }; depth],
        }
    }
}

impl Workload for Readdirplus {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        let position = &self.slots[slot];
        let start = self.template.append(xid, out);
        patch(out, start + self.cookie_at, &position.cookie.to_be_bytes());
        patch(out, start + self.verifier_at, &position.verifier);
    }

    fn reply_head_bytes(&self) -> usize {
        REPLY_BYTES_MAX
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let page = success(reply.results::<ReaddirplusResult>()?)?;
        let position = &mut self.slots[slot];
        for entry in &page.reply.entries {
            position.cookie = entry.cookie;
            if !position.listing.add(entry.name.bytes())? {
                continue;
            }
            // RFC 1813 §3.3.17: both are optional; but without them, another call for each file would be necessary.
            let size = entry.name_attributes.as_ref().map(|attributes| attributes.size);
            if entry.name_handle.is_none() || size != Some(u64::from(SMALL_BYTES)) {
                return Err(format!("an incomplete entry {entry:?}"));
            }
        }
        if page.reply.eof {
            position.listing.end()?;
            (position.cookie, position.verifier) = (0, [0; 8]);
            return Ok(Outcome::Finished);
        }
        if page.reply.entries.is_empty() {
            return Err("no entry and no end".into());
        }
        position.verifier = page.cookieverf;
        Ok(Outcome::Continues)
    }
}

/// The floor's own call: a reply of as many arbitrary bytes as a listing takes.
pub(super) struct Send {
    template: Template,
}

impl Send {
    /// Returns the workload for as many bytes as READDIRPLUS returns.
    pub(super) fn new() -> Self {
        Self { template: request(SEND, &LISTING_BYTES) }
    }
}

impl Workload for Send {
    fn request(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.template.append(xid, out);
    }

    fn reply(&mut self, _slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let mut reader = reply.reader()?;
        let bytes = reader.u32().map_err(|error| error.to_string())?;
        match reader.position() + bytes as usize {
            end if bytes == LISTING_BYTES && end == reply.length => Ok(Outcome::Finished),
            end => Err(format!("{bytes} bytes in a reply of {}, not {end}", reply.length)),
        }
    }
}
