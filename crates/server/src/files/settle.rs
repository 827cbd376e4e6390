//! Operations that conflict with what others have delegated wait here until it is back.
//!
//! RFC 8881 §10.4.4 lets a server answer DELAY at once; the paper of 2015 (§5.3) lost a hundred seconds to a thousand files
//! because the client then sleeps, however soon the delegation is back. So the operation waits in the server, its future
//! pending like one that waits for the disk, and is answered DELAY (JUKEBOX in version 3) only when that takes too long.
//!
//! An operation that changes a file announces that first ([`changing`]), so that nothing is delegated until it is done. Where
//! nothing is delegated at all, all of this is two additions and a look at a counter.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::types::{Bitmap, Stateid, Status};
use vfs::{Authority, Context, Credentials, Error, Found, Handle, SetAttributes, SetTime, Thread};

use super::object::{File, Object};
use crate::files::rights::Right;
use crate::programs::nfs4::attributes;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result as OpResult;
use crate::replay::crash_replay::Directory;
use crate::request::Request;
use crate::shared::Shared;
use crate::state::{Against, Changing, Client, FileKey, Held, Inquiry, IoKind, IoPermit, State, Waiter};
use crate::{Export, Transport};

/// Operations of one connection that wait for delegations at most. Fewer than calls may wait there, so that what brings the
/// delegations back (DELEGRETURN, or the answer to a recall, perhaps over this very connection) is always read.
const WAITING_MAX: u32 = 48;

/// An operation's waiter, taken back when it waits no more, be it because the call was dropped.
struct Waiting<'s> {
    state: &'s State,
    file: FileKey,
    waiter: Arc<Waiter>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.state.forget_waiter(self.file, &self.waiter);
    }
}

/// Announces a change of a file; see [`State::changing`].
pub(crate) fn changing<'s>(request: &Request<'s>, handle: &Handle) -> Changing<'s> {
    request.server.state.changing(handle)
}

/// Recalls what others than `who` hold against an operation on an object, and waits until it is back. Nobody is asked for
/// anything where the caller, whom `context` names, has not the right that the operation needs.
///
/// # Errors
/// [`Error::Later`] where that takes too long, or too many of the connection's operations wait; the operation's own error where
/// the caller may not do it, which is looked at only where something is in its way.
pub(crate) async fn settle(
    request: &Request<'_>,
    who: Option<&Client>,
    object: (&Export, &Handle),
    against: Against,
    need: (&Context, Right<'_>),
) -> Result<(), Error> {
    if request.server.state.has_delegations(against) {
        // Boxed: the futures of READ and WRITE stay small.
        Box::pin(wait(request, who, object, against, need)).await?;
    }
    if against.is_by_change() {
        settle_taken(request).await;
    }
    Ok(())
}

/// Waits until it is stable what was taken away from clients, which is seldom anything. A change that somebody makes because of
/// that could otherwise outlive a crash by which the taking is forgotten, and whoever had kept the change away would reclaim what had
/// kept it away (RFC 8881 §8.4.3).
pub(crate) async fn settle_taken(request: &Request<'_>) {
    request.server.settle_taken(request.thread()).await;
}

impl Shared {
    /// As the function of that name; `thread` is what the calling thread may be used for.
    pub(crate) async fn settle_taken(&self, thread: Thread) {
        if let Some(change) = self.state.unsettled(None) {
            // It never fails: see [`StateLog`](crate::StateLog).
            let _ = self.state.settled(change, thread).await;
        }
    }
}

/// As [`settle`], behind a change that was made already and cannot be told to come again: whoever stands against it loses
/// what it does not give back. That may take longer than the lease of a client of version 4.0, which no operation that waits renews:
/// its RENEWs come meanwhile, and what it holds stays its own until somebody else wants it.
///
/// # Errors
/// [`Error::Later`] where too many of the connection's operations wait.
pub(crate) async fn settle_behind(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
    against: Against,
) -> Result<(), Error> {
    let file = File::new(export, *handle).key(request.server);
    let deadline = request.server.state.revoked_by(request.now.monotonic);
    Box::pin(wait_until(deadline, request, who, file, against)).await
}

/// What a name leads to, announced.
pub(crate) enum Named<'s> {
    /// Nothing was ever delegated, and nothing will be while this lives: it was not looked at.
    Unseen { _changing: Changing<'s> },
    /// This, of which nothing is delegated while this lives.
    Found { found: Box<Found>, _changing: Changing<'s> },
    /// Nothing, as far as the caller may see ([`is_absent`]): the operation itself finds out what is wrong.
    Absent,
}

impl Named<'_> {
    /// Whether the operation has something to work on, as far as was seen.
    pub(crate) fn may_be_there(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Whether anybody but `who` has delegated what was found.
    pub(crate) fn is_held(&self, request: &Request<'_>, who: Option<&Client>, export: &Export) -> bool {
        let Self::Found { found, .. } = self else { return false };
        let state = &request.server.state;
        let key = || File::new(export, found.handle).key(request.server);
        state.has_delegations(Against::All) && state.is_held_against(who, key(), Against::All)
    }

    /// Settles against the change that was announced.
    ///
    /// # Errors
    /// As [`settle`](fn@settle).
    pub(crate) async fn settle(
        &self,
        request: &Request<'_>,
        who: Option<&Client>,
        place: Directory<'_>,
    ) -> Result<(), Error> {
        let Self::Found { found, .. } = self else { return Ok(()) };
        let need = (place.context, self.right(place.directory));
        settle(request, who, (place.export, &found.handle), Against::All, need).await
    }

    /// What the caller needs to take the name out of its directory, or to put another in its place.
    pub(crate) fn right<'a>(&'a self, directory: &'a Handle) -> Right<'a> {
        match self {
            Self::Found { found, .. } => Right::Removal(directory, &found.attributes),
            Self::Unseen { .. } | Self::Absent => Right::Entries(directory),
        }
    }
}

/// Announces a change of what has this name in a directory, if anything has, by which it goes from there. What is returned is to be
/// kept until the change is made.
///
/// # Errors
/// Why it cannot be known whether anything has the name.
pub(crate) async fn announce_name<'s>(
    request: &Request<'s>,
    place: Directory<'_>,
    name: &[u8],
) -> Result<Named<'s>, Error> {
    match request.server.state.changing_unnamed() {
        Some(_changing) => Ok(Named::Unseen { _changing }),
        None => Box::pin(find(request, place, name)).await,
    }
}

