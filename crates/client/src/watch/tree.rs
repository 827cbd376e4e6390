//! The known state of a watched tree, and its differences from what the server lists. No requests are sent here.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::event::{Change, Event, Seen};
use crate::attributes::{Attributes, FileKind};
use crate::results::{FileHandle, Object};

pub(super) type Name = Box<[u8]>;

/// An entry of a directory.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The object; `None` until it was looked up.
    pub(super) known: Option<Known>,
}

/// The object of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// The handle, in less memory than [`FileHandle`].
    handle: Box<[u8]>,
    pub(super) seen: Seen,
}

impl Known {
    fn new(object: &Object) -> Self {
        Self { handle: (*object.handle).into(), seen: Seen::of(&object.attributes) }
    }

    pub(super) fn handle(&self) -> FileHandle {
        FileHandle::new(&self.handle).unwrap_or_default()
    }

    fn is_same_object(&self, object: &Object) -> bool {
        *self.handle == *object.handle && self.seen.kind == object.attributes.kind
    }
}

/// A directory whose entries are watched.
#[derive(Debug)]
pub(super) struct Directory {
    /// Its directory and its name there; `None` for the root.
    pub(super) parent: Option<(FileHandle, Name)>,
    pub(super) entries: HashMap<Name, Entry>,
    /// Its attributes before the entries were listed.
    pub(super) listed: Option<Attributes>,
    /// Whether the server tells of changes.
    pub(super) is_notified: bool,
    /// When the server is asked again to tell of changes.
    pub(super) retry_at: Duration,
    pub(super) is_unreadable: bool,
}

/// An entry that is gone.
#[derive(Debug)]
struct Gone {
    directory: FileHandle,
    name: Name,
    known: Option<Known>,
}

/// The differences that were found together.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Events in their order, before those of `gone` and `new`.
    early: Vec<Event>,
    gone: Vec<Gone>,
    new: Vec<(FileHandle, Name)>,
    changed: Vec<(FileHandle, Name, Change)>,
    /// Directories to list.
    pub(super) queue: Vec<FileHandle>,
    listed: HashSet<FileHandle>,
}

impl Round {
    /// Adds a directory to list, once in a round.
    pub(super) fn list(&mut self, directory: FileHandle) {
        if self.listed.insert(directory) {
            self.queue.push(directory);
        }
    }
}

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: FileHandle,
    pub(super) directories: HashMap<FileHandle, Directory>,
    depth_max: usize,
    /// Number of entries.
    pub(super) entries: usize,
}

impl Tree {
    pub(super) fn new(root: FileHandle, depth_max: usize) -> Self {
        let mut tree = Self { root, directories: HashMap::new(), depth_max, entries: 0 };
        tree.directories.insert(root, Directory::new(None));
        tree
    }

