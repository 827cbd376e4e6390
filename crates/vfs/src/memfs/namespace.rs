use super::inode::{Inode, change};
use super::permission::{EXECUTE, WRITE, require, require_removal};
use super::space::ENTRY_BYTES;
use super::state::{ROOT, State};
use super::{LINKS_MAX, check_name};
use crate::{Attributes, Change, Context, Error, Linked, Removal, Renamed, Result, Timestamp};

impl State {
    pub(super) fn remove(
        &mut self,
        context: &Context,
        directory: u64,
        name: &[u8],
        removal: Removal,
    ) -> Result<Change> {
        let who = &context.credentials;
        let victim = self.search(who, directory, name)?.ok_or(Error::NotFound)?;
        let before = self.attributes(directory);
        let object = self.inode(victim);
        require_removal(who, self.inode(directory), object)?;
        match (removal, object.is_directory()) {
            (Removal::File, true) => return Err(Error::IsDirectory),
            (Removal::Directory, false) => return Err(Error::NotDirectory),
            _ => require_empty(object)?,
        }
        let inode = self.inode_mut(directory);
        inode.directory_mut()?.take(name);
        inode.content_changed(context.now);
        let owner = inode.uid;
        self.space.refund(owner, ENTRY_BYTES);
        self.lose_name(victim, directory, context.now);
        Ok(change(&before, self.attributes(directory)))
    }

    pub(super) fn link(
        &mut self,
        context: &Context,
        file: u64,
        directory: u64,
        name: &[u8],
    ) -> Result<Linked> {
        let who = &context.credentials;
        let taken = self.search(who, directory, name)?;
        let (before, inode) = (self.attributes(directory), self.inode(file));
        if taken.is_some() {
            return Err(Error::Exists);
        }
        if inode.is_directory() {
            return Err(Error::IsDirectory);
        }
        require(who, self.inode(directory), WRITE | EXECUTE)?;
        match inode.names {
            // As linkat(2) of a file without names.
            0 => return Err(Error::NotFound),
            LINKS_MAX => return Err(Error::TooManyLinks),
            _ => self.space.charge(before.uid, ENTRY_BYTES)?,
        }
        let parent = self.inode_mut(directory);
        parent.directory_mut()?.put(name, file);
        parent.content_changed(context.now);
        let inode = self.inode_mut(file);
        inode.names += 1;
        inode.attributes_changed(context.now);
        Ok(Linked {
            attributes: self.attributes(file),
            directory: change(&before, self.attributes(directory)),
        })
    }

    pub(super) fn rename(
        &mut self,
        context: &Context,
        (from, old): (u64, &[u8]),
        (to, new): (u64, &[u8]),
    ) -> Result<Renamed> {
        check_name(new)?;
        let who = &context.credentials;
        let source = self.search(who, from, old)?;
        let target = self.search(who, to, new)?;
        let source = source.ok_or(Error::NotFound)?;
        let before = (self.attributes(from), self.attributes(to));
        // POSIX.1-2024 rename(): if both are names of one file, it succeeds and does nothing.
        if target != Some(source) {
            self.check_rename(context, (from, source), (to, target))?;
            match target {
                None => self.space.give(before.0.uid, before.1.uid, ENTRY_BYTES)?,
                Some(_) => self.space.refund(before.0.uid, ENTRY_BYTES),
            }
            self.move_name(context.now, (from, old), (to, new), source)?;
        }
        Ok(self.renamed(&before, from, to))
    }

    fn check_rename(
        &self,
        context: &Context,
        (from, source): (u64, u64),
        (to, target): (u64, Option<u64>),
    ) -> Result<()> {
        let who = &context.credentials;
        let object = self.inode(source);
        if object.is_directory() && self.is_inside(to, source) {
            return Err(Error::Invalid);
        }
        require_removal(who, self.inode(from), object)?;
        // A directory that moves gets another `..`, which is a change of its own content.
        if object.is_directory() && from != to {
            require(who, object, WRITE)?;
        }
        let Some(target) = target.map(|target| self.inode(target)) else {
            require(who, self.inode(to), WRITE | EXECUTE)?;
            if object.is_directory() && from != to && self.inode(to).links() >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            return Ok(());
        };
        require_removal(who, self.inode(to), target)?;
        match (object.is_directory(), target.is_directory()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            _ => require_empty(target),
        }
    }

    fn move_name(
        &mut self,
        now: Timestamp,
        (from, old): (u64, &[u8]),
        (to, new): (u64, &[u8]),
        source: u64,
    ) -> Result<()> {
        let parent = self.inode_mut(from);
        parent.directory_mut()?.take(old);
        parent.content_changed(now);
        let parent = self.inode_mut(to);
        let replaced = parent.directory_mut()?.put(new, source);
        if from != to {
            parent.content_changed(now);
        }
        if let Some(replaced) = replaced {
            self.lose_name(replaced, to, now);
        }
        let object = self.inode_mut(source);
        object.attributes_changed(now);
        if let Ok(directory) = object.directory_mut() {
            directory.parent = to;
            self.inode_mut(from).directory_mut()?.subdirectories -= 1;
            self.inode_mut(to).directory_mut()?.subdirectories += 1;
        }
        Ok(())
    }

    fn renamed(&self, before: &(Attributes, Attributes), from: u64, to: u64) -> Renamed {
        Renamed { from: change(&before.0, self.attributes(from)), to: change(&before.1, self.attributes(to)) }
    }

    /// Notes that a name of `object` in `directory` was removed.
    fn lose_name(&mut self, object: u64, directory: u64, now: Timestamp) {
        let inode = self.inode_mut(object);
        inode.names -= 1;
        inode.attributes_changed(now);
        if inode.is_directory()
            && let Ok(parent) = self.inode_mut(directory).directory_mut()
        {
            parent.subdirectories -= 1;
        }
        self.release(object);
    }

    /// Returns whether `directory` is `top` or is below it.
    fn is_inside(&self, mut directory: u64, top: u64) -> bool {
        while directory != top {
            match self.inode(directory).directory() {
                Ok(entries) if directory != ROOT => directory = entries.parent,
                _ => return false,
            }
        }
        true
    }
}

fn require_empty(inode: &Inode) -> Result<()> {
    match inode.directory() {
        Ok(directory) if directory.len() > 0 => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}
