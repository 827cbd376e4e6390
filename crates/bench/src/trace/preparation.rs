//! What must exist before a trace can be replayed: everything that its operations found and did not create.

use std::collections::BTreeMap;

use super::format::{Kind, Record};

/// What must exist, by path. A directory comes before what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Directories.
    pub directories: Vec<String>,
    /// Files, with their sizes in bytes.
    pub files: Vec<(String, u64)>,
    /// Symbolic links.
    pub links: Vec<String>,
}

impl Preparation {
    /// Finds what must exist for operations in the order of their beginning.
    #[must_use]
    pub fn of(records: &[Record]) -> Self {
        let mut names = Names::default();
        for record in records {
            names.apply(record);
        }
        names.prepared()
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, (_, size)| sum.saturating_add(*size))
    }
}

/// What an object is. A later operation may tell more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    File,
    Link,
    Directory,
}

/// An object that existed before, or was created in the trace.
struct Object {
    /// The path at which it must exist before; `None` if the trace creates it.
    origin: Option<String>,
    shape: Shape,
    /// The size that it must have before.
    size: u64,
    /// The end of what was written in the trace.
    written: u64,
    /// Entries that must be in it in addition.
    fill: u64,
}

/// The names after some operations.
#[derive(Default)]
struct Names {
    objects: Vec<Object>,
    /// `None` if nothing has the name.
    names: BTreeMap<String, Option<usize>>,
    /// Open files.
    open: BTreeMap<u64, usize>,
}

impl Names {
    fn apply(&mut self, record: &Record) {
        let path = record.path();
        if record.error.is_some() {
            self.apply_failure(record);
            return;
        }
        match record.op {
            Kind::Open if record.how().create => {
                let object = match self.lookup(path) {
                    Some(object) => object,
                    // A file that is not truncated and had a size before, existed before.
                    None if !record.how().truncate && record.size.is_some_and(|size| size > 0) => {
                        self.names.remove(path);
                        self.existing(path, Shape::File)
                    }
                    None => self.create(path, Shape::File),
                };
                self.opened(record, object);
            }
            Kind::Open => {
                let object = self.existing(path, Shape::File);
                self.opened(record, object);
            }
            Kind::Read => self.read(record),
            Kind::Write => self.write(record),
            Kind::Mkdir => _ = self.create(path, Shape::Directory),
            Kind::Symlink => _ = self.create(path, Shape::Link),
            Kind::Rmdir => self.remove(path, Shape::Directory),
            Kind::Remove => self.remove(path, Shape::File),
            Kind::Rename => self.rename(path, record.to.as_deref().unwrap_or_default()),
            Kind::Link => {
                let object = self.existing(path, Shape::File);
                self.parent(record.to.as_deref().unwrap_or_default());
                self.names.insert(record.to.clone().unwrap_or_default(), Some(object));
            }
            Kind::Readlink => _ = self.existing(path, Shape::Link),
            Kind::List | Kind::Names => self.list(record),
            Kind::Stat if record.directory => _ = self.existing(path, Shape::Directory),
            Kind::Stat => {
                let object = self.existing(path, Shape::File);
                self.has_size(object, record.size.unwrap_or(0));
            }
            Kind::Statfs | Kind::Close => {}
            Kind::Sync | Kind::Lock | Kind::Unlock if record.file.is_some() => {}
            Kind::Sync | Kind::Lock | Kind::Unlock | Kind::Chmod | Kind::SetSize | Kind::Touch => {
                _ = self.existing(path, Shape::File);
            }
        }
    }

    /// A failure says that a name was missing, or that something had it.
    fn apply_failure(&mut self, record: &Record) {
        let is_creation = matches!(record.op, Kind::Mkdir | Kind::Symlink | Kind::Link);
        let path = if record.op == Kind::Link { record.to.as_deref() } else { Some(record.path()) };
        let path = path.unwrap_or_default();
        match record.error {
            Some(libc::ENOENT) if !is_creation && !self.names.contains_key(path) => {
                self.names.insert(path.to_owned(), None);
            }
            Some(libc::EEXIST) if is_creation => {
                let shape = if record.op == Kind::Mkdir { Shape::Directory } else { Shape::File };
                _ = self.existing(path, shape);
            }
            _ => {}
        }
    }

    fn lookup(&self, path: &str) -> Option<usize> {
        self.names.get(path).copied().flatten()
    }

