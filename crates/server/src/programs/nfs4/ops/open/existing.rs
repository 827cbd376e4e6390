//! The file to open, and the lookup of an existing one.

use protocol::nfs4::types::{Bitmap, ChangeInfo, Status};
use vfs::{Attributes, Authority, Context, FileKind, Found, Later, OpenAccess};

use super::super::lookup::{child, not_directory};
use crate::files::names;
use crate::files::object::{File, Object, not_regular};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

/// A result that needs no wait, or the backend call that has started.
pub(super) type AtOnce<T, A> = std::result::Result<T, Option<A>>;

/// A regular file to open.
#[derive(Debug)]
pub(crate) struct Target<'r> {
    pub(super) file: File<'r>,
    /// The authority to open: the creator may open a new file regardless of its mode.
    pub(super) authority: Authority,
    /// Whether this OPEN created it.
    pub(super) is_new: bool,
    /// Its attributes when this OPEN last read, created or opened it.
    pub(super) seen: Option<Attributes>,
    /// The change of the directory; both values are equal if nothing was created.
    pub(super) change: ChangeInfo,
    pub(super) attributes_set: Bitmap,
    /// The size to set once the open is granted.
    pub(super) size: Option<u64>,
}

impl<'r> Target<'r> {
    fn found(file: File<'r>, seen: Option<Attributes>, change: ChangeInfo) -> Self {
        let (authority, attributes_set) = (Authority::Caller, Bitmap::EMPTY);
        Self { file, authority, is_new: false, seen, change, attributes_set, size: None }
    }
}

/// CLAIM_FH and CLAIM_PREVIOUS: the current object itself.
pub(super) async fn by_handle<'r>(
    compound: &mut Compound<'r>,
    access: OpenAccess,
) -> Result<Box<Target<'r>>> {
    let file = compound.file(Status::ISDIR)?;
    check_writable(&file, access)?;
    let attributes = compound.attributes().await?;
    check_regular(&attributes)?;
    Ok(Box::new(Target::found(file, None, ChangeInfo::default())))
}

/// CLAIM_NULL without creation.
pub(super) async fn by_name<'r>(
    compound: &mut Compound<'r>,
    name: &[u8],
    access: OpenAccess,
    lookup: Option<Later<'_, Found>>,
) -> Result<Box<Target<'r>>> {
    names::check(name)?;
    let directory = match compound.current()? {
        Object::File(directory) => directory,
        Object::Pseudo(node) => {
            let status = child(compound, node, name).map_or(Status::NOENT, |_| Status::ISDIR);
            return Err(status.into());
        }
    };
    let found = match lookup {
        Some(lookup) => lookup.await,
        None => {
            let context = compound.context(directory.export);
            directory.export.backend.lookup(&context, &directory.handle, name).await
        }
    };
    match found {
        Ok(found) => Ok(Box::new(named(&directory, &found, access)?)),
        Err(vfs::Error::NotDirectory) => Err(not_directory(compound, &directory).await),
        Err(error) => Err(error.into()),
    }
}

/// As [`by_name`], if the backend answers without a wait; otherwise the lookup that has started.
pub(super) fn by_name_at_once<'r>(
    (directory, context): (&File<'r>, &Context),
    name: &[u8],
    access: OpenAccess,
) -> Result<AtOnce<Target<'r>, Later<'r, Found>>> {
    names::check(name)?;
    match directory.export.backend.lookup(context, &directory.handle, name).at_once() {
        Ok(Ok(found)) => Ok(Ok(named(directory, &found, access)?)),
        // `run` finds out which kind the object is.
        Ok(Err(vfs::Error::NotDirectory)) => Ok(Err(None)),
        Ok(Err(error)) => Err(error.into()),
        Err(lookup) => Ok(Err(Some(lookup))),
    }
}

/// Converts a lookup result.
fn named<'r>(directory: &File<'r>, found: &Found, access: OpenAccess) -> Result<Target<'r>> {
    check_regular(&found.attributes)?;
    let file = directory.with(found.handle);
    check_writable(&file, access)?;
    let change = found.directory.change;
    let change = ChangeInfo { atomic: true, before: change, after: change };
    Ok(Target::found(file, Some(found.attributes), change))
}

fn check_writable(file: &File<'_>, access: OpenAccess) -> std::result::Result<(), Status> {
    if access.write && file.export.options.read_only { Err(Status::ROFS) } else { Ok(()) }
}

/// RFC 8881 §18.16.3: SYMLINK, ISDIR, or for what "is neither of those but not an ordinary file", WRONG_TYPE.
pub(super) fn check_regular(attributes: &Attributes) -> std::result::Result<(), Status> {
    match attributes.kind {
        FileKind::Regular => Ok(()),
        kind => Err(not_regular(kind)),
    }
}
