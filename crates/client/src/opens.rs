//! Open files of the client, with the information to reclaim them after a restart of the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::lock::{Mutex as TurnMutex, MutexGuard};
use parking_lot::Mutex;
use protocol::nfs4::types::{Component, Handle, Stateid, Status};

use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over;
use crate::owner::Owner;

/// The access of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMode {
    /// Whether it is read.
    pub read: bool,
    /// Whether it is written.
    pub write: bool,
}

impl OpenMode {
    /// For reading.
    pub const READ: Self = Self { read: true, write: false };
    /// For writing.
    pub const WRITE: Self = Self { read: false, write: true };
    /// For both.
    pub const BOTH: Self = Self { read: true, write: true };
}

/// An open file. Its stateid changes when it is reclaimed.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The number of its open-owner, which no other open has.
    pub(crate) owner: u32,
    pub(crate) handle: Handle,
    pub(crate) mode: OpenMode,
    pub(crate) caller: Caller,
    is_v40: bool,
    /// The directory and the name by which it was opened, if it was. Renaming by this client changes them.
    location: Mutex<Option<(Handle, Component)>>,
    state: Mutex<State>,
    /// The open-owner. Each open has its own, so that opens of one file are closed one by one, and opens are not
    /// serialized. The lock is held during a request with the owner's seqid, and while the file is reopened, so that this
    /// happens once.
    turn: TurnMutex<Owner>,
    /// Whether bytes were ever locked through it.
    has_been_locked: AtomicBool,
    /// Number of lock owners whose locks through it the server dropped.
    lost_locks: AtomicUsize,
    /// Whether it was closed, or is no longer open at the server.
    is_closed: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct State {
    stateid: Stateid,
    /// The reason why the state is lost permanently.
    lost: Option<Status>,
    /// Whether the server does not know the open: the stateid is that of a delegation.
    is_local: bool,
}

impl OpenFile {
    /// Returns the stateid for I/O: with a seqid of zero the server takes the current one (RFC 8881 §8.2.2), which version 4.0
    /// does not have.
    ///
    /// # Errors
    /// The reason why the state was lost.
    pub(crate) fn io_stateid(&self) -> Result<Stateid, Status> {
        self.stateid().map(|stateid| match self.is_v40 {
            true => stateid,
            false => Stateid { seqid: 0, ..stateid },
        })
    }

    /// Returns the stateid as the server gave it.
    ///
    /// # Errors
    /// Why the state was lost, if it could not be reclaimed.
    pub(crate) fn stateid(&self) -> Result<Stateid, Status> {
        let state = *self.state.lock();
        state.lost.map_or(Ok(state.stateid), Err)
    }

    /// Locks the file's open-owner to send a request. Do not wait for a session meanwhile: the task that makes
    /// sessions takes the same lock.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, Owner> {
        self.turn.lock().await
    }

    /// Returns the directory and the name by which the file was opened, if it was.
    pub(crate) fn location(&self) -> Option<(Handle, Component)> {
        self.location.lock().clone()
    }

    /// Takes the stateid of a reclaimed open.
    pub(crate) fn reclaimed(&self, stateid: Stateid) {
        *self.state.lock() = State { stateid, lost: None, is_local: false };
    }

    /// Returns whether the server does not know the open, because it was made under a delegation.
    pub(crate) fn is_local(&self) -> bool {
        self.state.lock().is_local
    }

    /// Takes the stateid of the delegation under which it is local.
    pub(crate) fn delegated(&self, stateid: Stateid) {
        *self.state.lock() = State { stateid, lost: None, is_local: true };
    }

    /// Notes that bytes are locked through this open.
    pub(crate) fn note_locked(&self) {
        self.has_been_locked.store(true, Ordering::Relaxed);
    }

    /// Returns whether only a READ or WRITE with its stateid shows that a lock through this open is lost. Later versions have
    /// SEQUENCE in each compound (RFC 7530 §9.5, RFC 8881 §8.3).
    pub(crate) fn hides_lost_locks(&self) -> bool {
        self.is_v40 && self.has_been_locked()
    }

    /// Returns whether requests for the open have a seqid: in version 4.0.
    pub(crate) fn has_seqids(&self) -> bool {
        self.is_v40
    }

    /// Returns whether bytes were ever locked through this open.
    pub(crate) fn has_been_locked(&self) -> bool {
        self.has_been_locked.load(Ordering::Relaxed)
    }

    /// Notes that a lock owner has lost locks, or has unlocked them.
    pub(crate) fn note_lost_lock(&self, is_lost: bool) {
        if is_lost {
            self.lost_locks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lost_locks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the server has dropped a lock through this open that its owner has not unlocked since.
    pub(crate) fn has_lost_lock(&self) -> bool {
        self.lost_locks.load(Ordering::Relaxed) > 0
    }

    /// Notes that the file is closed. The caller has the [`Self::turn`], so that no recovery that still has the file in its list opens
    /// it again.
    pub(crate) fn note_closed(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the file was closed. Check it during a [`Self::turn`].
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Notes that the open is lost permanently.
    pub(crate) fn lose(&self, status: Status) {
        self.state.lock().lost = Some(status);
    }
}

/// All open files of the client, and their owners.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    /// Whether this is version 4.0, in which owners have seqids.
    is_v40: bool,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<u32, Arc<OpenFile>>,
    /// Numbers of opens for writing by file.
    writers: HashMap<Handle, usize>,
    /// Owners that were used and are free again, by number; the server keeps few owners this way.
    free: BTreeMap<u32, Owner>,
    next: u32,
}

impl Table {
    fn next_number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }
}

