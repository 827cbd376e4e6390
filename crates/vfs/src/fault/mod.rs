//! A backend that goes wrong by script, for tests of servers and for the simulator.
//!
//! [`Faulty`] wraps a backend. A [`Rule`] says which operations fail and how: refused with an error (media offline, a
//! full disk, a broken one), cut short, answered wrongly though done, or held until a [`Gate`] opens. Rules are tried in
//! the order they were added; the first that fits plays its fault. Every operation is counted by [`Method`], so that a
//! test can tell how often something was really done.
//!
//! ```
//! # use std::sync::Arc;
//! # use vfs::fault::{Fault, Faulty, Method, Rule};
//! # use vfs::{Backend, Context, Credentials, Error, MemFs, MemOptions, Timestamp};
//! let files = Faulty::new(MemFs::new(&MemOptions::default()));
//! files.add(Rule::on(Method::Getattr, Fault::Fail(Error::Later)).times(1));
//! let context = Context { credentials: Arc::new(Credentials::root()), now: Timestamp::default() };
//! assert_eq!(files.getattr(&context, &files.root()).now(), Err(Error::Later));
//! assert!(files.getattr(&context, &files.root()).now().is_ok());
//! ```

mod gate;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

pub use gate::Gate;

use crate::{
    Access, Acl, AclKind, Advice, Attributes, Authority, Backend, Change, Context, Copied, CopyRange, Create,
    Created, Entry, Error, Found, FsStat, Handle, Linked, Op, OpenAccess, Opened, Properties, Read, ReadDir,
    ReadDirEnd, ReadRequest, Removal, Renamed, Seek, SetAttributes, SetXattr, Stability, Timestamp, Verifier,
    Written,
};

/// Rules that may be in force at once: a script is written by hand.
const RULES_MAX: usize = 1000;

/// An operation of [`Backend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the backend's operation of that name")]
pub enum Method {
    Getattr,
    Setattr,
    Lookup,
    Parent,
    Access,
    Readlink,
    Read,
    Write,
    Commit,
    Create,
    Remove,
    Rename,
    Link,
    Readdir,
    Open,
    Statfs,
    Sync,
    Settle,
    Seek,
    Allocate,
    Deallocate,
    CloneRange,
    CopyRange,
    Advise,
    GetAcl,
    SetAcl,
    GetXattr,
    SetXattr,
    ListXattrs,
    RemoveXattr,
}

/// How many [`Method`]s there are.
const METHODS: usize = Method::RemoveXattr as usize + 1;

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Refused, nothing done. A COMMIT or a SYNC refused so may have lost data: the write verifier changes.
    Fail(Error),
    /// Done, but answered with an error, as where a disk dies between the two.
    FailAfter(Error),
    /// READ and WRITE take at most so many bytes; other operations are done as ever.
    Short(u32),
    /// Waits until the gate opens, and is done then.
    Hold(Gate),
}

/// Which operations go wrong, and how.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<Method>,
    skip: u64,
    times: u64,
    fault: Fault,
}

impl Rule {
    /// Every operation of a kind.
    #[must_use]
    pub fn on(method: Method, fault: Fault) -> Self {
        Self { method: Some(method), skip: 0, times: u64::MAX, fault }
    }

    /// Every operation of any kind.
    #[must_use]
    pub fn on_any(fault: Fault) -> Self {
        Self { method: None, skip: 0, times: u64::MAX, fault }
    }

    /// But not the first `count` of them.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// And at most `count` of them; then the rule is gone.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { times: count, ..self }
    }
}

/// A backend that does what its [`Rule`]s say; see the [module](self).
#[derive(Debug)]
pub struct Faulty<B> {
    inner: B,
    rules: Mutex<Vec<Rule>>,
    calls: [AtomicU64; METHODS],
    /// Times that data may have been lost.
    losses: AtomicU64,
}

impl<B: Backend> Faulty<B> {
    /// A backend that works until it is told otherwise.
    pub fn new(inner: B) -> Self {
        let calls = std::array::from_fn(|_| AtomicU64::new(0));
        Self { inner, rules: Mutex::new(Vec::new()), calls, losses: AtomicU64::new(0) }
    }

    /// The backend that works.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Adds a rule behind the others.
    ///
    /// # Panics
    /// Where a script has more rules than 1000, which no script needs.
    pub fn add(&self, rule: Rule) {
        let mut rules = self.rules.lock();
        assert!(rules.len() < RULES_MAX, "a script with more than {RULES_MAX} rules");
        rules.push(rule);
    }

    /// Forgets all rules. What a gate holds stays held.
    pub fn heal(&self) {
        self.rules.lock().clear();
    }

    /// Times that an operation was asked for, whatever came of it.
    pub fn calls(&self, method: Method) -> u64 {
        self.calls[method as usize].load(Ordering::Relaxed)
    }

