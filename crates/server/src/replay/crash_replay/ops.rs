//! Operations that are logged around their execution, and claimed if an earlier process executed them.

use std::time::Duration;

use parking_lot::MutexGuard;
use tracing::debug;
use vfs::{
    Attributes, Authority, Change, Context, Create, CreateMode, Created, Error, FileKind, Found, Handle,
    Linked, Removal, Renamed, SetAttributes, SetTime, Timestamp,
};

use super::record::{CHANGES, Kind};
use super::recovered::{Claim, RecoveredOps};
use super::{CallId, CallLog, CallOwner, DeferredEnd, LoggedCall, Turn};
use crate::Export;

/// Longest step of the clock of file times: Linux with HZ=100. A file may seem that much older than the call that created it.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Permission bits that a creation may set later.
const SET_IDS: u32 = 0o6000;
/// Permission bits that an exclusively created file may have until its verifier is written.
const WHILE_UNVERIFIED: u32 = 0o600;

/// Executes the operations of one call that change names. They are logged if there is a log and the call has a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoggedOps<'s> {
    log: Option<(&'s CallLog, CallId)>,
    call: &'s LoggedCall,
    /// Who may claim these operations.
    owner: CallOwner,
}

/// An operation in progress.
pub(super) struct Attempt<'s> {
    journal: &'s CallLog,
    logged: &'s LoggedCall,
    call: CallId,
    /// The operation of an earlier process that this one repeats.
    claim: Option<Claim>,
    kind: Kind,
    targets: [u64; CHANGES],
    at: Timestamp,
    /// Keeps other operations on these names waiting.
    _turns: [Option<Turn<'s>>; CHANGES],
}

/// A directory of an export, and the credentials that change it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Directory<'a> {
    pub(crate) export: &'a Export,
    pub(crate) context: &'a Context,
    pub(crate) directory: &'a Handle,
}

// Futures for repeated calls are boxed, so that those of all others stay small.
impl<'s> LoggedOps<'s> {
    /// Returns the operations of `call`, which has this `id` in the log. They may be claims of this `owner`.
    pub(crate) fn new(
        log: Option<&'s CallLog>,
        call: &'s LoggedCall,
        owner: CallOwner,
        id: Option<CallId>,
    ) -> Self {
        Self { log: log.zip(id), call, owner }
    }

    /// [`Backend::create`](vfs::Backend::create).
    pub(crate) async fn create(
        &self,
        place: Directory<'_>,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Created, Error> {
        let Directory { export, context, directory } = place;
        let attempt = self.begin(export, Kind::Create, [Some((directory, name)), None]).await;
        let mut created = export.backend.create(context, directory, name, what, set).await;
        let Some(attempt) = attempt else { return created };
        let is_there = match &created {
            Ok(created) => !created.is_new,
            Err(error) => *error == Error::Exists,
        };
        let mut changed = created.as_ref().is_ok_and(|created| created.is_new);
        if is_there
            && let Some(window) = attempt.window(export)
            && let Some(found) = Box::pin(own_creation(place, name, what, window)).await
            && attempt.wins()
        {
            let is_repeated = created.is_ok();
            created = Box::pin(complete(place, &found, (what, is_repeated), set)).await;
            changed = created.is_ok();
        } else if is_there && created.is_ok() && matches!(what, Create::File(CreateMode::Exclusive(_))) {
            attempt.made_before();
        }
        attempt.end(&created, changed, context);
        created
    }

    /// [`Backend::remove`](vfs::Backend::remove).
    pub(crate) async fn remove(
        &self,
        place: Directory<'_>,
        name: &[u8],
        removal: Removal,
    ) -> Result<Change, Error> {
        let Directory { export, context, directory } = place;
        let attempt = self.begin(export, Kind::Remove, [Some((directory, name)), None]).await;
        if let Some(attempt) = attempt.as_ref()
            && let Some(is_lost) = attempt.remade()
        {
            return Box::pin(attempt.removed_before(place, is_lost)).await;
        }
        if let Some(attempt) = attempt.as_ref()
            && let Some(since) = attempt.repeated_since()
            && Box::pin(is_newer(place, name, since)).await
        {
            // The object that this call was to remove is gone, whether or not its end is in the log.
            return Box::pin(attempt.removed_before(place, false)).await;
        }
        let mut removed = export.backend.remove(context, directory, name, removal).await;
        let Some(attempt) = attempt else { return removed };
        if removed == Err(Error::NotFound)
            && let Some(window) = attempt.window(export)
            && let Ok(parent) = export.backend.getattr(context, directory).await
                // A name was removed here since: the directory has changed.
            && window.is_reached(parent.changed)
            && attempt.wins()
        {
            removed = export.backend.sync_inherited().await.map(|()| unchanged(&parent));
        }
        attempt.end(&removed, removed.is_ok(), context);
        removed
    }

