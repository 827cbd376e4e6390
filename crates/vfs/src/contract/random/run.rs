use std::collections::BTreeSet;
use std::fmt::Debug;

use super::action::{Action, Content, Kind, Pick, Wanted};
use super::expected::Expected;
use super::model::{Id, Model, Node, READ};
use crate::contract::subject::{Caller, Subject};
use crate::{
    Attributes, Authority, Create, Credentials, Error, FileKind, Handle, OpenAccess, Opened, Result,
    SetAttributes, Stability,
};

/// Mode of the directory that a run works in.
const TOP_MODE: u32 = 0o777;
/// The number of actions after which everything is compared, not only attributes.
const WHOLE_EVERY: usize = 60;

/// Or the difference between backend and model.
type Outcome<T = ()> = std::result::Result<T, String>;

/// One sequence of actions, in a directory of its own.
pub(super) struct Run<'t> {
    t: &'t Subject,
    callers: Vec<Caller<'t>>,
    model: Model,
    /// By id, including removed objects.
    handles: Vec<Handle>,
    /// Last change attribute by id.
    changes: Vec<u64>,
    opens: Vec<(Id, Opened)>,
}

impl<'t> Run<'t> {
    /// A single caller is the fixture's own; several are root and two users who share a group.
    pub(super) fn new(t: &'t Subject, callers: usize) -> Self {
        let callers = if callers == 1 { vec![t.me()] } else { vec![t.root(), t.user(1), t.user(2)] };
        let first = &callers[0];
        let name =
            (0..).map(|number| format!("run-{number}")).find(|name| t.me().lookup(&t.top(), name).is_err());
        let top = first.directory(&t.top(), name.expect("names do not run out"));
        first.chmod(&top, TOP_MODE).expect("the owner sets the mode");
        let Credentials { uid, gid, .. } = *first.credentials();
        let model = Model::new(Node::new(FileKind::Directory, TOP_MODE, uid, gid));
        Self { t, callers, model, handles: vec![top], changes: vec![0], opens: Vec::new() }
    }

    /// Runs all actions. On a difference returns the action and the difference.
    pub(super) fn all(mut self, actions: &[Action]) -> std::result::Result<(), (usize, String)> {
        for (number, action) in actions.iter().enumerate() {
            let mut result = self.one(action).and_then(|changed| self.compare_attributes(&changed));
            if (number + 1) % WHOLE_EVERY == 0 || number + 1 == actions.len() {
                result = result.and_then(|()| self.compare_everything());
            }
            result.map_err(|why| (number, why))?;
        }
        Ok(())
    }

    /// Runs one action. Returns the objects that it changed.
    fn one(&mut self, action: &Action) -> Outcome<Vec<Id>> {
        let caller = self.callers[action.who].clone();
        match action.what {
            Wanted::Create { directory, name, kind, mode } => {
                self.create(&caller, directory, name, kind, mode)
            }
            Wanted::Remove { directory, name, removal } => {
                let directory = self.pick(directory);
                let expected = self.model.expect_remove(caller.credentials(), directory, name, removal);
                let removed = caller.remove(&self.handles[directory as usize], name, removal);
                if agree(expected, removed)?.is_none() {
                    return Ok(Vec::new());
                }
                let victim = self.model.node(directory).entries.remove(name).expect("it was found");
                Ok(vec![directory, victim])
            }
            Wanted::Rename { from, to } => {
                let (from, to) = ((self.pick(from.0), from.1), (self.pick(to.0), to.1));
                self.rename(&caller, from, to)
            }
            Wanted::Link { file, directory, name } => {
                let (file, directory) = (self.pick(file), self.pick(directory));
                let expected = self.model.expect_link(caller.credentials(), file, directory, name);
                let linked =
                    caller.link(&self.handles[file as usize], &self.handles[directory as usize], name);
                if agree(expected, linked)?.is_none() {
                    return Ok(Vec::new());
                }
                self.model.node(directory).entries.insert(name, file);
                Ok(vec![file, directory])
            }
            Wanted::Lookup { directory, name } => self.lookup(&caller, directory, name),
            Wanted::Parent { directory } => self.parent(&caller, directory),
            Wanted::List { directory, page } => self.list(&caller, directory, page),
            Wanted::Open { file, read, write } => self.open(&caller, file, OpenAccess { read, write }),
            Wanted::Close { which } => {
                if !self.opens.is_empty() {
                    let (file, opened) = self.opens.swap_remove(which % self.opens.len());
                    drop(opened);
                    self.model.node(file).opens -= 1;
                }
                Ok(Vec::new())
            }
            Wanted::Content { file, content } => self.content(&caller, file, content),
            _ => self.attribute(&caller, action.what),
        }
    }

