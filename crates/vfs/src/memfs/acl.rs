use super::inode::{Body, acl_bytes, change};
use super::permission::require_owner;
use super::state::State;
use crate::{Acl, AclKind, Change, Context, Error, Result};

/// Maximum number of entries of one ACL: as many as fit a block of 4 KiB in ext4, so that memory allows no more than a disk.
const ENTRIES_MAX: usize = 500;

impl State {
    pub(super) fn get_acl(&self, file: u64, kind: AclKind) -> Option<Acl> {
        let inode = self.inode(file);
        match kind {
            AclKind::Access => inode.acl.clone(),
            AclKind::Default => inode.default_acl.clone(),
        }
    }

    pub(super) fn set_acl(
        &mut self,
        context: &Context,
        file: u64,
        kind: AclKind,
        acl: Option<&Acl>,
    ) -> Result<Change> {
        let before = self.attributes(file);
        let inode = self.table.get_mut(file).expect("the file was resolved");
        require_owner(&context.credentials, inode)?;
        let has_none = matches!(inode.body, Body::Symlink(_));
        if has_none || (kind == AclKind::Default && !inode.is_directory() && acl.is_some()) {
            return Err(Error::Invalid);
        }
        if acl.is_some_and(|acl| acl.entries().len() > ENTRIES_MAX) {
            return Err(Error::NoSpace);
        }
        let kept = match kind {
            AclKind::Access => acl.filter(|acl| acl.is_extended()),
            AclKind::Default => acl,
        };
        let place = if kind == AclKind::Access { &mut inode.acl } else { &mut inode.default_acl };
        let (new, old) = (acl_bytes(kept), acl_bytes(place.as_ref()));
        self.space.charge(inode.uid, new.saturating_sub(old))?;
        self.space.refund(inode.uid, old.saturating_sub(new));
        *place = kept.cloned();
        if let (AclKind::Access, Some(acl)) = (kind, acl) {
            // As when a mode is set: only members may set set-group-ID.
            let is_member = context.credentials.is_root() || context.credentials.is_in_group(inode.gid);
            let special = inode.mode & if is_member { 0o7000 } else { 0o5000 };
            inode.mode = special | acl.mode();
        }
        inode.attributes_changed(context.now);
        Ok(change(&before, self.attributes(file)))
    }
}