    /// [`Backend::rename`](vfs::Backend::rename), within one export.
    pub(crate) async fn rename(
        &self,
        export: &Export,
        context: &Context,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) -> Result<Renamed, Error> {
        let attempt = self.begin(export, Kind::Rename, [Some(from), Some(to)]).await;
        if let Some(attempt) = attempt.as_ref()
            && let Some(is_lost) = attempt.remade()
        {
            return Box::pin(attempt.renamed_before(export, context, from, to, is_lost)).await;
        }
        let mut renamed = export.backend.rename(context, from, to).await;
        let Some(attempt) = attempt else { return renamed };
        if matches!(renamed, Err(Error::NotFound))
            && let Some(window) = attempt.window(export)
            && matches!(export.backend.lookup(context, from.0, from.1).await, Err(Error::NotFound))
            && let Some(own) = Box::pin(own_rename(export, context, from, to, window)).await
            && attempt.wins()
        {
            renamed = export.backend.sync_inherited().await.map(|()| own);
        }
        attempt.end(&renamed, renamed.is_ok(), context);
        renamed
    }

    /// [`Backend::link`](vfs::Backend::link).
    pub(crate) async fn link(
        &self,
        place: Directory<'_>,
        file: &Handle,
        name: &[u8],
    ) -> Result<Linked, Error> {
        let Directory { export, context, directory } = place;
        let attempt = self.begin(export, Kind::Link, [Some((directory, name)), None]).await;
        let mut linked = export.backend.link(context, file, directory, name).await;
        let Some(attempt) = attempt else { return linked };
        if matches!(linked, Err(Error::Exists))
            && let Some(window) = attempt.window(export)
            && let Ok(found) = export.backend.lookup(context, directory, name).await
                // A new name changes the file; its identity shows the rest.
            && found.handle == *file
            && window.is_reached(found.attributes.changed)
            && attempt.wins()
        {
            let own = Linked { attributes: found.attributes, directory: unchanged(&found.directory) };
            linked = export.backend.sync_inherited().await.map(|()| own);
        }
        attempt.end(&linked, linked.is_ok(), context);
        linked
    }

    /// [`Backend::setattr`](vfs::Backend::setattr) with the caller's rights and a guard, which makes a second execution fail.
    pub(crate) async fn setattr(
        &self,
        export: &Export,
        context: &Context,
        file: &Handle,
        set: &SetAttributes,
        guard: Timestamp,
    ) -> Result<Change, Error> {
        let attempt = self.begin_file(export, Kind::SetAttr, file).await;
        let mut change = export.backend.setattr(context, file, set, Some(guard), Authority::Caller).await;
        let Some(attempt) = attempt else { return change };
        if change == Err(Error::NotSync)
            && let Some(window) = attempt.window(export)
            && let Ok(found) = export.backend.getattr(context, file).await
            && window.is_reached(found.changed)
            && is_as_set(&found, set)
            && attempt.wins()
        {
            change = export.backend.sync_inherited().await.map(|()| unchanged(&found));
        }
        attempt.end(&change, change.is_ok(), context);
        change
    }

    pub(super) async fn begin(
        &self,
        export: &Export,
        kind: Kind,
        names: [Option<(&Handle, &[u8])>; CHANGES],
    ) -> Option<Attempt<'s>> {
        let (journal, _) = self.log?;
        let targets = names
            .map(|name| name.map_or(0, |(directory, name)| journal.target(export.id, directory, Some(name))));
        self.begin_targets(export, kind, targets).await
    }

    async fn begin_file(&self, export: &Export, kind: Kind, file: &Handle) -> Option<Attempt<'s>> {
        let (journal, _) = self.log?;
        self.begin_targets(export, kind, [journal.target(export.id, file, None), 0]).await
    }

    async fn begin_targets(
        &self,
        export: &Export,
        kind: Kind,
        targets: [u64; CHANGES],
    ) -> Option<Attempt<'s>> {
        let (journal, _) = self.log?;
        let turns = journal.turns(targets).await;
        let attempt = self.write_down(kind, targets, turns)?;
        if export.backend.is_stable() {
            // After a crash between the change and its record, the author of the change would be unknown.
            attempt.journal.sync().await;
            self.call.set_must_sync();
        }
        Some(attempt)
    }

    fn write_down(
        &self,
        kind: Kind,
        targets: [u64; CHANGES],
        _turns: [Option<Turn<'s>>; CHANGES],
    ) -> Option<Attempt<'s>> {
        let (journal, call) = self.log?;
        let key = journal.knows_before().then(|| journal.claim_key(self.owner, kind, &targets));
        let claim = key.and_then(|key| journal.before()?.claim(key, call));
        let mut attempt =
            Attempt { journal, logged: self.call, call, claim, kind, targets, at: self.call.at, _turns };
        // The next process needs the earlier time too.
        attempt.at = attempt.began_before().unwrap_or_else(|| journal.distinct(self.call.at));
        journal.begin(call, attempt.at, kind, targets);
        Some(attempt)
    }
}

