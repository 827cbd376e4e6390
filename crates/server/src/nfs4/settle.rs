//! Operations that conflict with what others have delegated wait here until it is back.
//!
//! RFC 8881 §10.4.4 lets a server answer DELAY at once; the paper of 2015 (§5.3) lost a hundred seconds to a thousand files
//! because the client then sleeps, however soon the delegation is back. So the operation waits in the server, its future
//! pending like one that waits for the disk, and is answered DELAY (JUKEBOX in version 3) only when that takes too long.
//!
//! An operation that changes a file announces that first ([`changing`]), so that nothing is delegated until it is done. Where
//! nothing is delegated at all, all of this is two additions and a look at a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use protocol::nfs4::types::{Bitmap, Stateid, Status};
use vfs::{Authority, Context, Credentials, Handle, SetAttributes, SetTime};

use super::attributes;
use super::compound::Compound;
use super::object::{File, Object};
use super::state::{Against, Changing, Client, FileKey, Inquiry, IoKind, State, Waiter};
use super::status::Result as OpResult;
use crate::request::Request;
use crate::{Export, Server, Transport};

/// Operations of one connection that wait for delegations at most. Fewer than calls may wait there, so that what brings the
/// delegations back (DELEGRETURN, or the answer to a recall, perhaps over this very connection) is always read.
const WAITING_MAX: u32 = 48;

/// Operations of a connection that wait for delegations.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom(AtomicU32);

/// A place in a waiting room.
struct Seat<'r>(&'r WaitingRoom);

impl WaitingRoom {
    fn enter(&self) -> Option<Seat<'_>> {
        let seat = Seat(self);
        (self.0.fetch_add(1, Relaxed) < WAITING_MAX).then_some(seat)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

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
    request.server.nfs4.changing(handle)
}

/// Recalls what others than `who` hold against an operation on a file, and waits until it is back.
///
/// # Errors
/// DELAY where that takes too long, or too many of the connection's operations wait.
pub(crate) async fn settle(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
    against: Against,
) -> Result<(), Status> {
    if !request.server.nfs4.has_delegations(against) {
        return Ok(());
    }
    // Boxed: the futures of READ and WRITE stay small.
    Box::pin(wait(request, who, (export, handle), against)).await
}

/// Announces a change of what has this name in a directory, if anything has, and settles against it. What is returned is to be
/// kept until the change is made: nothing is delegated meanwhile.
///
/// # Errors
/// As [`settle`].
pub(crate) async fn settle_name<'s>(
    request: &Request<'s>,
    who: Option<&Client>,
    context: &Context,
    (export, directory): (&Export, &Handle),
    name: &[u8],
) -> Result<Option<Changing<'s>>, Status> {
    if let Some(changing) = request.server.nfs4.changing_unnamed() {
        return Ok(Some(changing));
    }
    // Where there is none the operation itself finds out what is wrong.
    let Ok(found) = export.backend.lookup(context, directory, name).await else { return Ok(None) };
    let changing = changing(request, &found.handle);
    settle(request, who, (export, &found.handle), Against::All).await?;
    Ok(Some(changing))
}

async fn wait(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
    against: Against,
) -> Result<(), Status> {
    let (state, now) = (&request.server.nfs4, request.now.monotonic);
    let file = File { export, handle: *handle }.key(request.server);
    let deadline = state.wait_until(now);
    loop {
        let Some(waiter) = state.clash(now, deadline, who, file, against) else { return Ok(()) };
        if !sit(request, file, waiter).await {
            return Err(Status::DELAY);
        }
    }
}

/// As [`settle`], for what goes on without a call, and takes nobody's place in a waiting room.
///
/// # Errors
/// DELAY where that takes too long.
pub(crate) async fn settle_in_background(
    (server, now): (&Server, Duration),
    who: &Client,
    file: FileKey,
    against: Against,
) -> Result<(), Status> {
    let state = &server.nfs4;
    if !state.has_delegations(against) {
        return Ok(());
    }
    let deadline = state.wait_until(now);
    while let Some(waiter) = state.clash(now, deadline, Some(who), file, against) {
        let waiting = Waiting { state, file, waiter };
        if !(&*waiting.waiter).await {
            return Err(Status::DELAY);
        }
    }
    Ok(())
}