async fn find<'s>(request: &Request<'s>, place: Directory<'_>, name: &[u8]) -> Result<Named<'s>, Error> {
    match place.export.backend.lookup(place.context, place.directory, name).await {
        Ok(found) => Ok(Named::Found { _changing: changing(request, &found.handle), found: Box::new(found) }),
        Err(error) if is_absent(error) => Ok(Named::Absent),
        Err(error) => Err(error),
    }
}

/// Whether a look that fails so says that nothing is there that could be delegated, or that the operation will fail the same way. A
/// look that failed for want of memory, descriptors or a working disk says nothing.
pub(crate) fn is_absent(error: Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::NotDirectory
            | Error::Access
            | Error::NotPermitted
            | Error::BadName
            | Error::NameTooLong
            | Error::Stale
            | Error::BadHandle
            // What is mounted there is nobody's to reach from here.
            | Error::CrossDevice
    )
}

async fn wait(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
    against: Against,
    (context, right): (&Context, Right<'_>),
) -> Result<(), Error> {
    let (state, now) = (&request.server.state, request.now.monotonic);
    let file = File::new(export, *handle).key(request.server);
    if !state.is_held_against(who, file, against) {
        return Ok(());
    }
    right.check(export, context, handle).await?;
    wait_until(state.wait_until(now), request, who, file, against).await
}

/// Recalls what others than `who` hold, and waits until it is back.
async fn wait_until(
    deadline: Duration,
    request: &Request<'_>,
    who: Option<&Client>,
    file: FileKey,
    against: Against,
) -> Result<(), Error> {
    let (state, now) = (&request.server.state, request.now.monotonic);
    loop {
        let Some(waiter) = state.clash(now, deadline, who, file, against) else { return Ok(()) };
        if !sit(request, file, waiter).await {
            return Err(Error::Later);
        }
    }
}

/// As [`settle`], for what goes on without a call, and takes nobody's place in a waiting room.
///
/// # Errors
/// DELAY where that takes too long.
pub(crate) async fn settle_in_background(
    (server, now): (&Shared, Duration),
    who: &Client,
    file: FileKey,
    against: Against,
) -> Result<(), Status> {
    let state = &server.state;
    let deadline = state.wait_until(now);
    while state.has_delegations(against)
        && let Some(waiter) = state.clash(now, deadline, Some(who), file, against)
    {
        let waiting = Waiting { state, file, waiter };
        if !(&*waiting.waiter).await {
            return Err(Status::DELAY);
        }
    }
    if against.is_by_change() {
        server.settle_taken(Thread::Shared).await;
    }
    Ok(())
}

/// Waits; false where that took too long, or there is no room for one more.
async fn sit(request: &Request<'_>, file: FileKey, waiter: Arc<Waiter>) -> bool {
    let waiting = Waiting { state: &request.server.state, file, waiter };
    // A datagram's sender asks again by itself, and would then wait twice.
    let is_stream = request.connection.transport == Transport::Tcp;
    let permit = is_stream.then(|| request.connection.recall_waits.enter(WAITING_MAX)).flatten();
    permit.is_some() && (&*waiting.waiter).await
}

/// Before attributes of a file are told to others than `who`: asks whoever has it delegated for writing. Gives what differs from
/// what is here; other attributes are then as of now, when [`Backend::getattr`](vfs::Backend::getattr) is
/// asked, and [`State::put_over`] puts both together.
///
/// # Errors
/// As [`settle`]: a holder that does not answer loses its delegation first.
pub(crate) async fn ask_holder(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
) -> Result<Option<Held>, Error> {
    if !request.server.state.has_delegations(Against::Writers) {
        return Ok(None);
    }
    Box::pin(ask(request, who, (export, handle))).await
}

async fn ask(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
) -> Result<Option<Held>, Error> {
    let (state, now) = (&request.server.state, request.now);
    let file = File::new(export, *handle).key(request.server);
    let deadline = state.answer_until(now.monotonic);
    let mut number = None;
    loop {
        let waiter = match state.inquire(now, deadline, who, file, number) {
            Inquiry::Nobody => return Ok(None),
            Inquiry::Told(held) => {
                if held.is_news {
                    // Nobody comes to have it delegated as it was before. And who has given it back just now has set its times.
                    let _changing = changing(request, handle);
                    // Where it cannot be done, the size still says that something has changed.
                    if state.still_holds(&held) && touch(request, (export, handle)).await.is_ok() {
                        state.touched(&held);
                    }
                }
                return Ok(Some(held));
            }
            Inquiry::Refused => break,
            Inquiry::Asked(asked, waiter) => {
                number = Some(asked);
                waiter
            }
        };
        if !sit(request, file, waiter).await {
            break;
        }
    }
    let context = request.context(export);
    // Attributes are told to everybody.
    wait(request, who, (export, handle), Against::Writers, (&context, Right::Given)).await.map(|()| None)
}

/// Lets the file's times and its change attribute move on, as the holder's changes do. RFC 8881 §10.4.3 has the server
/// make up a change attribute that no later state of the file may have; as Linux's server does, the file itself gets the next one.
async fn touch(request: &Request<'_>, (export, handle): (&Export, &Handle)) -> Result<(), Error> {
    let set = SetAttributes { modified: Some(SetTime::Now), ..SetAttributes::default() };
    let root = Context::new(Arc::new(Credentials::root()), request.now.wall);
    let context = Context { peer: request.peer(), ..root };
    export.backend.setattr(&context, handle, &set, None, Authority::Opened).await.map(|_| ())
}

/// For the operations of version 4.
impl<'r> Compound<'r> {
    /// Waits until others' delegations of `file` that stand against an operation are back, for which the caller needs `right`.
    pub(crate) async fn settle(&self, file: &File<'_>, against: Against, right: Right<'_>) -> OpResult {
        if !self.state().has_delegations(against) {
            if against.is_by_change() {
                settle_taken(self.request).await;
            }
            return Ok(());
        }
        let context = self.context(file.export);
        let object = (file.export, &file.handle);
        Ok(settle(self.request, self.who(), object, against, (&context, right)).await?)
    }

    /// Whether I/O on `file` may go ahead by `given`, once it waits for nobody's delegation any more.
    ///
    /// Judged before the wait, so that nobody is asked for what the caller may not have; and behind it, because whoever gives a delegation
    /// back first opens what it had opened by itself, and may deny others what this is: RFC 8881 §8.2.3, where "an existing open denies the
    /// form of access requested, then access will be denied to the request."
    pub(crate) async fn admit_io(&self, file: &File<'_>, given: Stateid, kind: IoKind) -> OpResult<IoPermit> {
        let permit = self.check_io(file, given, kind)?;
        let may_wait = given.is_special() && self.state().has_delegations(Against::io(kind));
        self.settle_io(file, given, kind).await?;
        if may_wait { self.check_io(file, given, kind) } else { Ok(permit) }
    }

    /// As [`Self::settle`], for I/O by a stateid. RFC 8881 §10.4.4: a "READ or WRITE operation done with a special stateid"
    /// recalls; an open has done so before.
    async fn settle_io(&self, file: &File<'_>, by: Stateid, kind: IoKind) -> OpResult {
        if !by.is_special() {
            if kind == IoKind::Write {
                settle_taken(self.request).await;
            }
            return Ok(());
        }
        self.settle(file, Against::io(kind), Right::Content(kind)).await
    }

    /// Before attributes of `object` are told that the holder of a write delegation knows better: asks it. Gives what is not as
    /// it is here.
    pub(crate) async fn ask_holder(&mut self, object: &Object<'_>, mask: Bitmap) -> OpResult<Option<Held>> {
        let Object::File(file) = object else { return Ok(None) };
        if !self.may_have_holder(mask) {
            return Ok(None);
        }
        let client = self.who();
        let held = ask_holder(self.request, client, (file.export, &file.handle)).await?;
        // It may have waited, and what an operation before saw is then from before the holder's last writes.
        self.forget_fresh();
        Ok(held)
    }

    /// Whether somebody may know better what these attributes are.
    pub(crate) fn may_have_holder(&self, mask: Bitmap) -> bool {
        self.state().has_delegations(Against::Writers) && attributes::may_be_held(mask)
    }

    /// Announces a change of `file`: nothing is delegated until the guard is dropped.
    pub(crate) fn changing(&self, file: &File<'_>) -> Changing<'r> {
        self.request.server.state.changing(&file.handle)
    }
}