impl Attempt<'_> {
    /// Returns the records of earlier processes, and the claim of this operation.
    fn before(&self) -> Option<(MutexGuard<'_, RecoveredOps>, Claim)> {
        let claim = self.claim?;
        Some((self.journal.before()?, claim))
    }

    /// Returns the time at which an earlier process began the operation, if it can be claimed.
    fn began_before(&self) -> Option<Timestamp> {
        let (before, claim) = self.before()?;
        before.began(claim)
    }

    /// See [`RecoveredOps::repeated_since`](super::recovered::RecoveredOps::repeated_since).
    fn repeated_since(&self) -> Option<(Timestamp, bool)> {
        let (before, claim) = self.before()?;
        before.repeated_since(claim)
    }

    /// Removes the claim, valid or not. Returns the start time of its operation, and its call.
    fn withdraw(&self) -> Option<(Timestamp, CallId)> {
        let (mut before, claim) = self.before()?;
        before.withdraw(claim)
    }

    /// Removes the claim of an operation whose client gets another answer: an equal operation that comes later is new. Returns as
    /// [`Self::withdraw`].
    fn answered(&self) -> Option<(Timestamp, CallId)> {
        let (mut before, claim) = self.before()?;
        before.answered(claim)
    }

    /// Returns the time at which an earlier process may have executed the operation, if it can be claimed.
    pub(super) fn window(&self, export: &Export) -> Option<Window> {
        let began = self.began_before()?;
        let step = Duration::from_nanos(u64::from(export.backend.properties().time_delta_ns));
        Some(Window { from: earlier(began, CLOCK_TICK + step), until: self.journal.started })
    }

    /// Takes the claim. Returns false if it is no longer valid, because another call took it meanwhile.
    pub(super) fn wins(&self) -> bool {
        let taken = self.before().and_then(|(mut before, claim)| before.take(claim));
        let Some((began, by)) = taken else { return false };
        if by != self.call {
            // The claim is used: no later process may find it.
            self.journal.end(by, began, self.kind, self.targets, false);
        }
        debug!(kind = ?self.kind, "client gets the result of an earlier process");
        true
    }

    /// Notes that an earlier process executed this creation, as the verifier of the present object proves: a removal that was in
    /// progress then has not removed this object, whatever was acknowledged last.
    fn made_before(&self) {
        if let Some((mut before, claim)) = self.before() {
            before.acknowledge_claimed(claim);
        }
    }

    /// Ends the operation. If the backend deferred its change, the end is logged when the change is durable.
    pub(super) fn end<T>(self, outcome: &Result<T, Error>, changed: bool, context: &Context) {
        let Self { journal, call, at, kind, targets, .. } = self;
        let withdrawn = match outcome {
            _ if changed => self.withdraw(),
            // The client repeats the operation as another call.
            Err(Error::Later) => None,
            _ => self.answered(),
        };
        // Executed under another name: no later process may treat a further change of the name as a claim of that call.
        let claimed = withdrawn.filter(|(_, by)| *by != call).map(|(began, by)| (by, began));
        if let Some(operation) = context.group.as_ref().filter(|_| changed).and_then(|group| group.deferred())
        {
            journal.acknowledge(call, kind, targets);
            self.logged.ends.lock().push(DeferredEnd { operation, call, at, kind, targets, claimed });
            return;
        }
        journal.end(call, at, kind, targets, changed);
        if let Some((by, began)) = claimed {
            journal.end(by, began, kind, targets, false);
        }
    }

    /// See [`RecoveredOps::remade`](super::recovered::RecoveredOps::remade): a removal must not be executed, because it would remove
    /// another client's object.
    pub(super) fn remade(&self) -> Option<bool> {
        let (before, claim) = self.before()?;
        before.remade(claim)
    }

    /// Answers a removal that is not executed, because the present object was created since.
    pub(super) async fn removed_before(&self, place: Directory<'_>, is_lost: bool) -> Result<Change, Error> {
        let Directory { export, context, directory } = place;
        let mut removed = Err(Error::NotFound);
        if !is_lost
            && let Ok(parent) = export.backend.getattr(context, directory).await
            && self.wins()
        {
            removed = export.backend.sync_inherited().await.map(|()| unchanged(&parent));
        }
        self.end_unexecuted();
        removed
    }

    /// Answers a rename that is not executed, because the object at its old name was created since.
    async fn renamed_before(
        &self,
        export: &Export,
        context: &Context,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
        is_lost: bool,
    ) -> Result<Renamed, Error> {
        let mut renamed = Err(Error::NotFound);
        if !is_lost
            && let Some(window) = self.window(export)
            && let Some(own) = own_rename(export, context, from, to, window).await
            && self.wins()
        {
            renamed = export.backend.sync_inherited().await.map(|()| own);
            // The object at the new name is claimed by this call. The old name still exists.
            let new_name = [self.targets[1], 0];
            self.journal.end(self.call, self.at, Kind::Link, new_name, renamed.is_ok());
        }
        self.end_unexecuted();
        renamed
    }

    /// Ends an operation that was not executed: the present object is another call's. The log has no end of this call until its reply is
    /// there: if the process is killed before, the next one must not take its repetition for a new call and execute it.
    fn end_unexecuted(&self) {
        if let Some((began, by)) = self.withdraw()
            && by != self.call
        {
            self.journal.end(by, began, self.kind, self.targets, false);
        }
    }
}

