//! READDIR (RFC 8881 §18.23).

mod acls;
mod mounted;

use std::ops::ControlFlow;

use protocol::nfs4::attributes::number;
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::types::{Bitmap, Status};
use vfs::{Attributes, Context, Entry, ReadDir, Verifier};
use xdr::{Decode, Mark, Reader, Writer, padding};

use self::mounted::Mounted;
use super::lookup::{enter, not_directory};
use crate::exports::pseudo::Node;
use crate::files::listings;
use crate::files::listings::ListingSource;
use crate::files::object::{File, Object};
use crate::listing_cache::{Form, Kind};
use crate::programs::nfs4::absent;
use crate::programs::nfs4::acl;
use crate::programs::nfs4::attributes::{
    NO_SPACE, Space, Subject, needs_object, needs_space, of_entry, readable,
};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::entry_attributes::EntryAttributes;
use crate::programs::nfs4::status::{Failure, Result};
use crate::{Settings, payload};

/// `READDIR4resok` around the entries: verifier, end of the list, `eof`.
const AROUND_ENTRIES: usize = 8 + 4 + 4;
/// Bytes of an entry with a long name and the usual attributes.
const ENTRY_ROOM: usize = 1024;
/// Cookies below are reserved (§18.23.3: "the cookie values of zero, 1, and 2 are to be considered reserved").
const FIRST_COOKIE: u64 = 3;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = ReadDirArgs::decode(arguments)?;
    let mask = readable(arguments.attributes, compound.minor)?;
    if (1..FIRST_COOKIE).contains(&arguments.cookie)
        || arguments.cookie == 0 && arguments.cookie_verifier != Verifier::default()
    {
        return Err(Status::BAD_COOKIE.into());
    }
    let room = compound.room(reply);
    let listing = Listing {
        settings: compound.server().settings(),
        minor: compound.minor,
        mask,
        dircount: if arguments.dircount == 0 { usize::MAX } else { arguments.dircount as usize },
        left: (arguments.maxcount as usize).min(room),
        listed: 0,
        // "If the server is unable to return a single directory entry within the maxcount limit, the error
        // NFS4ERR_TOOSMALL MUST be returned to the client" (§18.23.3); other limits have other statuses.
        too_small: if room < arguments.maxcount as usize { compound.no_room() } else { Status::TOOSMALL },
    };
    if listing.left < AROUND_ENTRIES {
        return Err(listing.too_small.into());
    }
    match compound.current()? {
        Object::Pseudo(node) => pseudo(compound, node, &arguments, listing, reply).await,
        Object::File(file) => directory(compound, file, &arguments, listing, reply).await,
    }
}

/// A listing that is being written.
struct Listing<'a> {
    settings: &'a Settings,
    minor: u32,
    mask: Bitmap,
    /// `dircount`: bytes of names and cookies that the client wants; a hint.
    dircount: usize,
    /// Remaining room in bytes.
    left: usize,
    /// Entries written.
    listed: usize,
    /// The status if not one entry fits.
    too_small: Status,
}

impl Listing<'_> {
    /// Writes the fields before the entries.
    fn begin(&mut self, reply: &mut Writer) -> Mark {
        self.left -= AROUND_ENTRIES;
        let verifier_at = reply.mark();
        reply.opaque_fixed(&Verifier::default());
        verifier_at
    }

    /// Writes an entry with the attributes that `attributes` writes; breaks if it does not fit.
    fn put(
        &mut self,
        name: &[u8],
        cookie: u64,
        reply: &mut Writer,
        attributes: impl FnOnce(&mut Writer),
    ) -> ControlFlow<()> {
        // "the total length of the names of the directory entries and the cookie value for these entries …
        // represents the XDR encoding of the data" (§18.23.3).
        let hinted = 8 + 4 + name.len() + padding(name.len());
        if self.listed > 0 && hinted > self.dircount {
            return ControlFlow::Break(());
        }
        reply.make_room(ENTRY_ROOM);
        let start = reply.mark();
        let mut head = [0; 16];
        head[3] = 1;
        head[4..12].copy_from_slice(&cookie.to_be_bytes());
        head[12..].copy_from_slice(&(name.len() as u32).to_be_bytes());
        reply.raw(&head);
        reply.opaque_fixed(name);
        attributes(reply);
        let length = reply.length_since(start);
        if length > self.left {
            reply.rewind(start);
            return ControlFlow::Break(());
        }
        self.left -= length;
        self.dircount = self.dircount.saturating_sub(hinted);
        self.listed += 1;
        ControlFlow::Continue(())
    }

    /// Writes the fields after the entries.
    ///
    /// # Errors
    /// The status of the limit, if there is an entry and not one fits.
    fn end(self, verifier_at: Mark, verifier: Verifier, eof: bool, reply: &mut Writer) -> Result {
        if self.listed == 0 && !eof {
            return Err(self.too_small.into());
        }
        reply.bool(false);
        reply.bool(eof);
        reply.patch(verifier_at, 0, &verifier);
        Ok(())
    }
}

