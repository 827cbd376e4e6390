use std::ops::ControlFlow;

use protocol::nfs3::{
    CookieVerf, FATTR_LENGTH, FHSIZE, NfsStat, Outcome, PostOpAttr, ReaddirArgs, ReaddirOk, ReaddirplusArgs,
    ReaddirplusOk,
};
use protocol::nfs4::types::Bitmap;
use vfs::{Attributes, Entry, Handle, ReadDir};
use xdr::{Encode, Writer, padding};

use crate::files::listings;
use crate::files::listings::ListingSource;
use crate::files::lookup::dots;
use crate::listing_cache::{Form, Kind};
use crate::nfs3_reply::{answer, fattr, resolve, status};
use crate::payload;
use crate::request::{Request, Target};

/// Cookies of the two entries that backends do not list.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Bytes of a reply around its entries: status, directory attributes after their flag, verifier, the end of the list, and
/// end-of-file.
const AROUND: usize = 4 + 4 + FATTR_LENGTH + 8 + 4 + 4;

/// READDIR (RFC 1813 §3.3.16).
pub(super) async fn serve(request: &Request<'_>, args: ReaddirArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.dir) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<ReaddirOk, PostOpAttr>::Fail(status, None)),
    };
    let limits = Limits { names: usize::MAX, all: args.count.min(request.max_io()) as usize, plus: false };
    list(request, &target, args.cookie, args.cookieverf, limits, reply).await
}

/// READDIRPLUS (RFC 1813 §3.3.17).
pub(super) async fn serve_plus(request: &Request<'_>, args: ReaddirplusArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.dir) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<ReaddirplusOk, PostOpAttr>::Fail(status, None)),
    };
    let limits = Limits {
        names: args.dircount as usize,
        all: args.maxcount.min(request.max_io()) as usize,
        plus: true,
    };
    list(request, &target, args.cookie, args.cookieverf, limits, reply).await
}

/// The greatest length of an entry in bytes: with a name of 255 bytes, attributes and handle.
const ENTRY_ROOM: usize = 4 + 8 + 4 + 256 + 8 + 4 + FATTR_LENGTH + 4 + 4 + FHSIZE;

/// The room of a reply.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes of file numbers, names and cookies (`dircount`).
    names: usize,
    /// Bytes of the results (`count`, `maxcount`).
    all: usize,
    /// Whether entries carry attributes and handles.
    plus: bool,
}

async fn list(
    request: &Request<'_>,
    target: &Target<'_>,
    cookie: u64,
    verifier: CookieVerf,
    limits: Limits,
    reply: &mut Writer,
) -> NfsStat {
    let start = reply.mark();
    match try_list(request, target, cookie, verifier, limits, reply).await {
        Ok(()) => NfsStat::OK,
        Err(status) => {
            reply.rewind(start);
            answer(reply, &Outcome::<(), PostOpAttr>::Fail(status, target.post_op().await))
        }
    }
}

async fn try_list(
    request: &Request<'_>,
    target: &Target<'_>,
    cookie: u64,
    verifier: CookieVerf,
    limits: Limits,
    reply: &mut Writer,
) -> Result<(), NfsStat> {
    let backend = &target.export.backend;
    let start = reply.mark();
    reply.raw(&[0; AROUND - 8]);
    let mut page = Page { request, target, limits, names: 0, entries: 0, start, reply };
    let mut is_full = false;
    if cookie < DOT_DOT {
        is_full = page.push_dots(cookie).await?;
    }
    let read_dir = if cookie <= DOT_DOT {
        ReadDir { cookie: 0, verifier: [0; 8], plus: limits.plus }
    } else {
        ReadDir { cookie, verifier, plus: limits.plus }
    };
    let way = match is_full {
        true => ListingSource::Backend(None),
        false => {
            // Version 3 has no change attribute and no delegations.
            let form = page.form(read_dir);
            listings::listing_source(request, target.export, &target.context, &target.handle, form, None)
                .await
        }
    };
    let mut keeper = match way {
        // The cached bytes begin after the verifier.
        ListingSource::Cached(page, directory) => {
            let entries = page.slice(size_of::<CookieVerf>()..);
            put_head(target, &directory, &page[..size_of::<CookieVerf>()], (start, reply));
            payload::share(reply, entries);
            return Ok(());
        }
        ListingSource::Backend(keeper) => keeper,
    };
    let entries_at = page.reply.mark();
    let mut visit = |entry: Entry<'_>| {
        if let Some(keeper) = &mut keeper {
            keeper.saw(&entry);
        }
        if is_full || !page.push(&entry) {
            is_full = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let end = backend.readdir(&target.context, &target.handle, read_dir, &mut visit).await.map_err(status)?;
    // "NFS3ERR_TOOSMALL": not even one entry fits.
    if is_full && page.entries == 0 {
        return Err(NfsStat::TOOSMALL);
    }
    reply.bool(false);
    reply.bool(end.eof && !is_full);
    if let Some(keeper) = keeper {
        keeper.keep(&[&end.verifier, reply.inline_since(entries_at)]);
    }
    put_head(target, &end.directory, &end.verifier, (start, reply));
    Ok(())
}

/// Fills in the fields before the entries.
fn put_head(
    target: &Target<'_>,
    directory: &Attributes,
    verifier: &[u8],
    (start, reply): (xdr::Mark, &mut Writer),
) {
    let mut head = Writer::new();
    NfsStat::OK.encode(&mut head);
    Some(fattr(target.export, directory)).encode(&mut head);
    head.opaque_fixed(verifier);
    reply.patch(start, 0, head.inline());
}

/// Writes the entries of a reply.
struct Page<'p> {
    request: &'p Request<'p>,
    target: &'p Target<'p>,
    limits: Limits,
    names: usize,
    entries: usize,
    start: xdr::Mark,
    reply: &'p mut Writer,
}