/// The time from a call until the end of the process that received it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    from: Timestamp,
    until: Timestamp,
}

impl Window {
    /// Returns whether a change at `time` may be within this interval.
    pub(super) fn is_reached(self, time: Timestamp) -> bool {
        time >= self.from
    }

    /// Returns whether an object was created within this interval and not changed since, so that no other client created it.
    fn made(self, object: &Attributes) -> bool {
        let is_within = |time| time >= self.from && time <= self.until;
        is_within(object.changed) && object.created.is_none_or(is_within)
    }
}

/// Returns whether the object at `name` got it after `began`: it was created later; or, if it `may_be_given` the name by another
/// operation, it was changed later, as by LINK and RENAME. False where the file system keeps no such times.
async fn is_newer(place: Directory<'_>, name: &[u8], (began, may_be_given): (Timestamp, bool)) -> bool {
    let Directory { export, context, directory } = place;
    let Ok(Found { attributes, .. }) = export.backend.lookup(context, directory, name).await else {
        return false;
    };
    // The clock of files is late, if anything. Times in the future are of a clock that was set back since.
    let is_later = |time: Timestamp| time > began && time <= context.now;
    attributes.created.is_some_and(is_later) || may_be_given && is_later(attributes.changed)
}

/// Returns the object at `name` if the call could have created it.
async fn own_creation(place: Directory<'_>, name: &[u8], what: &Create, window: Window) -> Option<Found> {
    let Directory { export, context, directory } = place;
    let found = export.backend.lookup(context, directory, name).await.ok()?;
    if !window.made(&found.attributes) || !is_same_object(&found.attributes, what) {
        return None;
    }
    if let Create::Symlink(text) = what {
        let (kept, _) = export.backend.readlink(context, &found.handle).await.ok()?;
        return (kept == *text).then_some(found);
    }
    Some(found)
}

/// Answers a creation, after finishing it; `is_repeated` if the backend would answer it as a repetition.
async fn complete(
    place: Directory<'_>,
    found: &Found,
    (what, is_repeated): (&Create, bool),
    set: &SetAttributes,
) -> Result<Created, Error> {
    let Directory { export, context, .. } = place;
    let Found { handle, mut attributes, directory } = *found;
    let mut missing = missing(&attributes, what, set);
    let is_exclusive = matches!(what, Create::File(CreateMode::Exclusive(_)));
    if is_exclusive && !is_repeated {
        // The file may have the verifier of another call, whose repetition must not get it too. Backends keep verifiers in times, or
        // until these are set.
        missing.accessed.get_or_insert(SetTime::Now);
        missing.modified.get_or_insert(SetTime::Now);
    }
    if !missing.is_empty() {
        let set = export.backend.setattr(context, &handle, &missing, None, Authority::Caller).await?;
        attributes = set.after;
    }
    export.backend.sync_inherited().await?;
    // If two calls were creating it, the object may be the other's. The claiming call may open it if its mode allows.
    let is_new = attributes.uid == set.uid.unwrap_or(context.credentials.uid);
    // If its times hold the verifier, they are whole seconds. The client has to set them in any case.
    let is_whole = attributes.accessed.nanoseconds == 0 && attributes.modified.nanoseconds == 0;
    let verifier_in_times = is_exclusive && is_repeated && is_whole;
    Ok(Created { handle, attributes, directory: unchanged(&directory), is_new, verifier_in_times })
}