    fn create(
        &mut self,
        caller: &Caller<'_>,
        directory: Pick,
        name: &'static str,
        kind: Kind,
        mode: u32,
    ) -> Outcome<Vec<Id>> {
        let directory = self.pick(directory);
        let (what, size) = match kind {
            Kind::File(mode, size) => (Create::File(mode), size),
            Kind::Directory => (Create::Directory, None),
            Kind::Symlink(text) => (Create::Symlink(text.into()), None),
            Kind::Fifo => (Create::Fifo, None),
        };
        let expected = self.model.expect_create(caller.credentials(), directory, name, kind);
        let set = SetAttributes { mode: Some(mode), size, ..SetAttributes::default() };
        let created = caller.create(&self.handles[directory as usize], name, &what, &set);
        let Some(created) = agree(expected, created)? else { return Ok(Vec::new()) };
        let known = self.handles.len();
        let id = self.model.create(caller.credentials(), directory, name, kind, mode);
        let is_new = id as usize == known;
        same("is_new", created.is_new, is_new)?;
        if is_new {
            self.handles.push(created.handle);
            self.changes.push(0);
            return Ok(vec![directory, id]);
        }
        same("the handle of the earlier object", created.handle, self.handles[id as usize])?;
        Ok(if size.is_some() { vec![id] } else { Vec::new() })
    }