/// The arguments of an open.
#[derive(Debug)]
pub(crate) struct NewOpen {
    pub(crate) handle: Handle,
    /// Its directory and name, if it is opened by them.
    pub(crate) location: Option<(Handle, Component)>,
    pub(crate) mode: OpenMode,
    pub(crate) stateid: Stateid,
    /// Whether the server does not know the open: the stateid is that of a delegation.
    pub(crate) is_local: bool,
}

impl OpenFiles {
    /// Creates a table without open files.
    pub(crate) fn new(is_v40: bool) -> Self {
        Self { is_v40, table: Mutex::default() }
    }

    /// Returns an owner for another open. It must be returned by [`Self::free_owner`].
    pub(crate) fn take_owner(&self) -> Owner {
        let mut table = self.table.lock();
        match table.free.pop_first() {
            Some((_, owner)) => owner,
            None => Owner::new(table.next_number(), self.is_v40),
        }
    }

    /// Replaces an owner whose seqid is not known by another.
    pub(crate) fn replace_owner(&self, owner: &mut Owner) {
        *owner = Owner::new(self.table.lock().next_number(), self.is_v40);
    }

    /// Frees an owner whose OPEN failed or whose file is closed. One whose seqid is unknown is never reused.
    pub(crate) fn free_owner(&self, owner: Owner) {
        if owner.is_known() {
            self.table.lock().free.insert(owner.number(), owner);
        }
    }

    /// Notes a file that is open for the owner.
    pub(crate) fn add(&self, owner: Owner, caller: &Caller, new: NewOpen) -> Arc<OpenFile> {
        let NewOpen { handle, location, mode, stateid, is_local } = new;
        // The file's number is kept, even if its owner is replaced: no other owner gets this number meanwhile.
        let number = owner.number();
        let file = Arc::new(OpenFile {
            owner: number,
            handle,
            mode,
            caller: caller.clone(),
            is_v40: self.is_v40,
            location: Mutex::new(location),
            state: Mutex::new(State { stateid, lost: None, is_local }),
            turn: TurnMutex::new(owner),
            has_been_locked: AtomicBool::new(false),
            lost_locks: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        });
        let mut table = self.table.lock();
        table.open.insert(number, Arc::clone(&file));
        if mode.write {
            *table.writers.entry(handle).or_default() += 1;
        }
        drop(table);
        file
    }

    /// Forgets a file that is closed, and frees its owner.
    pub(crate) fn remove(&self, file: &OpenFile) {
        {
            let mut table = self.table.lock();
            let is_writer = table.open.remove(&file.owner).is_some() && file.mode.write;
            if is_writer && let Some(count) = table.writers.get_mut(&file.handle) {
                *count -= 1;
                if *count == 0 {
                    table.writers.remove(&file.handle);
                }
            }
        }
        // Only a recovery that began before the CLOSE can hold the lock; its owner is then not reused.
        if let Some(mut owner) = file.turn.try_lock() {
            let closed = std::mem::replace(&mut *owner, Owner::unknown());
            self.free_owner(closed);
        }
    }

