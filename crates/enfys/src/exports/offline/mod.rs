//! Files whose content is elsewhere, for instance on a tape: an extended attribute marks them, and a command recalls them. Operations on
//! their content are answered [`Error::Later`] until the mark is gone: JUKEBOX in version 3, DELAY in version 4, no reply in version 2.

mod recaller;

use std::ffi::{CStr, CString};
use std::sync::Arc;

use localfs::LocalFs;
use vfs::around::{Around, Call, Method, Subject};
use vfs::{Access, Backend, Context, Error, Handle, Op, Peer, Result};

pub use recaller::{RecallRule, Recaller};

/// The name space of attributes that mark files: the only one that a server without CAP_SYS_ADMIN can read.
pub const PREFIX: &str = "user.";

/// The `offline` rule of an export.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OfflineRule {
    /// The full name of the attribute.
    pub xattr: CString,
    /// How files come back; `None` if another program sees to that.
    pub recall: Option<RecallRule>,
}

/// Wraps the operations of a directory's backend by its rule.
#[derive(Debug)]
pub struct Offline {
    directory: LocalFs,
    xattr: CString,
    recaller: Option<Arc<Recaller>>,
}

/// The use of content by an operation.
enum Use<'a> {
    /// None.
    No,
    /// Reads it. The mark is checked afterwards: it is set before the content is taken away, so what was read before is the content.
    Read(&'a Handle),
    /// Changes it, or reads it to change another file. The mark is checked before.
    Change(&'a Handle),
}

impl Offline {
    /// Creates a wrapper for a directory.
    pub fn new(directory: LocalFs, xattr: &CStr, recaller: Option<Arc<Recaller>>) -> Self {
        Self { directory, xattr: xattr.to_owned(), recaller }
    }

    /// Fails for a file that is offline, and has it recalled. The caller may read it.
    fn check<'a>(&'a self, peer: Peer, file: Handle) -> Op<'a, ()> {
        match self.directory.has_xattr(peer, &file, &self.xattr).at_once() {
            Ok(marked) => Op::from(marked.and_then(|is_marked| self.answer(is_marked, file))),
            Err(later) => Op::pending(async move { self.answer(later.await?, file) }),
        }
    }

    fn answer(&self, is_marked: bool, file: Handle) -> Result<()> {
        match (is_marked, &self.recaller) {
            (false, _) => Ok(()),
            (true, None) => Err(Error::Later),
            (true, Some(recaller)) => Err(recaller.request(file)),
        }
    }

    /// As [`Self::check`], before the operation. Callers without this right, who do not own the file, recall nothing.
    async fn check_before(&self, context: &Context, file: Handle, right: Access) -> Result<()> {
        if !self.directory.has_xattr(context.peer, &file, &self.xattr).await? {
            return Ok(());
        }
        let (granted, attributes) = self.directory.access(context, &file, right).await?;
        let may = granted.contains(right) || attributes.uid == context.credentials.uid;
        if may { self.answer(true, file) } else { Err(Error::Access) }
    }

    /// Checks the file that a CREATE with a size would truncate.
    async fn check_existing(&self, context: &Context, directory: Handle, name: Vec<u8>) -> Result<()> {
        match self.directory.lookup(context, &directory, &name).await {
            Ok(found) => self.check_before(context, found.handle, Access::MODIFY).await,
            // The operation itself finds out.
            Err(_) => Ok(()),
        }
    }

    fn is_mark(&self, name: &[u8]) -> bool {
        self.xattr.as_bytes().strip_prefix(PREFIX.as_bytes()) == Some(name)
    }
}

/// Returns the use of content by a call. Opens, names and attributes do not need it.
fn use_of<'a>(call: &Call<'a>) -> Use<'a> {
    match (call.method, call.subject) {
        (Method::Read | Method::Seek, Subject::Bytes(file, _)) => Use::Read(file),
        (
            Method::Write
            | Method::WriteHole
            | Method::Allocate
            | Method::Deallocate
            | Method::CloneRange
            | Method::CopyRange,
            Subject::Bytes(file, _),
        ) => Use::Change(file),
        (Method::Setattr, Subject::Attributes(file, set)) if set.size.is_some() => Use::Change(file),
        _ => Use::No,
    }
}

impl Around for Offline {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        let peer = call.context.map(|context| context.peer).unwrap_or_default();
        match (use_of(&call), call.created, call.subject) {
            (Use::Read(file), ..) => {
                let file = *file;
                match run(None).at_once() {
                    Ok(Ok(answer)) => match self.check(peer, file).at_once() {
                        Ok(checked) => Op::from(checked.map(|()| answer)),
                        Err(later) => Op::pending(async move { later.await.map(|()| answer) }),
                    },
                    Ok(Err(error)) => Op::err(error),
                    Err(later) => Op::pending(async move {
                        let answer = later.await?;
                        self.check(peer, file).await.map(|()| answer)
                    }),
                }
            }
            (Use::Change(file), ..) => {
                let (context, file, source) = (call.context.cloned(), *file, call.source.copied());
                Op::pending(async move {
                    if let Some(context) = context {
                        self.check_before(&context, file, Access::MODIFY).await?;
                        if let Some(source) = source {
                            self.check_before(&context, source, Access::READ).await?;
                        }
                    }
                    run(None).await
                })
            }
            (Use::No, Some((directory, set)), Subject::Name(name)) if set.size.is_some() => {
                let (context, directory, name) = (call.context.cloned(), *directory, name.to_vec());
                Op::pending(async move {
                    if let Some(context) = context {
                        self.check_existing(&context, directory, name).await?;
                    }
                    run(None).await
                })
            }
            // A client could otherwise pass the rest of a file for the whole, or have files recalled again and again.
            (Use::No, None, Subject::Name(name))
                if matches!(call.method, Method::SetXattr | Method::RemoveXattr) && self.is_mark(name) =>
            {
                Op::err(Error::NotPermitted)
            }
            _ => run(None),
        }
    }
}

#[cfg(test)]
mod tests;
