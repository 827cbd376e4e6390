use bytes::Bytes;

use super::directory::Directory;
use super::inode::{Body, Inode, SETGID, change};
use super::pages::Pages;
use super::permission::{EXECUTE, WRITE, require};
use super::setattr::{check_new_times, set_times};
use super::space::ENTRY_BYTES;
use super::state::State;
use super::{LINKS_MAX, SYMLINK_MAX};
use crate::{Authority, Context, Create, CreateMode, Created, Credentials, Error, Result, SetAttributes};

impl State {
    pub(super) fn create(
        &mut self,
        context: &Context,
        directory: u64,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Created> {
        let who = &context.credentials;
        if let Some(existing) = self.search(who, directory, name)? {
            return self.create_again(context, directory, existing, what, set);
        }
        let before = self.attributes(directory);
        require(who, self.inode(directory), WRITE | EXECUTE)?;
        let inode = self.new_inode(context, directory, what, set)?;
        let is_directory = inode.is_directory();
        if is_directory && self.inode(directory).links() >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let fileid = self.insert(inode, before.uid)?;
        let parent = self.inode_mut(directory);
        parent.content_changed(context.now);
        let entries = parent.directory_mut()?;
        entries.put(name, fileid);
        entries.subdirectories += u32::from(is_directory);
        Ok(Created {
            handle: self.table.handle(fileid),
            attributes: self.attributes(fileid),
            directory: change(&before, self.attributes(directory)),
            is_new: true,
            verifier_in_times: false,
        })
    }

    /// Answers a create of a name that exists.
    fn create_again(
        &mut self,
        context: &Context,
        directory: u64,
        existing: u64,
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Created> {
        let inode = self.inode(existing);
        match what {
            Create::File(CreateMode::Unchecked) => match inode.body {
                Body::File(_) => {}
                Body::Directory(_) => return Err(Error::IsDirectory),
                Body::Symlink(_) => return Err(Error::IsSymlink),
                _ => return Err(Error::WrongKind),
            },
            Create::File(CreateMode::Exclusive(verifier)) if inode.verifier == Some(*verifier) => {}
            _ => return Err(Error::Exists),
        }
        let truncates = matches!(what, Create::File(CreateMode::Unchecked)) && set.size.is_some();
        if truncates {
            let size = SetAttributes { size: set.size, ..SetAttributes::default() };
            self.setattr(context, existing, &size, None, Authority::Caller)?;
        }
        let around = self.attributes(directory);
        Ok(Created {
            handle: self.table.handle(existing),
            attributes: self.attributes(existing),
            directory: change(&around, around),
            is_new: false,
            verifier_in_times: false,
        })
    }

    fn new_inode(
        &self,
        context: &Context,
        directory: u64,
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Inode> {
        let who = &*context.credentials;
        let parent = self.inode(directory);
        check_new_times(set)?;
        let body = self.new_body(who, directory, what, set.size)?;
        let owner = new_owner(who, parent, set)?;
        let mut mode = match what {
            Create::Symlink(_) => 0o777,
            Create::File(CreateMode::Exclusive(_)) => set.mode.unwrap_or(0),
            Create::Directory => set.mode.unwrap_or(0o700),
            _ => set.mode.unwrap_or(0o600),
        } & 0o7777;
        // RFC 8275 §5: "if an object inherits any ACEs from its parent directory, mu_mode SHOULD be used and mu_umask
        // ignored"; a symbolic link inherits none, and has no mode to limit.
        let inherits = parent.default_acl.as_ref().filter(|_| !matches!(what, Create::Symlink(_)));
        match inherits {
            Some(acl) => mode = mode & !0o777 | acl.inherited(mode).mode(),
            None if matches!(what, Create::Symlink(_)) => {}
            None => mode &= !set.umask.unwrap_or(0),
        }
        if matches!(what, Create::Directory) {
            // As on Linux and System V: directories inherit the bit itself.
            mode |= parent.mode & SETGID;
        } else if !who.is_root() && !who.is_in_group(owner.1) {
            mode &= !SETGID;
        }
        let mut inode = Inode::new(body, mode, owner, context.now);
        set_times(&mut inode, set, context.now);
        inode.acl = inherits.filter(|acl| acl.is_extended()).map(|acl| acl.inherited(mode));
        if matches!(what, Create::Directory) {
            inode.default_acl.clone_from(&parent.default_acl);
        }
        if let Create::File(CreateMode::Exclusive(verifier)) = what {
            inode.verifier = Some(*verifier);
        }
        Ok(inode)
    }

    fn new_body(&self, who: &Credentials, directory: u64, what: &Create, size: Option<u64>) -> Result<Body> {
        Ok(match what {
            Create::File(_) => {
                let mut pages = Pages::default();
                let size = size.unwrap_or(0);
                if size > self.max_file_size {
                    return Err(Error::TooLarge);
                }
                pages.truncate(size);
                Body::File(pages)
            }
            Create::Directory => Body::Directory(Directory::new(directory)),
            Create::Symlink(text) => Body::Symlink(checked_text(text)?),
            Create::Fifo => Body::Fifo,
            Create::Socket => Body::Socket,
            // POSIX.1-2024 mknod(): without privilege only FIFOs.
            Create::CharDevice(_) | Create::BlockDevice(_) if !who.is_root() => {
                return Err(Error::NotPermitted);
            }
            Create::CharDevice(device) => Body::CharDevice(*device),
            Create::BlockDevice(device) => Body::BlockDevice(*device),
        })
    }

    /// Charges a new object to its owner and its entry to the owner of the directory.
    fn insert(&mut self, inode: Inode, directory_owner: u32) -> Result<u64> {
        let (owner, bytes) = (inode.uid, inode.charged());
        self.space.charge(directory_owner, ENTRY_BYTES)?;
        let charged = self.space.charge(owner, bytes);
        let inserted =
            charged.and_then(|()| self.table.insert(inode).inspect_err(|_| self.space.refund(owner, bytes)));
        inserted.inspect_err(|_| self.space.refund(directory_owner, ENTRY_BYTES))
    }
}

/// Returns owner and group of an object that `who` creates in `parent`.
fn new_owner(who: &Credentials, parent: &Inode, set: &SetAttributes) -> Result<(u32, u32)> {
    let default_group = if parent.mode & SETGID != 0 { parent.gid } else { who.gid };
    let (uid, gid) = (set.uid.unwrap_or(who.uid), set.gid.unwrap_or(default_group));
    if who.is_root() || (uid == who.uid && (gid == default_group || who.is_in_group(gid))) {
        Ok((uid, gid))
    } else {
        Err(Error::NotPermitted)
    }
}

fn checked_text(text: &Bytes) -> Result<Bytes> {
    if text.len() > SYMLINK_MAX {
        return Err(Error::NameTooLong);
    }
    if text.is_empty() || text.contains(&0) {
        return Err(Error::Invalid);
    }
    // A copy of its own: the text must not keep a whole receive buffer alive.
    Ok(Bytes::copy_from_slice(text))
}