    /// Counts the call; the fault that it meets, if any.
    fn meet(&self, method: Method) -> Option<Fault> {
        self.calls[method as usize].fetch_add(1, Ordering::Relaxed);
        let mut rules = self.rules.lock();
        let mut met = None;
        for (at, rule) in rules.iter_mut().enumerate() {
            if rule.method.is_some_and(|only| only != method) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                met = Some((at, rule.fault.clone(), rule.times));
                break;
            }
        }
        let (at, fault, left) = met?;
        if left == 0 {
            rules.remove(at);
        }
        drop(rules);
        let loses = matches!(method, Method::Commit | Method::Sync) && matches!(fault, Fault::Fail(_));
        self.losses.fetch_add(u64::from(loses), Ordering::Relaxed);
        Some(fault)
    }

    fn play<'a, T: Send + 'a>(
        &'a self,
        fault: Option<Fault>,
        run: impl FnOnce() -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match fault {
            None | Some(Fault::Short(_)) => run(),
            Some(Fault::Fail(error)) => Op::err(error),
            Some(Fault::FailAfter(error)) => match run() {
                Op::Ready(_) => Op::err(error),
                pending => Op::pending(async move {
                    drop(pending.await);
                    Err(error)
                }),
            },
            Some(Fault::Hold(gate)) => {
                let opened = gate.opened();
                Op::pending(async move {
                    opened.await;
                    run().await
                })
            }
        }
    }
}

/// Operations that meet faults and are passed on unchanged.
macro_rules! scripted {
    ($($name:ident: $method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {$(
        fn $name<'a>(&'a self, context: &'a Context, $($argument: $kind),*) -> Op<'a, $answer> {
            self.play(self.meet(Method::$method), move || self.inner.$name(context, $($argument),*))
        }
    )+};
}

impl<B: Backend> Backend for Faulty<B> {
    fn root(&self) -> Handle {
        self.inner.root()
    }

    fn properties(&self) -> Properties {
        self.inner.properties()
    }

    fn identity(&self) -> [u8; 16] {
        self.inner.identity()
    }

    fn write_verifier(&self) -> Verifier {
        let verifier = u64::from_be_bytes(self.inner.write_verifier());
        verifier.wrapping_add(self.losses.load(Ordering::Relaxed)).to_be_bytes()
    }

    fn read<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        mut request: ReadRequest,
        into: &'a mut BytesMut,
    ) -> Op<'a, Read> {
        let fault = self.meet(Method::Read);
        if let Some(Fault::Short(most)) = fault {
            request.count = request.count.min(most);
        }
        self.play(fault, move || self.inner.read(context, file, request, into))
    }

    fn write<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        data: &'a Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written> {
        let fault = self.meet(Method::Write);
        match fault {
            Some(Fault::Short(most)) if (most as usize) < data.len() => {
                let part = data.slice(..most as usize);
                Op::pending(async move {
                    self.inner.write(context, file, offset, &part, stability, authority).await
                })
            }
            fault => {
                self.play(fault, move || self.inner.write(context, file, offset, data, stability, authority))
            }
        }
    }

    fn sync(&self) -> Op<'_, ()> {
        self.play(self.meet(Method::Sync), || self.inner.sync())
    }

    fn settle(&self) -> Op<'_, ()> {
        self.play(self.meet(Method::Settle), || self.inner.settle())
    }

    scripted! {
        getattr: Getattr(file: &'a Handle) -> Attributes;
        setattr: Setattr(
            file: &'a Handle, set: &'a SetAttributes, guard: Option<Timestamp>, authority: Authority
        ) -> Change;
        lookup: Lookup(directory: &'a Handle, name: &'a [u8]) -> Found;
        parent: Parent(directory: &'a Handle) -> Found;
        access: Access(file: &'a Handle, want: Access) -> (Access, Attributes);
        readlink: Readlink(link: &'a Handle) -> (Bytes, Attributes);
        commit: Commit(file: &'a Handle, offset: u64, count: u64) -> Change;
        create: Create(
            directory: &'a Handle, name: &'a [u8], what: &'a Create, set: &'a SetAttributes
        ) -> Created;
        remove: Remove(directory: &'a Handle, name: &'a [u8], removal: Removal) -> Change;
        rename: Rename(from: (&'a Handle, &'a [u8]), to: (&'a Handle, &'a [u8])) -> Renamed;
        link: Link(file: &'a Handle, directory: &'a Handle, name: &'a [u8]) -> Linked;
        readdir: Readdir(
            directory: &'a Handle, request: ReadDir,
            visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send)
        ) -> ReadDirEnd;
        open: Open(file: &'a Handle, access: OpenAccess, authority: Authority) -> Opened;
        statfs: Statfs(file: &'a Handle) -> (FsStat, Attributes);
        seek: Seek(file: &'a Handle, offset: u64, what: Seek, authority: Authority) -> Option<u64>;
        allocate: Allocate(file: &'a Handle, offset: u64, length: u64, authority: Authority) -> Change;
        deallocate: Deallocate(file: &'a Handle, offset: u64, length: u64, authority: Authority) -> Change;
        clone_range: CloneRange(range: &'a CopyRange) -> Change;
        copy_range: CopyRange(range: &'a CopyRange) -> Copied;
        advise: Advise(file: &'a Handle, offset: u64, count: u64, advice: Advice) -> bool;
        get_acl: GetAcl(file: &'a Handle, kind: AclKind) -> Option<Acl>;
        set_acl: SetAcl(file: &'a Handle, kind: AclKind, acl: Option<&'a Acl>) -> Change;
        get_xattr: GetXattr(file: &'a Handle, name: &'a [u8]) -> Bytes;
        set_xattr: SetXattr(file: &'a Handle, name: &'a [u8], value: &'a Bytes, how: SetXattr) -> Change;
        list_xattrs: ListXattrs(file: &'a Handle) -> Vec<Bytes>;
        remove_xattr: RemoveXattr(file: &'a Handle, name: &'a [u8]) -> Change;
    }
}
