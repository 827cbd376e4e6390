use std::sync::Arc;

use vfs::{Access, Attributes, Context, FileKind, Handle, Op, Result};

use crate::attributes::Snapshot;
use crate::object::Object;
use crate::permission::{EXECUTE, READ, WRITE};
use crate::volume::Volume;

/// The permissions that each kind of access to a directory needs.
const ON_DIRECTORIES: &[(Access, u32)] = &[
    (Access::READ, READ),
    (Access::LOOKUP, EXECUTE),
    (Access::MODIFY, WRITE | EXECUTE),
    (Access::EXTEND, WRITE | EXECUTE),
    (Access::DELETE, WRITE | EXECUTE),
    (Access::XAREAD, READ),
    (Access::XALIST, READ),
    (Access::XAWRITE, WRITE),
];

/// The permissions that each kind of access to another object needs.
const ON_FILES: &[(Access, u32)] = &[
    (Access::READ, READ),
    (Access::MODIFY, WRITE),
    (Access::EXTEND, WRITE),
    (Access::EXECUTE, EXECUTE),
    (Access::XAREAD, READ),
    (Access::XALIST, READ),
    (Access::XAWRITE, WRITE),
];

impl Volume {
    // RFC 1813 §4.4: the owner's exception "should not affect the return result of access permissions as returned by the
    // ACCESS procedure".
    pub(crate) fn access<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)> {
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.access_now(&context, &file, want)
        };
        self.run_read(context.peer, || self.access_now(context, file, want), make_job)
    }

    fn access_now(&self, context: &Context, file: &Handle, want: Access) -> Result<(Access, Attributes)> {
        let object = self.object(file)?;
        let snapshot = self.stat(&object)?;
        let granted = self.permissions(context, &object, &snapshot)?;
        let table = if object.kind == FileKind::Directory { ON_DIRECTORIES } else { ON_FILES };
        let allowed = table
            .iter()
            .filter(|(_, needs)| granted & needs == *needs)
            .fold(Access::empty(), |all, (kind, _)| all | *kind);
        Ok((allowed & want, snapshot.attributes))
    }

    /// Returns all permissions of the caller, each checked alone.
    fn permissions(&self, context: &Context, object: &Object, snapshot: &Snapshot) -> Result<u32> {
        let mut granted = 0;
        for one in [READ, WRITE, EXECUTE] {
            let is_possible = one != WRITE || !self.properties.read_only;
            if is_possible && self.may(context, object, snapshot, one)? {
                granted |= one;
            }
        }
        Ok(granted)
    }
}