/// Lists a directory of an export.
async fn directory(
    compound: &mut Compound<'_>,
    directory: File<'_>,
    arguments: &ReadDirArgs,
    mut listing: Listing<'_>,
    reply: &mut Writer,
) -> Result {
    let context = compound.context(directory.export);
    let backend = &directory.export.backend;
    // Fetched once: a directory and its entries are in one file system.
    let space = match needs_space(listing.mask) {
        true => compound.space_of(&directory, listing.mask).await?.0,
        false => NO_SPACE,
    };
    let request = ReadDir {
        cookie: arguments.cookie,
        verifier: arguments.cookie_verifier,
        plus: needs_object(listing.mask),
    };
    let inside = match compound.exports().junctions_in(directory.export.id, &directory.handle).next() {
        Some(_) => Box::pin(mounted::inside(compound, &directory, listing.mask)).await,
        None => Vec::new(),
    };
    let way = match inside.is_empty() {
        true => listing_source(compound, directory, &context, (arguments, &listing)).await,
        false => ListingSource::Backend(None),
    };
    let mut keeper = match way {
        ListingSource::Cached(page, attributes) => {
            compound.set_fresh(attributes);
            payload::share(reply, page);
            return Ok(());
        }
        ListingSource::Backend(keeper) => keeper,
    };
    let verifier_at = listing.begin(reply);
    let mut attributes =
        EntryAttributes::new(listing.settings, listing.minor, directory, space, listing.mask);
    let listed = if listing.mask.has(number::ACL) && backend.properties().acls {
        // Allocated separately: few clients request ACLs, and the future of other listings stays small.
        Box::pin(acls::list(compound, directory, request, &mut listing, (&attributes, &inside), reply))
            .await?
    } else {
        let (listing, reply, attributes) = (&mut listing, &mut *reply, &mut attributes);
        let (compound, keeper) = (&*compound, &mut keeper);
        let mut visit = |mut entry: Entry<'_>| {
            let mask = listing.mask;
            if let Some(mounted) = Mounted::of(&inside, &entry) {
                let subject = mounted.subject(compound);
                return listing.put(entry.name, entry.cookie, reply, |reply| subject.write(mask, reply));
            }
            if let Some(keeper) = keeper.as_mut() {
                keeper.saw(&entry);
                compound.holders_of_older_change(directory, mask, &entry, |client| keeper.except(client));
            }
            let is_hidden = compound.hide_changes_of_entry(directory, mask, &mut entry);
            if let Some(keeper) = keeper.as_mut().filter(|_| is_hidden) {
                keeper.spoil();
            }
            // An entry whose object was removed meanwhile gets rdattr_error, or is left out as if the listing had come later.
            if entry.object.is_none() && needs_object(mask) && !mask.has(number::RDATTR_ERROR) {
                return ControlFlow::Continue(());
            }
            listing.put(entry.name, entry.cookie, reply, |reply| attributes.write(&entry, reply))
        };
        backend.readdir(&context, &directory.handle, request, &mut visit).await
    };
    match listed {
        Ok(end) => {
            compound.set_fresh(end.directory);
            listing.end(verifier_at, end.verifier, end.eof, reply)?;
            if let Some(keeper) = keeper {
                keeper.keep(&[reply.inline_since(verifier_at)]);
            }
            Ok(())
        }
        Err(vfs::Error::NotDirectory) => match not_directory(compound, &directory).await {
            // READDIR's errors do not include SYMLINK (§15.2).
            Failure::Status(Status::SYMLINK) => Err(Status::NOTDIR.into()),
            failure => Err(failure),
        },
        // "If the server determines that the cookieverf is no longer valid for the directory, the error
        // NFS4ERR_NOT_SAME must be returned" (§18.23.3).
        Err(vfs::Error::BadCookie) if is_outdated(compound, directory, arguments).await => {
            Err(Status::NOT_SAME.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the source of a listing. Space and ACLs are not cached: they differ among callers.
async fn listing_source<'r>(
    compound: &Compound<'r>,
    directory: File<'_>,
    context: &Context,
    (arguments, listing): (&ReadDirArgs, &Listing<'_>),
) -> ListingSource<'r> {
    let mask = listing.mask;
    if needs_space(mask) || mask.has(number::ACL) {
        return ListingSource::Backend(None);
    }
    let form = Form {
        kind: Kind::Nfs4(compound.minor),
        cookie: arguments.cookie,
        verifier: arguments.cookie_verifier,
        mask,
        plus: needs_object(mask),
        room: [listing.dircount, listing.left, 0, 0],
    };
    let holder = compound.holder(mask);
    listings::listing_source(compound.request, directory.export, context, &directory.handle, form, holder)
        .await
}

/// Returns whether the verifier that the client sent is outdated.
async fn is_outdated(compound: &Compound<'_>, directory: File<'_>, arguments: &ReadDirArgs) -> bool {
    let verifier = verifier(compound, &directory).await;
    verifier.is_ok_and(|verifier| verifier != arguments.cookie_verifier)
}

/// Returns the verifier of a listing from the start.
pub(super) async fn verifier(
    compound: &Compound<'_>,
    directory: &File<'_>,
) -> std::result::Result<Verifier, vfs::Error> {
    let context = compound.context(directory.export);
    let start = ReadDir { cookie: 0, verifier: Verifier::default(), plus: false };
    let mut stop = |_: Entry<'_>| ControlFlow::Break(());
    let listed = directory.export.backend.readdir(&context, &directory.handle, start, &mut stop).await;
    Ok(listed?.verifier)
}

/// Lists a directory of the pseudo file system. A cookie is the position of a node among those that the client sees, from 3 on. The
/// verifier is the change attribute, which changes with them.
async fn pseudo(
    compound: &mut Compound<'_>,
    node: &Node,
    arguments: &ReadDirArgs,
    mut listing: Listing<'_>,
    reply: &mut Writer,
) -> Result {
    let exports = compound.exports();
    let verifier = compound.pseudo_attributes(node).change.to_be_bytes();
    if arguments.cookie != 0 && arguments.cookie_verifier != verifier {
        return Err(Status::NOT_SAME.into());
    }
    let peer = compound.request.connection.peer.ip();
    let verifier_at = listing.begin(reply);
    let mut eof = true;
    let visible = exports.pseudo().children(node).filter(|child| child.is_visible(exports, peer));
    for (child, cookie) in visible.zip(FIRST_COOKIE..) {
        if cookie <= arguments.cookie {
            continue;
        }
        let object = seen_in_listing(compound, child, listing.mask)?;
        let absent = absent::of_object(&object).filter(|_| compound.check_flavor(&object).is_ok());
        let room = match absent {
            Some(file) => {
                let (mask, error) = absent::of_entry(&file, arguments.attributes)?;
                let write = |reply: &mut Writer| compound.write_absent(file, mask, error, reply);
                listing.put(&child.name, cookie, reply, write)
            }
            None => put_present(compound, child, cookie, object, &mut listing, reply).await?,
        };
        if room.is_break() {
            eof = false;
            break;
        }
    }
    listing.end(verifier_at, verifier, eof, reply)
}

/// Lists an entry of the pseudo file system.
async fn put_present(
    compound: &mut Compound<'_>,
    child: &Node,
    cookie: u64,
    object: Object<'_>,
    listing: &mut Listing<'_>,
    reply: &mut Writer,
) -> Result<ControlFlow<()>> {
    let mask = listing.mask;
    let (space, attributes) = match read_attributes(compound, &object, mask).await {
        Ok(seen) => seen,
        // RFC 8881 §18.23.3: with rdattr_error, the failure of one entry does not fail the listing.
        Err(Failure::Status(status)) if mask.has(number::RDATTR_ERROR) => {
            let attributes = compound.pseudo_attributes(child);
            let subject = Subject { error: status, ..compound.subject(object, &attributes) };
            let mask = of_entry(mask);
            return Ok(listing.put(&child.name, cookie, reply, |reply| subject.write(mask, reply)));
        }
        Err(failure) => return Err(failure),
    };
    let acl = acl::get(compound, &object, mask, &attributes).await?;
    let acl = acl.as_ref();
    let subject = Subject { space, acl, ..compound.subject(object, &attributes) };
    Ok(listing.put(&child.name, cookie, reply, |reply| subject.write(mask, reply)))
}

/// Returns the object whose attributes a listing returns for a node. If the call may not enter the export that is mounted there, the
/// client gets `rdattr_error`; if it does not ask for that, or for attributes of the export, it gets those of the directory below
/// the mount.
fn seen_in_listing<'r>(compound: &Compound<'r>, node: &'r Node, mask: Bitmap) -> Result<Object<'r>> {
    let object = enter(compound, node)?;
    let can_be_told = mask.has(number::RDATTR_ERROR) && needs_object(mask);
    let is_hidden = !can_be_told && compound.check_flavor(&object).is_err();
    Ok(if is_hidden { Object::Pseudo(node) } else { object })
}

/// Fetches the attributes of an entry of the pseudo file system.
async fn read_attributes(
    compound: &Compound<'_>,
    object: &Object<'_>,
    mask: Bitmap,
) -> Result<(Space, Attributes)> {
    if let Object::File(_) = object {
        compound.check_flavor(object)?;
    }
    match object {
        Object::File(file) if needs_space(mask) => compound.space_of(file, mask).await,
        _ => Ok((NO_SPACE, compound.attributes_of(object).await?)),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::{Attributes, number as n};
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::readdir::{ReadDirArgs, ReadDirOk};
    use protocol::nfs4::types::{Bitmap, Status};

    use crate::testing::{Lab, at, create, export, export_for, lab, lab_of};

    pub(super) const ALL: ReadDirArgs = ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: 0,
        maxcount: 65_536,
        attributes: Bitmap::of(&[n::FILEID]),
    };

    pub(super) fn list(lab: &mut Lab, path: &[&'static str], args: ReadDirArgs) -> ReadDirOk {
        match lab.last(at(path, vec![Op::ReadDir(args)])) {
            OpResult::ReadDir(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn names(listing: &ReadDirOk) -> Vec<String> {
        listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
    }

    pub(super) fn filled(count: usize) -> Lab {
        let mut lab = lab();
        for index in 0..count {
            let text: &'static str = Box::leak(format!("entry-{index:03}").into_boxed_str());
            lab.ok(at(&["export"], vec![create(text, b"owner")]));
        }
        lab
    }

    #[test]
    fn lists_everything_once_in_as_many_pieces_as_needed() {
        let mut lab = filled(50);
        assert!(pieces_of(&mut lab, 50, ReadDirArgs { maxcount: 300, ..ALL }) > 5);
    }

    /// Lists the directory of [`filled`], each entry once; returns the number of replies.
    pub(super) fn pieces_of(lab: &mut Lab, count: usize, mut args: ReadDirArgs) -> usize {
        let (mut seen, mut pieces) = (Vec::new(), 0);
        loop {
            let listing = list(lab, &["export"], args);
            assert!(xdr::to_bytes(&listing).len() <= args.maxcount as usize);
            seen.extend(names(&listing));
            pieces += 1;
            if listing.eof {
                break;
            }
            args.cookie = listing.entries.last().unwrap().cookie;
            args.cookie_verifier = listing.cookie_verifier;
            assert!(args.cookie > 2);
        }
        seen.sort();
        assert_eq!(seen, (0..count).map(|index| format!("entry-{index:03}")).collect::<Vec<_>>());
        pieces
    }

    #[test]
    fn honors_maxcount_to_the_byte() {
        let mut lab = filled(20);
        for maxcount in [100, 200, 333] {
            let result = lab.last(at(&["export"], vec![Op::ReadDir(ReadDirArgs { maxcount, ..ALL })]));
            // Without operation number and status.
            let length = xdr::to_bytes(&result).len() - 8;
            let entry = 4 + 8 + 4 + 12 + 8 + 4 + 8;
            assert!(length <= maxcount as usize && length + entry > maxcount as usize, "{length}");
        }
    }

    #[test]
    fn honors_dircount_but_lists_one_at_least() {
        let mut lab = filled(5);
        // A cookie and a name of nine bytes take 24.
        let dircount = |dircount| ReadDirArgs { dircount, ..ALL };
        assert_eq!(list(&mut lab, &["export"], dircount(48)).entries.len(), 2);
        assert_eq!(list(&mut lab, &["export"], dircount(1)).entries.len(), 1);
        assert_eq!(list(&mut lab, &["export"], dircount(0)).entries.len(), 5);
    }

    #[test]
    fn too_small_only_if_there_is_an_entry() {
        let mut lab = filled(1);
        let small = |maxcount| Op::ReadDir(ReadDirArgs { maxcount, ..ALL });
        assert_eq!(lab.status_at(&["export"], small(40)), Status::TOOSMALL);
        assert_eq!(lab.status_at(&["export"], small(0)), Status::TOOSMALL);
        let mut empty = crate::testing::lab();
        assert_eq!(empty.status_at(&["export"], small(16)), Status::OK);
    }

    #[test]
    fn a_reply_without_room_is_not_toosmall() {
        let mut lab = filled(1);
        let mut fore = crate::testing::channel();
        fore.max_response_size = 256;
        lab.connect_with(b"small", fore);
        let result = lab.run(at(&["export"], vec![Op::GetFh, Op::GetFh, Op::ReadDir(ALL)]));
        assert_eq!((result.status, result.results.len()), (Status::REP_TOO_BIG, 6));
    }

    #[test]
    fn gives_attributes_and_handles_that_work() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"hello");
        let mask = [n::RDATTR_ERROR, n::FILEHANDLE, n::SIZE, n::FILEID, n::SPACE_TOTAL];
        let listing = list(&mut lab, &["export"], ReadDirArgs { attributes: Bitmap::of(&mask), ..ALL });
        let entry = Attributes::from_file_attributes(&listing.entries[0].attributes).unwrap();
        assert_eq!(entry.filehandle, Some(file));
        assert_eq!((entry.size, entry.rdattr_error), (Some(5), Some(Status::OK)));
        let seen = lab.attributes(&["export", "file"], &[n::FILEID, n::SPACE_TOTAL]);
        assert_eq!((entry.fileid, entry.space_total), (seen.fileid, seen.space_total));
    }

    #[test]
    fn lists_the_exports_that_the_client_may_use() {
        let exports = vec![export(1, "/b"), export_for(2, "/hidden", "192.0.2.0/24"), export(3, "/a/x")];
        let mut lab = lab_of(exports);
        let mask = [n::FILEID, n::FSID, n::MOUNTED_ON_FILEID, n::FILEHANDLE];
        let args = ReadDirArgs { attributes: Bitmap::of(&mask), ..ALL };
        let listing = list(&mut lab, &[], args);
        assert_eq!(names(&listing), ["b", "a"]);
        for (entry, path) in listing.entries.iter().zip(["b", "a"]) {
            let listed = Attributes::from_file_attributes(&entry.attributes).unwrap();
            assert_eq!(listed, lab.attributes(&[path], &mask), "as LOOKUP and GETATTR see it");
        }
        let rest = ReadDirArgs {
            cookie: listing.entries[0].cookie,
            cookie_verifier: listing.cookie_verifier,
            ..args
        };
        assert_eq!(names(&list(&mut lab, &[], rest)), ["a"]);
        let outdated = Op::ReadDir(ReadDirArgs { cookie_verifier: [7; 8], ..rest });
        assert_eq!(lab.status_at(&[], outdated), Status::NOT_SAME);
    }

    #[test]
    fn refuses_reserved_cookies_and_files() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        for cookie in [1, 2] {
            let op = Op::ReadDir(ReadDirArgs { cookie, ..ALL });
            assert_eq!(lab.status_at(&["export"], op), Status::BAD_COOKIE);
        }
        assert_eq!(lab.status_at(&["export", "file"], Op::ReadDir(ALL)), Status::NOTDIR);
        let set_only = ReadDirArgs { attributes: Bitmap::of(&[n::TIME_ACCESS_SET]), ..ALL };
        assert_eq!(lab.status_at(&["export"], Op::ReadDir(set_only)), Status::INVAL);
    }
}