    /// Returns the object of a name, which must have existed before if the trace has not created it.
    fn existing(&mut self, path: &str, shape: Shape) -> usize {
        if let Some(object) = self.lookup(path) {
            let known = &mut self.objects[object];
            known.shape = known.shape.max(shape);
            return object;
        }
        let origin = match self.parent(path) {
            None => Some(path.to_owned()),
            Some(parent) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                self.objects[parent].origin.as_ref().map(|origin| joined(origin, name))
            }
        };
        self.add(path, origin, shape)
    }

    /// Returns the directory of a name; `None` for the root.
    fn parent(&mut self, path: &str) -> Option<usize> {
        if path.is_empty() {
            return None;
        }
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        Some(self.existing(&parent, Shape::Directory))
    }

    fn create(&mut self, path: &str, shape: Shape) -> usize {
        self.parent(path);
        self.add(path, None, shape)
    }

    fn add(&mut self, path: &str, origin: Option<String>, shape: Shape) -> usize {
        self.objects.push(Object { origin, shape, size: 0, written: 0, fill: 0 });
        self.names.insert(path.to_owned(), Some(self.objects.len() - 1));
        self.objects.len() - 1
    }

    fn opened(&mut self, record: &Record, object: usize) {
        if let Some(file) = record.file {
            self.open.insert(file, object);
        }
        if record.how().truncate {
            // Nothing of what it had is read.
            let opened = &mut self.objects[object];
            opened.written = u64::MAX;
        } else {
            self.has_size(object, record.size.unwrap_or(0));
        }
    }

    /// A size was seen: what the trace has not written was there before.
    fn has_size(&mut self, object: usize, size: u64) {
        let object = &mut self.objects[object];
        if object.shape == Shape::File && size > object.written {
            object.size = object.size.max(size);
        }
    }

    fn object_of(&mut self, record: &Record) -> usize {
        let opened = record.file.and_then(|file| self.open.get(&file)).copied();
        opened.unwrap_or_else(|| self.existing(record.path(), Shape::File))
    }

    fn read(&mut self, record: &Record) {
        let object = self.object_of(record);
        let read = record.result.unwrap_or(0);
        if read > 0 {
            self.has_size(object, record.offset.unwrap_or(0).saturating_add(read));
        }
    }

    fn write(&mut self, record: &Record) {
        let object = self.object_of(record);
        let end = record.offset.unwrap_or(0).saturating_add(record.result.unwrap_or(0));
        let written = &mut self.objects[object].written;
        *written = (*written).max(end);
    }

    fn remove(&mut self, path: &str, shape: Shape) {
        _ = self.existing(path, shape);
        self.names.insert(path.to_owned(), None);
    }

    fn rename(&mut self, from: &str, to: &str) {
        let object = self.existing(from, Shape::File);
        self.parent(to);
        let below =
            |path: &str| path == from || path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'));
        let moved: Vec<String> = self
            .names
            .range(from.to_owned()..)
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(from))
            .filter(|path| below(path))
            .collect();
        for path in moved {
            let object = self.names.insert(path.clone(), None).flatten();
            self.names.insert(format!("{to}{}", &path[from.len()..]), object);
        }
        self.names.insert(to.to_owned(), Some(object));
    }

    /// A listing had as many entries as something that existed before or was created since.
    fn list(&mut self, record: &Record) {
        let path = record.path();
        let directory = self.existing(path, Shape::Directory);
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let children = self.names.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
        let is_child = |name: &str| !name.is_empty() && !name[prefix.len()..].contains('/');
        let known = children.filter(|(name, object)| object.is_some() && is_child(name)).count() as u64;
        let object = &mut self.objects[directory];
        let missing = record.result.unwrap_or(0).saturating_sub(known + object.fill);
        if object.origin.is_some() {
            object.fill += missing;
        }
    }

    fn prepared(self) -> Preparation {
        let mut prepared = Preparation::default();
        for object in self.objects {
            let Some(origin) = object.origin else { continue };
            match object.shape {
                Shape::Directory => {
                    let filler = |number| (joined(&origin, &format!("other-{number:07}")), 0);
                    prepared.files.extend((1..=object.fill).map(filler));
                    if !origin.is_empty() {
                        prepared.directories.push(origin);
                    }
                }
                Shape::File => prepared.files.push((origin, object.size)),
                Shape::Link => prepared.links.push(origin),
            }
        }
        prepared.directories.sort();
        prepared.directories.dedup();
        prepared.files.sort();
        prepared.files.dedup_by(|(later, _), (earlier, _)| later == earlier);
        prepared.links.sort();
        prepared.links.dedup();
        prepared
    }
}

fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::How;
    use crate::trace::Flags;

    fn record(op: Kind, path: &str) -> Record {
        Record { path: Some(path.to_owned()), ..Record::new(op) }
    }

    fn open(file: u64, path: &str, how: How, size: u64) -> Record {
        Record { file: Some(file), how: Some(Flags(how)), size: Some(size), ..record(Kind::Open, path) }
    }

    fn data(op: Kind, path: &str, offset: u64, length: u64) -> Record {
        let record = record(op, path);
        Record { offset: Some(offset), length: Some(length), result: Some(length), ..record }
    }

    #[test]
    fn only_what_the_trace_found_must_exist() {
        let needed = Preparation::of(&[
            open(1, "a/b/old", How::READ, 100),
            open(2, "a/new", How::CREATE, 0),
            data(Kind::Write, "a/new", 0, 50),
            data(Kind::Read, "a/new", 0, 50),
            data(Kind::Read, "direct", 4096, 10),
            record(Kind::Mkdir, "c"),
            open(3, "c/x", How::CREATE, 0),
            Record { error: Some(libc::ENOENT), ..record(Kind::Stat, "missing") },
            record(Kind::Readlink, "l"),
        ]);
        assert_eq!(needed.directories, ["a", "a/b"]);
        assert_eq!(needed.files, [("a/b/old".to_owned(), 100), ("direct".to_owned(), 4106)]);
        assert_eq!(needed.links, ["l"]);
        assert_eq!(needed.bytes(), 4206);
    }

    #[test]
    fn what_is_found_after_a_rename_was_elsewhere_before() {
        let to = |to: &str, record| Record { to: Some(to.to_owned()), ..record };
        let needed = Preparation::of(&[
            to("e/f", record(Kind::Rename, "d")),
            data(Kind::Read, "e/f/x", 0, 7),
            record(Kind::List, "e/f"),
        ]);
        assert_eq!(needed.directories, ["d", "e"]);
        assert_eq!(needed.files, [("d/x".to_owned(), 7)]);
    }

    #[test]
    fn listings_have_as_many_entries_as_in_the_trace() {
        let entries = |count| Record { result: Some(count), ..record(Kind::List, "a") };
        let removal = record(Kind::Remove, "a/x");
        let needed = Preparation::of(&[data(Kind::Read, "a/x", 0, 1), entries(3), removal, entries(2)]);
        let names: Vec<&str> = needed.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/other-0000001", "a/other-0000002", "a/x"]);
    }
}