    fn rename(
        &mut self,
        caller: &Caller<'_>,
        from: (Id, &'static str),
        to: (Id, &'static str),
    ) -> Outcome<Vec<Id>> {
        let expected = self.model.expect_rename(caller.credentials(), from, to);
        let (left, entered) = (&self.handles[from.0 as usize], &self.handles[to.0 as usize]);
        if agree(expected, caller.rename((left, from.1), (entered, to.1)))?.is_none() {
            return Ok(Vec::new());
        }
        let source = self.model.node(from.0).entries[from.1];
        let target = self.model.node(to.0).entries.get(to.1).copied();
        if target == Some(source) {
            return Ok(Vec::new());
        }
        self.model.rename(from, to);
        Ok([Some(from.0), Some(to.0), Some(source), target].into_iter().flatten().collect())
    }

    fn lookup(&mut self, caller: &Caller<'_>, directory: Pick, name: &str) -> Outcome<Vec<Id>> {
        let directory = self.pick(directory);
        let expected = self.model.expect_lookup(caller.credentials(), directory, name);
        if let Some(found) = agree(expected, caller.lookup(&self.handles[directory as usize], name))? {
            let id = self.model.node(directory).entries[name];
            same("the handle found", found.handle, self.handles[id as usize])?;
        }
        Ok(Vec::new())
    }

    fn parent(&mut self, caller: &Caller<'_>, directory: Pick) -> Outcome<Vec<Id>> {
        let directory = self.pick(directory);
        // `..` is checked as any name in a directory that can be searched.
        let expected = match self.model.search(caller.credentials(), directory, "") {
            Ok(_) => Expected::default(),
            Err(error) => error.into(),
        };
        if let Some(found) = agree(expected, caller.parent(&self.handles[directory as usize]))? {
            let above = self.model.parent(directory).map_or(self.t.top(), |id| self.handles[id as usize]);
            same("the parent", found.handle, above)?;
        }
        Ok(Vec::new())
    }

    fn list(&mut self, caller: &Caller<'_>, directory: Pick, limit: usize) -> Outcome<Vec<Id>> {
        let directory = self.pick(directory);
        let handle = self.handles[directory as usize];
        let (mut names, mut place) = (Vec::new(), (0, [0; 8]));
        loop {
            let expected = self.model.expect_list(caller.credentials(), directory);
            let Some(page) = agree(expected, caller.page(&handle, place, limit))? else {
                return Ok(Vec::new());
            };
            if let Some(last) = page.entries.last() {
                place = (last.cookie, page.verifier);
            }
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            if page.eof {
                break;
            }
        }
        names.sort();
        let wanted: Vec<_> =
            self.model.node(directory).entries.keys().map(|name| name.as_bytes().to_vec()).collect();
        same("names listed", names, wanted)?;
        Ok(Vec::new())
    }

    fn open(&mut self, caller: &Caller<'_>, file: Pick, access: OpenAccess) -> Outcome<Vec<Id>> {
        let file = self.pick(file);
        let expected = self.model.expect_open(caller.credentials(), file, access.read, access.write);
        let opened = caller.open_with(&self.handles[file as usize], access, Authority::Caller);
        if let Some(opened) = agree(expected, opened)? {
            self.model.node(file).opens += 1;
            self.opens.push((file, opened));
        }
        Ok(Vec::new())
    }

    fn content(&mut self, caller: &Caller<'_>, file: Pick, content: Content) -> Outcome<Vec<Id>> {
        let file = self.pick(file);
        let handle = &self.handles[file as usize];
        let expected = self.model.expect_content(caller.credentials(), file, content);
        let answer = match content {
            Content::Read { offset, length } => agree(expected, caller.read(handle, offset, length as u32))?,
            Content::Size(size) => agree(expected, caller.truncate(handle, size))?.map(|_| Vec::new()),
            Content::Write { offset, length, byte } => {
                let data = vec![byte; length as usize];
                let written = caller.write_with(handle, offset, data, Stability::Unstable, Authority::Caller);
                let written = agree(expected, written)?;
                written.map(|written| same("count", u64::from(written.count), length)).transpose()?;
                written.map(|_| Vec::new())
            }
        };
        let Some(data) = answer else { return Ok(Vec::new()) };
        same("the data read", data, self.model.content(caller.credentials(), file, content))?;
        Ok(match content {
            Content::Read { .. } | Content::Write { length: 0, .. } => Vec::new(),
            _ => vec![file],
        })
    }

    fn attribute(&mut self, caller: &Caller<'_>, what: Wanted) -> Outcome<Vec<Id>> {
        let who = caller.credentials();
        let (Wanted::Chmod { file, .. }
        | Wanted::Chown { file, .. }
        | Wanted::SetXattr { file, .. }
        | Wanted::RemoveXattr { file, .. }) = what
        else {
            unreachable!("other actions run elsewhere")
        };
        let file = self.pick(file);
        let handle = &self.handles[file as usize];
        let has_xattrs = self.t.backend().properties().xattrs;
        let done = match what {
            Wanted::Chmod { mode, .. } => {
                agree(self.model.expect_chmod(who, file), caller.chmod(handle, mode))?
            }
            Wanted::Chown { uid, gid, .. } => {
                let set = SetAttributes { uid, gid, ..SetAttributes::default() };
                agree(self.model.expect_chown(who, file, uid, gid), caller.setattr(handle, set))?
            }
            Wanted::SetXattr { name, length, how, .. } if has_xattrs => {
                let expected = self.model.expect_xattr(who, file, name, Some(how));
                agree(expected, caller.set_xattr(handle, name, vec![7; length], how))?
            }
            Wanted::RemoveXattr { name, .. } if has_xattrs => {
                agree(self.model.expect_xattr(who, file, name, None), caller.remove_xattr(handle, name))?
            }
            _ => None,
        };
        if done.is_none() {
            return Ok(Vec::new());
        }
        match what {
            // It takes no mode, and so does not change.
            Wanted::Chmod { .. } if self.model.node(file).kind == FileKind::Symlink => return Ok(Vec::new()),
            Wanted::Chmod { mode, .. } => self.model.chmod(who, file, mode),
            Wanted::Chown { uid: None, gid: None, .. } => return Ok(Vec::new()),
            Wanted::Chown { uid, gid, .. } => self.model.chown(who, file, uid, gid),
            Wanted::SetXattr { name, length, .. } => {
                self.model.node(file).xattrs.insert(name, vec![7; length]);
            }
            Wanted::RemoveXattr { name, .. } => drop(self.model.node(file).xattrs.remove(name)),
            _ => {}
        }
        Ok(vec![file])
    }

    fn pick(&self, pick: Pick) -> Id {
        let living = |kind: FileKind| {
            self.model
                .living()
                .filter(move |(_, node)| node.kind == kind)
                .map(|(id, _)| id)
                .collect::<Vec<_>>()
        };
        let (candidates, number) = match pick {
            Pick::Any(number) => (Vec::new(), number),
            Pick::Directory(number) => (living(FileKind::Directory), number),
            Pick::File(number) => (living(FileKind::Regular), number),
        };
        match candidates.len() {
            0 => number % self.handles.len() as Id,
            count => candidates[number as usize % count],
        }
    }

    /// Compares all attributes, and requires the change attribute of `changed` to have moved.
    fn compare_attributes(&mut self, changed: &[Id]) -> Outcome {
        self.model.forget();
        let changed: BTreeSet<_> = changed.iter().collect();
        for id in 0..self.handles.len() as Id {
            let answer = self.callers[0].getattr(&self.handles[id as usize]);
            let Some(node) = self.model.get(id) else {
                same(&format!("object {id}, which was removed"), answer.err(), Some(Error::Stale))?;
                continue;
            };
            let attributes = answer.map_err(|error| format!("object {id} exists, but: {error}"))?;
            compare(id, &attributes, node, self.model.links(id))?;
            let last = std::mem::replace(&mut self.changes[id as usize], attributes.change);
            if attributes.change < last || (attributes.change == last && changed.contains(&id)) {
                return Err(format!(
                    "the change attribute of {id} went from {last} to {}",
                    attributes.change
                ));
            }
        }
        Ok(())
    }

    /// Compares names, contents, texts and extended attributes, as far as the first caller may read them.
    fn compare_everything(&self) -> Outcome {
        let caller = &self.callers[0];
        for (id, node) in self.model.living() {
            let handle = &self.handles[id as usize];
            let seen = |error: Error| format!("object {id}: {error}");
            match node.kind {
                FileKind::Regular => {
                    let count = node.content.len() as u32 + 1;
                    let read = caller.read_with(handle, 0, count, Authority::Opened).map_err(seen)?;
                    same(&format!("content of {id}"), read.0, node.content.clone())?;
                }
                FileKind::Symlink => {
                    let text = caller.readlink(handle).map_err(seen)?;
                    same(&format!("text of {id}"), &text[..], node.text.as_bytes())?;
                }
                FileKind::Directory if node.may(caller.credentials(), READ) => {
                    let wanted: Vec<_> = node.entries.keys().map(|name| name.as_bytes().to_vec()).collect();
                    same(&format!("names in {id}"), caller.names(handle), wanted)?;
                }
                _ => {}
            }
            if self.t.backend().properties().xattrs && node.may(caller.credentials(), READ) {
                for (name, value) in &node.xattrs {
                    let kept = caller.get_xattr(handle, name).map_err(seen)?;
                    same(&format!("xattr {name} of {id}"), &kept[..], &value[..])?;
                }
            }
        }
        Ok(())
    }
}

fn compare(id: Id, attributes: &Attributes, node: &Node, links: u32) -> Outcome {
    let of = |what: &str| format!("{what} of {id}");
    same(&of("kind"), attributes.kind, node.kind)?;
    same(&of("mode"), format!("{:o}", attributes.mode), format!("{:o}", node.mode))?;
    same(&of("owner and group"), (attributes.uid, attributes.gid), (node.uid, node.gid))?;
    match node.kind {
        FileKind::Regular => same(&of("size"), attributes.size, node.content.len() as u64)?,
        FileKind::Symlink => same(&of("size"), attributes.size, node.text.len() as u64)?,
        _ => {}
    }
    // Not every file system counts subdirectories: others return 1.
    let uncounted = node.is_directory() && attributes.links == 1;
    if uncounted { Ok(()) } else { same(&of("links"), attributes.links, links) }
}

/// Requires an answer to be allowed; `None` if it failed as required.
fn agree<T: Debug>(expected: Expected, answer: Result<T>) -> Outcome<Option<T>> {
    match answer {
        Ok(value) if expected.required_errors.is_empty() => Ok(Some(value)),
        Ok(_) => Err(format!("succeeded, but had to fail with one of {:?}", expected.required_errors)),
        Err(error)
            if expected.required_errors.contains(&error) || expected.possible_errors.contains(&error) =>
        {
            Ok(None)
        }
        Err(error) => Err(format!(
            "failed: {error}; allowed were {:?} and {:?}",
            expected.required_errors, expected.possible_errors
        )),
    }
}

fn same<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Outcome {
    if got == wanted {
        return Ok(());
    }
    let short = |value: &T| format!("{value:?}").chars().take(300).collect::<String>();
    Err(format!("{what}: got {}, the model has {}", short(&got), short(&wanted)))
}
