//! Entries of a listing that are mount points: listed with the attributes of the mounted root.
//!
//! RFC 8881 §5.8.2.23: at a mount point, `fileid` and `fsid` are those of the mounted root, and `mounted_on_fileid` is that of the
//! covered directory.

use protocol::nfs4::attributes::acl::Acl;
use protocol::nfs4::types::Bitmap;
use vfs::{Attributes, Entry};

use crate::files::object::{File, Object};
use crate::programs::nfs4::acl;
use crate::programs::nfs4::attributes::{NO_SPACE, Space, Subject, needs_space};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

/// A mount point in the directory that is listed.
pub(super) struct Mounted<'r> {
    name: &'r [u8],
    top: File<'r>,
    attributes: Attributes,
    space: Space,
    acl: Option<Acl>,
}

/// Fetches the roots that are mounted in a directory; omits those that fail.
pub(super) async fn inside<'r>(
    compound: &Compound<'r>,
    directory: &File<'_>,
    mask: Bitmap,
) -> Vec<Mounted<'r>> {
    let mut all = Vec::new();
    for junction in compound.exports().junctions_in(directory.export.id, &directory.handle) {
        let inner = junction.inner.first().and_then(|inner| compound.export(inner.id));
        if let Some(inner) = inner {
            all.extend(read_attributes(compound, &junction.name, File::root(inner), mask).await);
        }
    }
    all
}

async fn read_attributes<'r>(
    compound: &Compound<'r>,
    name: &'r [u8],
    top: File<'r>,
    mask: Bitmap,
) -> Result<Mounted<'r>> {
    let context = compound.context(top.export);
    let (space, attributes) = match needs_space(mask) {
        true => compound.space_of(&top, mask).await?,
        false => (NO_SPACE, top.export.backend.getattr(&context, &top.handle).await?),
    };
    let acl = acl::get(compound, &Object::File(top), mask, &attributes).await?;
    Ok(Mounted { name, top, attributes, space, acl })
}

impl<'r> Mounted<'r> {
    /// Returns the mount point of an entry.
    pub(super) fn of<'s>(all: &'s [Self], entry: &Entry<'_>) -> Option<&'s Self> {
        // If the backend returns an object, it is no longer a mount point.
        all.iter().find(|mounted| entry.object.is_none() && mounted.name == entry.name)
    }

    /// Returns the values from which its attributes are encoded.
    pub(super) fn subject<'s>(&'s self, compound: &'s Compound<'r>) -> Subject<'s> {
        let (space, acl) = (self.space, self.acl.as_ref());
        Subject { space, acl, ..compound.subject(Object::File(self.top), &self.attributes) }
    }
}