/// Waits; false where that took too long, or there is no room for one more.
async fn sit(request: &Request<'_>, file: FileKey, waiter: Arc<Waiter>) -> bool {
    let waiting = Waiting { state: &request.server.nfs4, file, waiter };
    // A datagram's sender asks again by itself, and would then wait twice.
    let is_stream = request.connection.transport == Transport::Tcp;
    let seat = is_stream.then(|| request.connection.waiting_room.enter()).flatten();
    seat.is_some() && (&*waiting.waiter).await
}

/// Before attributes of a file are told to others than `who`: asks whoever has it delegated for writing. Gives the size where
/// that differs from the one here; other attributes are then as of now, when [`Backend::getattr`](vfs::Backend::getattr) is
/// asked.
///
/// # Errors
/// As [`settle`]: a holder that does not answer loses its delegation first.
pub(crate) async fn ask_holder(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
) -> Result<Option<u64>, Status> {
    if !request.server.nfs4.has_delegations(Against::Writers) {
        return Ok(None);
    }
    Box::pin(ask(request, who, (export, handle))).await
}

async fn ask(
    request: &Request<'_>,
    who: Option<&Client>,
    (export, handle): (&Export, &Handle),
) -> Result<Option<u64>, Status> {
    let (state, now) = (&request.server.nfs4, request.now.monotonic);
    let file = File { export, handle: *handle }.key(request.server);
    let deadline = state.answer_until(now);
    let mut number = None;
    loop {
        let waiter = match state.inquire(now, deadline, who, file, number) {
            Inquiry::Nobody => return Ok(None),
            Inquiry::Told(told) if !told.is_modified => return Ok(None),
            Inquiry::Told(told) => {
                touch(request, (export, handle)).await;
                return Ok(Some(told.size));
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
    wait(request, who, (export, handle), Against::Writers).await.map(|()| None)
}

/// Lets the file's times and its change attribute move on, as the holder's changes do. RFC 8881 §10.4.3 has the server
/// make up a change attribute that no later state of the file may have; as Linux's server does, the file itself gets the next one.
async fn touch(request: &Request<'_>, (export, handle): (&Export, &Handle)) {
    let set = SetAttributes { modified: Some(SetTime::Now), ..SetAttributes::default() };
    let context = Context { credentials: Arc::new(Credentials::root()), now: request.now.wall };
    // Where it cannot be done, the size still says that something has changed.
    let _ = export.backend.setattr(&context, handle, &set, None, Authority::Opened).await;
}

/// For the operations of version 4.
impl<'r> Compound<'r> {
    /// Waits until others' delegations of `file` that stand against an operation are back.
    pub(crate) async fn settle(&self, file: &File<'_>, against: Against) -> OpResult {
        let client = self.who();
        Ok(settle(self.request, client, (file.export, &file.handle), against).await?)
    }

    /// As [`Self::settle`], for I/O by a stateid. RFC 8881 §10.4.4: a "READ or WRITE operation done with a special stateid"
    /// recalls; an open has done so before.
    pub(crate) async fn settle_io(&self, file: &File<'_>, by: Stateid, kind: IoKind) -> OpResult {
        if !by.is_special() {
            return Ok(());
        }
        self.settle(file, if kind == IoKind::Read { Against::Writers } else { Against::All }).await
    }

    /// Before attributes of `object` are told that the holder of a write delegation knows better: asks it. Gives its size where
    /// that is not the one here.
    pub(crate) async fn ask_holder(&mut self, object: &Object<'_>, mask: Bitmap) -> OpResult<Option<u64>> {
        let Object::File(file) = object else { return Ok(None) };
        if !self.state().has_delegations(Against::Writers) || !attributes::may_be_held(mask) {
            return Ok(None);
        }
        let client = self.who();
        let size = ask_holder(self.request, client, (file.export, &file.handle)).await?;
        // It may have waited, and what an operation before saw is then from before the holder's last writes.
        self.forget_fresh();
        Ok(size)
    }

    /// Announces a change of `file`: nothing is delegated until the guard is dropped.
    pub(crate) fn changing(&self, file: &File<'_>) -> Changing<'r> {
        self.request.server.nfs4.changing(&file.handle)
    }
}