fn is_same_object(found: &Attributes, what: &Create) -> bool {
    match (what, found.kind) {
        // UNCHECKED sets a missing size.
        (Create::File(_), FileKind::Regular) => found.size == 0,
        (Create::CharDevice(device), FileKind::CharDevice)
        | (Create::BlockDevice(device), FileKind::BlockDevice) => found.device == *device,
        (Create::Directory, FileKind::Directory)
        | (Create::Symlink(_), FileKind::Symlink)
        | (Create::Fifo, FileKind::Fifo)
        | (Create::Socket, FileKind::Socket) => true,
        _ => false,
    }
}

/// Returns the attributes that a backend sets after creating the name, and may not have set. Of the permission bits only these,
/// because a default ACL may have removed others.
///
/// The verifier of an exclusive creation is not written late: only a repetition could request it, which is in the log.
fn missing(found: &Attributes, what: &Create, set: &SetAttributes) -> SetAttributes {
    let (default, extra) = match what {
        Create::File(CreateMode::Exclusive(_)) => (0, WHILE_UNVERIFIED),
        _ => (found.mode, 0),
    };
    let wanted = set.mode.unwrap_or(default);
    let mode = found.mode & !(extra & (!wanted | set.umask.unwrap_or(0))) | wanted & SET_IDS;
    SetAttributes {
        mode: Some(mode).filter(|mode| *mode != found.mode && found.kind != FileKind::Symlink),
        umask: None,
        uid: set.uid.filter(|uid| *uid != found.uid),
        gid: set.gid.filter(|gid| *gid != found.gid),
        size: set.size.filter(|size| found.kind == FileKind::Regular && *size != found.size),
        accessed: set.accessed.filter(|time| *time != SetTime::Now && *time != SetTime::To(found.accessed)),
        modified: set.modified.filter(|time| *time != SetTime::Now && *time != SetTime::To(found.modified)),
    }
}

/// Returns the rename that was executed: the old name is missing, the new one exists, and both directories have changed since.
async fn own_rename(
    export: &Export,
    context: &Context,
    from: (&Handle, &[u8]),
    to: (&Handle, &[u8]),
    window: Window,
) -> Option<Renamed> {
    let backend = &export.backend;
    let found = backend.lookup(context, to.0, to.1).await.ok()?;
    let left = backend.getattr(context, from.0).await.ok()?;
    // Linux's file systems count a rename among the changes of the renamed object.
    let changed = [left.changed, found.attributes.changed, found.directory.changed];
    let is_done = changed.into_iter().all(|time| window.is_reached(time));
    is_done.then(|| Renamed { from: unchanged(&left), to: unchanged(&found.directory) })
}

/// Returns whether attributes are equal to those after a SETATTR.
fn is_as_set(found: &Attributes, set: &SetAttributes) -> bool {
    let is_time = |wanted: Option<SetTime>, found| match wanted {
        Some(SetTime::To(time) | SetTime::Kept(time)) => time == found,
        Some(SetTime::Now) | None => true,
    };
    let set = set.for_kind(found.kind);
    set.mode.is_none_or(|mode| mode == found.mode)
        && set.uid.is_none_or(|uid| uid == found.uid)
        && set.gid.is_none_or(|gid| gid == found.gid)
        && set.size.is_none_or(|size| size == found.size)
        && is_time(set.accessed, found.accessed)
        && is_time(set.modified, found.modified)
}

/// Returns the attributes around a change by an earlier process: only the present ones are known.
pub(super) fn unchanged(now: &Attributes) -> Change {
    Change { before: now.before(), after: *now, atomic: false }
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    const SECOND_NS: i64 = 1_000_000_000;
    let nanoseconds = i64::from(time.nanoseconds) - i64::from(by.subsec_nanos());
    let seconds = time.seconds.saturating_sub_unsigned(by.as_secs());
    Timestamp {
        seconds: seconds.saturating_add(nanoseconds.div_euclid(SECOND_NS)),
        nanoseconds: nanoseconds.rem_euclid(SECOND_NS) as u32,
    }
}