    /// Notes that a name was changed.
    pub(crate) fn renamed(&self, from: (&Handle, &Component), to: (&Handle, &Component)) {
        for file in self.table.lock().open.values() {
            let mut location = file.location.lock();
            if location.as_ref().is_some_and(|(directory, name)| (directory, name) == from) {
                *location = Some((*to.0, to.1.clone()));
            }
        }
    }

    /// Returns whether a file is open for writing.
    pub(crate) fn has_writer(&self, handle: &Handle) -> bool {
        self.table.lock().writers.contains_key(handle)
    }

    /// Returns all open files, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.table.lock().open.values().cloned().collect()
    }
}

/// For another process that continues the client.
impl OpenFiles {
    /// Returns all opens, and the last number of an owner.
    ///
    /// # Errors
    /// An open is under a delegation, or its owner has a request under way.
    pub(crate) fn save(&self) -> Result<(Vec<hand_over::OpenState>, u32), OpError> {
        let last = self.table.lock().next;
        let opens = self.all().iter().map(|file| file.save()).collect::<Result<_, _>>()?;
        Ok((opens, last))
    }

    /// Takes the opens of another process.
    ///
    /// # Errors
    /// A value is too long.
    pub(crate) fn restore(&self, opens: Vec<hand_over::OpenState>, last: u32) -> Result<(), OpError> {
        self.table.lock().next = last;
        for saved in opens {
            let file = Arc::new(OpenFile::restored(saved, self.is_v40)?);
            let mut table = self.table.lock();
            table.open.insert(file.owner, Arc::clone(&file));
            if file.mode.write {
                *table.writers.entry(file.handle).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Returns the open with this number.
    pub(crate) fn find(&self, number: u32) -> Option<Arc<OpenFile>> {
        self.table.lock().open.get(&number).map(Arc::clone)
    }
}

const TOO_LONG: OpError = OpError::Invalid(Errno::EINVAL, "a name or a file handle that is too long");

impl OpenFile {
    fn save(&self) -> Result<hand_over::OpenState, OpError> {
        let busy = |why| OpError::Invalid(Errno::EBUSY, why);
        let owner = self.turn.try_lock().ok_or(busy("an open has a request under way"))?;
        let state = *self.state.lock();
        if state.is_local {
            return Err(busy("an open is under a delegation"));
        }
        if !owner.is_known() {
            return Err(busy("the outcome of a request for an open is unknown"));
        }
        let location = self.location().map(|(directory, name)| hand_over::Location {
            directory: directory.to_vec(),
            name: name.to_vec(),
        });
        Ok(hand_over::OpenState {
            number: self.owner,
            owner: owner.number(),
            seqid: owner.seqid.next(),
            handle: self.handle.to_vec(),
            location,
            read: self.mode.read,
            write: self.mode.write,
            caller: self.caller.state(),
            stateid: saved_stateid(state.stateid),
            lost: state.lost.map(|status| status.0),
            has_been_locked: self.has_been_locked(),
        })
    }

    fn restored(saved: hand_over::OpenState, is_v40: bool) -> Result<Self, OpError> {
        let handle = |bytes: &[u8]| Handle::new(bytes).map_err(|_| TOO_LONG);
        let location = match saved.location {
            Some(hand_over::Location { directory, name }) => {
                Some((handle(&directory)?, Component::new(name).map_err(|_| TOO_LONG)?))
            }
            None => None,
        };
        let stateid = restored_stateid(saved.stateid);
        let state = State { stateid, lost: saved.lost.map(Status), is_local: false };
        Ok(Self {
            owner: saved.number,
            handle: handle(&saved.handle)?,
            mode: OpenMode { read: saved.read, write: saved.write },
            caller: Caller::from_state(saved.caller)?,
            is_v40,
            location: Mutex::new(location),
            state: Mutex::new(state),
            turn: TurnMutex::new(Owner::from_parts(saved.owner, saved.seqid)),
            has_been_locked: AtomicBool::new(saved.has_been_locked),
            lost_locks: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        })
    }
}

/// Returns a stateid as plain values.
pub(crate) fn saved_stateid(Stateid { seqid, other }: Stateid) -> hand_over::StateidState {
    hand_over::StateidState { seqid, other }
}

/// Returns the stateid of plain values.
pub(crate) fn restored_stateid(hand_over::StateidState { seqid, other }: hand_over::StateidState) -> Stateid {
    Stateid { seqid, other }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATEID: Stateid = Stateid { seqid: 3, other: [1; 12] };

    fn open(files: &OpenFiles) -> Arc<OpenFile> {
        let new = NewOpen {
            handle: Handle::default(),
            location: Some((Handle::default(), Component::from_static(b"old"))),
            mode: OpenMode::READ,
            stateid: STATEID,
            is_local: false,
        };
        files.add(files.take_owner(), &Caller::anonymous(), new)
    }

    #[test]
    fn owners_are_reused_and_a_lost_open_reports_the_reason() {
        let files = OpenFiles::new(false);
        let (first, second) = (open(&files), open(&files));
        assert_ne!(first.owner, second.owner);
        assert_eq!(first.io_stateid(), Ok(Stateid { seqid: 0, ..STATEID }));
        first.lose(Status::EXPIRED);
        assert_eq!((first.io_stateid(), files.all().len()), (Err(Status::EXPIRED), 2));
        first.reclaimed(Stateid { seqid: 1, other: [2; 12] });
        assert_eq!(first.stateid(), Ok(Stateid { seqid: 1, other: [2; 12] }));
        assert!(!files.has_writer(&first.handle));
        files.remove(&first);
        assert_eq!((files.take_owner().number(), files.all().len()), (first.owner, 1));
    }

    #[test]
    fn another_process_continues_opens_with_their_owners() {
        let files = OpenFiles::new(true);
        let (first, second) = (open(&files), open(&files));
        second.lose(Status::EXPIRED);
        let mut owner = first.turn.try_lock().unwrap();
        let sent = owner.seqid.start_request();
        assert!(files.save().is_err(), "a request is under way");
        owner.seqid.end_request(sent, Some(Status::OK));
        let next = owner.seqid.next();
        drop(owner);
        let (saved, last) = files.save().unwrap();
        let other = OpenFiles::new(true);
        other.restore(saved.clone(), last).unwrap();
        assert_eq!(other.save().unwrap(), (saved, last));
        let again = other.find(first.owner).unwrap();
        assert_eq!((again.stateid(), again.turn.try_lock().unwrap().seqid.next()), (Ok(STATEID), next));
        assert_eq!(other.find(second.owner).unwrap().stateid(), Err(Status::EXPIRED));
        assert!(other.take_owner().number() > second.owner, "no number is used twice");
        first.delegated(STATEID);
        assert!(files.save().is_err(), "the server does not know it");
    }

    #[test]
    fn a_seqid_continues_with_the_next_file_of_its_owner() {
        let files = OpenFiles::new(true);
        let mut owner = files.take_owner();
        let sent = owner.seqid.start_request();
        owner.seqid.end_request(sent, Some(Status::OK));
        let (number, next) = (owner.number(), owner.clone().seqid.start_request());
        files.free_owner(owner);
        let mut again = files.take_owner();
        assert_eq!((again.number(), again.seqid.start_request()), (number, next));
        // Its outcome is unknown.
        files.free_owner(again);
        assert_ne!(files.take_owner().number(), number);
    }

    #[test]
    fn a_renamed_file_is_known_by_its_new_name() {
        let files = OpenFiles::new(true);
        let file = open(&files);
        let (root, other) = (Handle::default(), Handle::new(b"other").unwrap());
        let name = |name| Component::from_static(name);
        files.renamed((&other, &name(b"old")), (&root, &name(b"wrong")));
        files.renamed((&root, &name(b"old")), (&other, &name(b"new")));
        assert_eq!(file.io_stateid(), Ok(STATEID), "zero has no meaning in 4.0");
        assert_eq!(file.location(), Some((other, name(b"new"))));
    }
}
