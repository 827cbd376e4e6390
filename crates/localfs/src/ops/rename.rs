use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfs::{Attributes, Change, Context, Error, FileKind, Handle, Op, Renamed, Result};

use crate::blocking::OpKind;
use crate::durable::{ObjectChange, SyncCaller};
use crate::errno::translate;
use crate::name::Name;
use crate::nonblocking;
use crate::object::{Object, with_both};
use crate::permission::{EXECUTE, WRITE};
use crate::volume::{Handles, Volume};

impl Volume {
    pub(crate) fn rename<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) -> Op<'a, Renamed> {
        let make_job = || {
            let (context, from, to) = (context.clone(), (*from.0, from.1.to_vec()), (*to.0, to.1.to_vec()));
            move |volume: &Arc<Self>| volume.rename_now(&context, (&from.0, &from.1), (&to.0, &to.1))
        };
        let in_place = || self.rename_now(context, from, to);
        let caller = SyncCaller::of(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |(changes, renamed)| {
            self.answer_when_durable(caller, changes, renamed)
        })
    }

    fn rename_now(
        &self,
        context: &Context,
        (from, old): (&Handle, &[u8]),
        (to, new): (&Handle, &[u8]),
    ) -> Result<(Vec<ObjectChange>, Renamed)> {
        let (from, to) = (self.object(from)?, self.object(to)?);
        from.require_directory()?;
        to.require_directory()?;
        let (old, new) = (Name::new(old)?, Name::new(new)?);
        self.require_cached_directory(&from)?;
        self.require_cached_directory(&to)?;
        let is_same = from.handle == to.handle;
        if !is_same && !self.is_in_memory {
            // The kernel renames between directories one at a time, on a whole file system.
            nonblocking::require_blocking()?;
        }
        let _locks = self.lock_both(&from, &to)?;
        let from_before = self.stat(&from)?.attributes;
        let to_before = if is_same { from_before } else { self.stat(&to)?.attributes };
        self.enter(context, &to, EXECUTE)?;
        self.enter(context, &from, EXECUTE)?;
        self.require_movable((&from, &old), (&to, &new))?;
        let replaced = self.replaced_by_rename((&from, &old), (&to, &new))?;
        if let Some(replaced) = &replaced
            && self.find(&from, &old).is_ok_and(|moved| moved.handle == replaced.handle)
        {
            // POSIX.1-2024 rename(): two names of one file: "rename() shall return successfully and perform no other action".
            let unchanged =
                |before| Change { before: Attributes::before(&before), after: before, atomic: true };
            let renamed = Renamed { from: unchanged(from_before), to: unchanged(to_before) };
            return Ok((Vec::new(), renamed));
        }
        if self.is_foreign(context) {
            self.check_rename(context, (&from, &old), &to, replaced.as_deref())?;
        }
        let pending = (from.sync_state.begin_change(), (!is_same).then(|| to.sync_state.begin_change()));
        nonblocking::allow_blocking();
        with_both(&from, &to, |from, to| rustix::fs::renameat(from, old.as_c_str(), to, new.as_c_str()))
            .map_err(translate)?;
        self.moves.fetch_add(1, Ordering::AcqRel);
        let mut numbers = vec![(Arc::clone(&from), pending.0.finish())];
        numbers.extend(pending.1.map(|pending| (Arc::clone(&to), pending.finish())));
        self.remember_move(context, &to, &new);
        let changed = self.change_after_entries(&from, &from_before)?;
        let to_changed = if is_same { changed } else { self.change_after_entries(&to, &to_before)? };
        let renamed = Renamed { from: changed, to: to_changed };
        if let Some(replaced) = replaced {
            self.name_removed(replaced);
        }
        Ok((numbers, renamed))
    }

    /// Returns the object that a rename replaces, if any. Fails if looking up the old name may block.
    fn replaced_by_rename(
        &self,
        (from, old): (&Object, &Name),
        (to, new): (&Object, &Name),
    ) -> Result<Option<Arc<Object>>> {
        let replaced = match self.find(to, new) {
            Ok(object) => Some(object),
            Err(Error::NotFound | Error::Access) => None,
            Err(error) => return Err(error),
        };
        // The kernel reports any other error.
        match self.require_cached(from, old) {
            Err(error) if nonblocking::would_block() => Err(error),
            _ => Ok(replaced),
        }
    }

    /// Checks a rename for a caller that the kernel does not check.
    fn check_rename(
        &self,
        context: &Context,
        (from, old): (&Object, &Name),
        to: &Object,
        replaced: Option<&Object>,
    ) -> Result<()> {
        let moved = self.find(from, old)?;
        let snapshot = self.stat(&moved)?;
        self.require_removal(context, from, &snapshot.attributes)?;
        // A directory that moves gets another `..`, which is a change of its own content.
        if moved.kind == FileKind::Directory && from.handle != to.handle {
            self.require(context, &moved, &snapshot, WRITE)?;
        }
        match replaced {
            Some(replaced) => {
                let attributes = self.stat(replaced)?.attributes;
                self.require_removal(context, to, &attributes)
            }
            None => {
                let snapshot = self.stat(to)?;
                self.require(context, to, &snapshot, WRITE | EXECUTE)
            }
        }
    }

    /// Updates the place in the index, and the change attribute with coarse clocks.
    fn remember_move(&self, context: &Context, directory: &Object, name: &Name) {
        if !matches!(self.handles, Handles::Indexed { .. }) && !self.changes.is_coarse() {
            return;
        }
        match self.enter(context, directory, EXECUTE).and_then(|()| self.find(directory, name)) {
            Ok(moved) => self.was_renamed(&moved),
            Err(error) => tracing::warn!(error = error.to_string(), "cannot look up a renamed file"),
        }
    }
}