    /// Returns the path of an entry.
    fn path(&self, directory: &FileHandle, name: &[u8]) -> Vec<u8> {
        let mut names: Vec<&[u8]> = vec![name];
        let mut next = self.directories.get(directory).and_then(|directory| directory.parent.as_ref());
        while let Some((above, name)) = next {
            names.push(name);
            next = self.directories.get(above).and_then(|directory| directory.parent.as_ref());
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Returns the path of a directory.
    pub(super) fn path_of(&self, directory: &FileHandle) -> Vec<u8> {
        match self.directories.get(directory).and_then(|directory| directory.parent.as_ref()) {
            Some((above, name)) => self.path(above, name),
            None => Vec::new(),
        }
    }

    fn depth(&self, directory: &FileHandle) -> usize {
        let path = self.path_of(directory);
        if path.is_empty() { 0 } else { path.split(|byte| *byte == b'/').count() }
    }

    /// Notes a directory in a directory: a new one is listed. One that is known elsewhere was probably moved: it is looked for there.
    fn found_directory(&mut self, handle: FileHandle, parent: FileHandle, name: &[u8], round: &mut Round) {
        if self.depth(&parent) + 1 > self.depth_max {
            return;
        }
        match self.directories.get(&handle) {
            Some(known) => {
                if let Some((elsewhere, known_name)) = known.parent.as_ref()
                    && (*elsewhere != parent || **known_name != *name)
                {
                    round.list(*elsewhere);
                }
            }
            None => {
                self.directories.insert(handle, Directory::new(Some((parent, name.into()))));
                round.list(handle);
            }
        }
    }

    /// Compares the entries of a directory with a listing.
    pub(super) fn compare(&mut self, handle: FileHandle, listing: &[(&[u8], Object)], round: &mut Round) {
        let Some(directory) = self.directories.get_mut(&handle) else { return };
        let mut old = std::mem::take(&mut directory.entries);
        let mut entries = HashMap::with_capacity(listing.len());
        self.entries -= old.len();
        let mut found = Vec::new();
        for (name, object) in listing {
            let known = Known::new(object);
            let is_directory = object.attributes.kind == FileKind::Directory;
            match old.remove(*name).map(|entry| entry.known) {
                Some(Some(before)) if before.is_same_object(object) => {
                    if let Some(change) = before.seen.changed(&known.seen, false) {
                        round.changed.push((handle, (*name).into(), change));
                    }
                }
                // It was reported as new before it could be looked up.
                Some(None) => {
                    if is_directory {
                        found.push((object.handle, *name));
                    }
                }
                before => {
                    if let Some(known) = before {
                        round.gone.push(Gone { directory: handle, name: (*name).into(), known });
                    }
                    round.new.push((handle, (*name).into()));
                    if is_directory {
                        found.push((object.handle, *name));
                    }
                }
            }
            entries.insert((*name).into(), Entry { known: Some(known) });
        }
        let gone = old.into_iter().map(|(name, entry)| Gone { directory: handle, name, known: entry.known });
        round.gone.extend(gone);
        self.entries += entries.len();
        if let Some(directory) = self.directories.get_mut(&handle) {
            directory.entries = entries;
        }
        for (object, name) in found {
            self.found_directory(object, handle, name, round);
        }
    }

    fn entry(&mut self, directory: &FileHandle, name: &[u8]) -> Option<&mut Entry> {
        self.directories.get_mut(directory)?.entries.get_mut(name)
    }

    fn insert(&mut self, directory: &FileHandle, name: &[u8], entry: Entry) {
        if let Some(directory) = self.directories.get_mut(directory)
            && directory.entries.insert(name.into(), entry).is_none()
        {
            self.entries += 1;
        }
    }

    fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Option<Entry> {
        let removed = self.directories.get_mut(directory)?.entries.remove(name)?;
        self.entries -= 1;
        Some(removed)
    }

    /// Applies a notification that an entry was added. The object must be looked up ([`Self::looked_up`]).
    pub(super) fn added(&mut self, directory: FileHandle, name: &[u8], round: &mut Round) {
        // One that is known was listed after it had been added, or was replaced: its object tells.
        if self.directories.contains_key(&directory) && self.entry(&directory, name).is_none() {
            self.insert(&directory, name, Entry { known: None });
            round.new.push((directory, name.into()));
        }
    }

    /// Applies a notification that an entry was removed.
    pub(super) fn removed(&mut self, directory: FileHandle, name: &[u8], round: &mut Round) {
        let Some(Entry { known }) = self.remove(&directory, name) else { return };
        if self.was_new(&directory, name, known.as_ref(), round) {
            let path = self.path(&directory, name);
            round.early.push(Event { change: Change::Removed, path, object: None });
            return;
        }
        round.gone.push(Gone { directory, name: name.into(), known });
    }

    /// Applies a notification that an entry was renamed. The object must be looked up ([`Self::looked_up`]).
    pub(super) fn renamed(&mut self, directory: FileHandle, from: &[u8], to: &[u8], round: &mut Round) {
        let Some(Entry { known }) = self.remove(&directory, from) else {
            return self.added(directory, to, round);
        };
        let replaced = self.remove(&directory, to);
        let replaced = replaced.map(|entry| Gone { directory, name: to.into(), known: entry.known });
        if self.was_new(&directory, from, known.as_ref(), round) {
            let replaced: Vec<Gone> = replaced.into_iter().collect();
            round.early.extend(self.removals(&replaced));
            self.forget(replaced.iter());
            let change = Change::Renamed(self.path(&directory, from));
            let path = self.path(&directory, to);
            round.early.push(Event { change, path, object: None });
        } else {
            round.gone.extend(replaced);
            round.gone.push(Gone { directory, name: from.into(), known: known.clone() });
            round.new.push((directory, to.into()));
        }
        self.insert(&directory, to, Entry { known });
    }

    /// Reports an entry as new that this round has found, before another event about it.
    fn was_new(&self, directory: &FileHandle, name: &[u8], known: Option<&Known>, round: &mut Round) -> bool {
        let Some(at) = round.new.iter().position(|(above, new)| above == directory && **new == *name) else {
            return false;
        };
        round.new.remove(at);
        let object = known.map(|known| (known.seen.kind, known.seen.size));
        round.early.push(Event { change: Change::Created, path: self.path(directory, name), object });
        true
    }

    /// Notes the object of an entry that was added or renamed.
    pub(super) fn looked_up(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        object: &Object,
        round: &mut Round,
    ) {
        let Some(entry) = self.entry(&directory, name) else { return };
        let known = Known::new(object);
        let before = entry.known.replace(known.clone());
        match before {
            Some(before) if before.is_same_object(object) => {
                if let Some(change) = before.seen.changed(&known.seen, true) {
                    round.changed.push((directory, name.into(), change));
                }
                return;
            }
            Some(before) => {
                round.gone.push(Gone { directory, name: name.into(), known: Some(before) });
                round.new.push((directory, name.into()));
            }
            None => {}
        }
        if object.attributes.kind == FileKind::Directory {
            self.found_directory(object.handle, directory, name, round);
        }
    }

    /// Compares the attributes of an entry's object with new ones.
    pub(super) fn compare_entry(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        new: &Attributes,
        round: &mut Round,
    ) {
        let Some(known) = self.entry(&directory, name).and_then(|entry| entry.known.as_mut()) else { return };
        let new = Seen::of(new);
        if new.kind != known.seen.kind {
            return round.list(directory);
        }
        if let Some(change) = known.seen.changed(&new, false) {
            round.changed.push((directory, name.into(), change));
        }
        known.seen = new;
    }

    fn event(&self, change: Change, directory: &FileHandle, name: &[u8]) -> Option<Event> {
        let entry = self.directories.get(directory)?.entries.get(name)?;
        let object = entry.known.as_ref().map(|known| (known.seen.kind, known.seen.size));
        Some(Event { change, path: self.path(directory, name), object })
    }

    /// Ends a round: an object that is gone at one place and new at another was renamed. Returns the events in an order in which
    /// another tree could be changed accordingly: each path is that of the time of the event.
    pub(super) fn finish(&mut self, mut round: Round) -> Vec<Event> {
        let mut new_at: HashMap<FileHandle, usize> = HashMap::new();
        for (number, (directory, name)) in round.new.iter().enumerate() {
            let known = self.directories.get(directory).and_then(|directory| directory.entries.get(name));
            if let Some(known) = known.and_then(|entry| entry.known.as_ref()) {
                new_at.entry(known.handle()).or_insert(number);
            }
        }
        let mut moves: Vec<(usize, Gone)> = Vec::new();
        let mut removed: Vec<Gone> = Vec::new();
        let mut queue = std::mem::take(&mut round.gone);
        while let Some(gone) = queue.pop() {
            let handle = gone.known.as_ref().map(Known::handle);
            match handle.and_then(|handle| new_at.remove(&handle)) {
                Some(number) => moves.push((number, gone)),
                None => {
                    if let Some(handle) = handle {
                        queue.extend(self.take_entries(handle, &gone));
                    }
                    removed.push(gone);
                }
            }
        }
        let mut events = std::mem::take(&mut round.early);
        let is_replaced = |gone: &Gone| {
            round.new.iter().any(|(above, name)| *above == gone.directory && *name == gone.name)
        };
        let (replaced, removed): (Vec<Gone>, Vec<Gone>) = removed.into_iter().partition(is_replaced);
        events.extend(self.removals(&replaced));
        let moved: HashSet<usize> = moves.iter().map(|(number, _)| *number).collect();
        events.extend(self.renames(&round, moves));
        events.extend(self.removals(&removed));
        self.forget(replaced.iter().chain(&removed));
        let new = round.new.iter().enumerate().filter(|(number, _)| !moved.contains(number));
        let mut created: Vec<Event> =
            new.filter_map(|(_, (directory, name))| self.event(Change::Created, directory, name)).collect();
        created.sort_by(|one, other| one.path.cmp(&other.path));
        events.extend(created);
        let changed = std::mem::take(&mut round.changed);
        events.extend(
            changed.into_iter().filter_map(|(directory, name, change)| self.event(change, &directory, &name)),
        );
        events
    }

    /// Takes the entries of a directory that is gone with its name.
    fn take_entries(&mut self, handle: FileHandle, gone: &Gone) -> Vec<Gone> {
        let Some(directory) = self.directories.get_mut(&handle) else { return Vec::new() };
        let is_there = |(above, name): &(FileHandle, Name)| *above == gone.directory && *name == gone.name;
        if !directory.parent.as_ref().is_some_and(is_there) {
            return Vec::new();
        }
        self.entries -= directory.entries.len();
        let entries = std::mem::take(&mut directory.entries).into_iter();
        entries.map(|(name, entry)| Gone { directory: handle, name, known: entry.known }).collect()
    }

    /// Returns events of entries that are gone, those in a directory before it.
    fn removals(&self, gone: &[Gone]) -> Vec<Event> {
        let event = |gone: &Gone| {
            let object = gone.known.as_ref().map(|known| (known.seen.kind, known.seen.size));
            Event { change: Change::Removed, path: self.path(&gone.directory, &gone.name), object }
        };
        let mut events: Vec<Event> = gone.iter().map(event).collect();
        events.sort_by(|one, other| other.path.cmp(&one.path));
        events
    }

    fn renames(&mut self, round: &Round, mut moves: Vec<(usize, Gone)>) -> Vec<Event> {
        // A directory before what was renamed in it.
        moves.sort_by_key(|(number, _)| (self.depth(&round.new[*number].0), *number));
        let mut events = Vec::new();
        for (number, gone) in moves {
            let (directory, name) = &round.new[number];
            let change = Change::Renamed(self.path(&gone.directory, &gone.name));
            let after = self.entry(directory, name).and_then(|entry| entry.known.clone());
            if let Some(moved) =
                gone.known.as_ref().and_then(|known| self.directories.get_mut(&known.handle()))
            {
                moved.parent = Some((*directory, name.clone()));
            }
            events.extend(self.event(change, directory, name));
            if let (Some(before), Some(after)) = (gone.known, after)
                && let Some(change) = before.seen.changed(&after.seen, true)
            {
                events.extend(self.event(change, directory, name));
            }
        }
        events
    }

    /// Forgets the directories among entries that are gone.
    fn forget<'a>(&mut self, gone: impl Iterator<Item = &'a Gone>) {
        for gone in gone {
            let Some(handle) = gone.known.as_ref().map(Known::handle) else { continue };
            let is_there =
                |(above, name): &(FileHandle, Name)| *above == gone.directory && *name == gone.name;
            let known = self.directories.get(&handle);
            if known.is_some_and(|directory| directory.parent.as_ref().is_some_and(is_there)) {
                self.directories.remove(&handle);
            }
        }
    }
}

impl Directory {
    fn new(parent: Option<(FileHandle, Name)>) -> Self {
        Self {
            parent,
            entries: HashMap::new(),
            listed: None,
            is_notified: false,
            retry_at: Duration::ZERO,
            is_unreadable: false,
        }
    }
}

#[cfg(test)]
mod tests;
