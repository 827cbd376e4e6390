//! A backend that fails by a script, for tests of servers and for the simulator.
//!
//! [`Faulty`] wraps a backend. A [`Rule`] selects operations and their fault: refused with an error (media offline, a
//! full disk, a broken one), cut short, done but answered with an error, or held until a [`Gate`] opens. Rules are
//! tried in the order they were added; the first match applies its fault. Every operation is counted by [`Method`],
//! so that a test can check the number of requests.
//!
//! ```
//! # use std::sync::Arc;
//! # use vfs::fault::{Fault, Faulty, Method, Rule};
//! # use vfs::{Backend, Context, Credentials, Error, MemFs, MemOptions, Timestamp};
//! let files = Faulty::new(MemFs::new(&MemOptions::default()));
//! files.add(Rule::on(Method::Getattr, Fault::Fail(Error::Later)).times(1));
//! let context = Context::new(Arc::new(Credentials::root()), Timestamp::default());
//! assert_eq!(files.getattr(&context, &files.root()).now(), Err(Error::Later));
//! assert!(files.getattr(&context, &files.root()).now().is_ok());
//! ```

mod commits;
mod gate;
mod outsiders;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

pub use commits::Commits;
pub use gate::Gate;
pub use outsiders::Outsiders;

pub use crate::around::Method;
use crate::around::{Around, Call, Wrapped};
use crate::{Backend, ChangeListener, Error, Handle, Interest, Op, Verifier, Watch};

/// Maximum number of rules at once: scripts are written by hand.
const RULES_MAX: usize = 1000;

/// A fault.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Refused, without effect. A refused COMMIT or SYNC may have lost data: the write verifier changes.
    Fail(Error),
    /// Done, but answered with an error, as if a disk failed between the two.
    FailAfter(Error),
    /// READ and WRITE transfer at most this many bytes; other operations are not affected.
    Short(u32),
    /// Done when the gate opens.
    Hold(Gate),
    /// Done at once, and answered when the gate opens.
    HoldAfter(Gate),
}

/// The operations that fail, and their fault.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<Method>,
    skip: u64,
    times: u64,
    fault: Fault,
}

impl Rule {
    /// Matches every operation of a kind.
    #[must_use]
    pub fn on(method: Method, fault: Fault) -> Self {
        Self { method: Some(method), skip: 0, times: u64::MAX, fault }
    }

    /// Matches every operation.
    #[must_use]
    pub fn on_any(fault: Fault) -> Self {
        Self { method: None, skip: 0, times: u64::MAX, fault }
    }

    /// Skips the first `count` matches.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// Applies to at most `count` operations, and is removed then.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { times: count, ..self }
    }
}

/// A backend that follows its [`Rule`]s; see the [module](self).
pub type Faulty<B> = Wrapped<B, Script>;

/// The current rules, and the number of calls.
#[derive(Debug)]
pub struct Script {
    rules: Mutex<Vec<Rule>>,
    calls: [AtomicU64; Method::COUNT],
    /// The number of times that data may have been lost.
    losses: AtomicU64,
    /// Whether the wrapped backend simulates a disk.
    is_stable: AtomicBool,
    commits: Arc<Commits>,
    outsiders: Outsiders,
}

impl<B: Backend> Faulty<B> {
    /// Wraps a backend, without rules.
    pub fn new(inner: B) -> Self {
        let calls = std::array::from_fn(|_| AtomicU64::new(0));
        let (losses, outsiders) = (AtomicU64::new(0), Outsiders::default());
        let is_stable = AtomicBool::new(true);
        Self::of(
            inner,
            Script {
                rules: Mutex::new(Vec::new()),
                calls,
                losses,
                is_stable,
                commits: Arc::default(),
                outsiders,
            },
        )
    }

    /// Adds a rule after the others.
    ///
    /// # Panics
    /// Above 1000 rules.
    pub fn add(&self, rule: Rule) {
        let mut rules = self.around.rules.lock();
        assert!(rules.len() < RULES_MAX, "a script with more than {RULES_MAX} rules");
        rules.push(rule);
    }

    /// Removes all rules. Operations at a gate remain held.
    pub fn heal(&self) {
        self.around.rules.lock().clear();
    }

    /// Promises no stable storage from now on: see [`Backend::is_stable`].
    pub fn be_unstable(&self) {
        self.around.is_stable.store(false, Ordering::Relaxed);
    }

    /// Returns the users other than the server, which change objects without it.
    pub fn outsiders(&self) -> &Outsiders {
        &self.around.outsiders
    }

    /// Returns the group commits: changes of a stable backend are deferred if the caller allows it.
    pub fn commits(&self) -> &Commits {
        &self.around.commits
    }

    /// Returns the number of requests of an operation, with any result.
    pub fn calls(&self, method: Method) -> u64 {
        self.around.calls[method as usize].load(Ordering::Relaxed)
    }
}

impl Script {
    /// Defers a change that was made at once, if the caller allows it.
    fn deferred<'a, T>(&self, call: &Call<'_>, done: Op<'a, T>) -> Op<'a, T> {
        if let Op::Ready(Some(Ok(_))) = &done
            && let Some(group) = call.context.and_then(|context| context.group.as_ref())
            && self.is_stable.load(Ordering::Relaxed)
        {
            self.commits.defer(group, call.method);
        }
        done
    }

    /// Counts the call. Returns its fault, if any.
    fn next_fault(&self, method: Method) -> Option<Fault> {
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
}

impl Around for Script {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match self.next_fault(call.method) {
            None => self.deferred(&call, run(None)),
            Some(Fault::Short(most)) => run(Some(most)),
            Some(Fault::Fail(error)) => Op::err(error),
            Some(Fault::FailAfter(error)) => match run(None) {
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
                    run(None).await
                })
            }
            Some(Fault::HoldAfter(gate)) => {
                let opened = gate.opened();
                let done = run(None);
                Op::pending(async move {
                    let result = done.await;
                    opened.await;
                    result
                })
            }
        }
    }

    fn watch(
        &self,
        object: &Handle,
        interest: Interest,
        listener: &Arc<dyn ChangeListener>,
    ) -> Option<Box<dyn Watch>> {
        Some(self.outsiders.watch(object, interest, listener))
    }

    fn is_stable(&self, _: bool) -> bool {
        self.is_stable.load(Ordering::Relaxed)
    }

    fn write_verifier(&self, verifier: Verifier) -> Verifier {
        let verifier = u64::from_be_bytes(verifier);
        verifier.wrapping_add(self.losses.load(Ordering::Relaxed)).to_be_bytes()
    }
}