impl Page<'_> {
    /// Returns the arguments that the listed entries depend on.
    fn form(&self, asked: ReadDir) -> Form {
        Form {
            kind: if self.limits.plus { Kind::Nfs3Plus } else { Kind::Nfs3 },
            cookie: asked.cookie,
            verifier: asked.verifier,
            mask: Bitmap::default(),
            plus: self.limits.plus,
            room: [self.limits.names, self.limits.all, self.names, self.reply.length_since(self.start)],
        }
    }

    /// Writes `.` and `..`, which backends do not list. Returns true if they do not fit.
    async fn push_dots(&mut self, cookie: u64) -> Result<bool, NfsStat> {
        let [own, parent] = dots(self.target).await.map_err(status)?;
        if cookie < DOT && !self.push(&dot(b".", DOT, own.0, own.1)) {
            return Ok(true);
        }
        Ok(!self.push(&dot(b"..", DOT_DOT, parent.0, parent.1)))
    }

    /// Writes an entry. Returns false if it does not fit.
    fn push(&mut self, entry: &Entry<'_>) -> bool {
        let names = 8 + 4 + entry.name.len() + padding(entry.name.len()) + 8;
        let object = match (self.limits.plus, &entry.object) {
            (false, _) => 0,
            (true, None) => 8,
            (true, Some(_)) => 4 + FATTR_LENGTH + 4 + 4 + FHSIZE,
        };
        let all = self.reply.length_since(self.start) + 4 + names + object + 8;
        // `dircount` is a hint: the first entry is written in any case. `maxcount` is a limit.
        if all > self.limits.all || (self.entries > 0 && self.names + names > self.limits.names) {
            return false;
        }
        self.names += names;
        self.entries += 1;
        self.reply.make_room(ENTRY_ROOM);
        let mut head = [0; 16];
        head[3] = 1;
        head[4..12].copy_from_slice(&entry.fileid.to_be_bytes());
        head[12..].copy_from_slice(&(entry.name.len() as u32).to_be_bytes());
        self.reply.raw(&head);
        self.reply.opaque_fixed(entry.name);
        self.reply.u64(entry.cookie);
        if self.limits.plus {
            self.put_object(entry.object.as_ref());
        }
        true
    }

    /// Writes attributes and handle (`post_op_attr`, `post_op_fh3`).
    fn put_object(&mut self, object: Option<&(Handle, Attributes)>) {
        let Some((handle, attributes)) = object else {
            return self.reply.raw(&[0; 8]);
        };
        let export = self.target.export;
        let mut bytes = [0; 4 + FATTR_LENGTH + 4];
        bytes[3] = 1;
        bytes[4..4 + FATTR_LENGTH].copy_from_slice(&fattr(export, attributes).to_wire());
        bytes[4 + FATTR_LENGTH + 3] = 1;
        self.reply.raw(&bytes);
        self.reply.opaque(&export.seal(&self.request.server.settings.handle_key, handle));
    }
}

fn dot(name: &'static [u8], cookie: u64, handle: Handle, attributes: Attributes) -> Entry<'static> {
    Entry { name, fileid: attributes.fileid, cookie, object: Some((handle, attributes)) }
}
