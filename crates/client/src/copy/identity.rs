//! Guards against copying objects onto or into themselves.

use super::{Copier, CopyError, Failed};
use crate::attributes::Attributes;
use crate::tree::{Tree, TreePath};

/// Maximum number of reads of the attributes of a directory that changes.
const READS_MAX: usize = 16;

impl<S: Tree, D: Tree> Copier<'_, S, D> {
    /// Returns whether an object of the source and one of the target are the same object.
    ///
    /// The same server may have several names, or be this machine. In these cases the time of the last change
    /// distinguishes objects of equal numbers, because no copy can set it.
    pub(super) fn is_one_object(&self, one: &Attributes, other: &Attributes) -> bool {
        if (one.kind, one.fileid) != (other.kind, other.fileid) {
            return false;
        }
        let (from, to) = (self.from.server(), self.to.server());
        if from == to && (from.is_none() || one.fsid == other.fsid) {
            return one.fsid == other.fsid;
        }
        // Versions of the protocol have different numbers of one file system.
        (one.ctime, one.mtime, one.size) == (other.ctime, other.mtime, other.size)
    }

    /// Returns whether a directory of the source is the target of the whole copy.
    pub(super) async fn is_target(
        &self,
        source: &TreePath,
        attributes: &Attributes,
    ) -> Result<bool, Failed<S, D>> {
        let Some((target, known)) = self.target.get() else { return Ok(false) };
        let number = |of: &Attributes| (of.fsid, of.fileid);
        if attributes.fileid != known.fileid {
            return Ok(false);
        }
        if self.from.server() == self.to.server() && number(attributes) == number(known) {
            return Ok(true);
        }
        // It changes while it is filled. Attributes of both sides are only compared if it has not changed in between.
        for _ in 0..READS_MAX {
            let before = self.to.attributes(target).await.map_err(CopyError::Target)?;
            let one = self.from.attributes(source).await.map_err(CopyError::Source)?;
            let after = self.to.attributes(target).await.map_err(CopyError::Target)?;
            if let (Some(one), Some(other), true) = (one, after, before == after) {
                return Ok(self.is_one_object(&one, &other));
            }
        }
        Ok(number(attributes) == number(known))
    }
}
