//! A program that creates, renames, links and removes names of its own, and checks them. Every result must be an expected one.
//! With delegations of directories, most programs only look at the names of all programs: a look that begins after a change has ended
//! shows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use client::attributes::{FileKind, SetAttributes, Timestamp};
use client::error::OpError;
use client::results::{Creation, FileHandle, NewObject};
use protocol::nfs4::types::Status;

use super::directory::Directory;
use super::model::Presence;
use super::program::Program;

/// Objects that the program has created.
#[derive(Debug, Clone, Copy)]
struct Own {
    kind: FileKind,
    handle: FileHandle,
    mode: u32,
    /// The mode at the creation, which gives the content.
    first_mode: u32,
    /// The time of the last change that was seen.
    mtime: Timestamp,
}

struct Names {
    directory: Directory,
    present: BTreeMap<String, Own>,
    absent: Vec<String>,
}

/// Runs `steps` random steps.
///
/// # Errors
/// A result that cannot be.
pub(super) async fn run(mut program: Program, directory: Directory, steps: u32) -> Result<(), String> {
    let mut names = Names { directory, present: BTreeMap::new(), absent: Vec::new() };
    for _ in 0..steps {
        program.pause(4_000).await;
        match program.rng.below(100) {
            0..20 => create_file(&mut program, &mut names).await?,
            20..40 => create_object(&mut program, &mut names).await?,
            40..55 => remove(&mut program, &mut names).await?,
            55..68 => rename(&mut program, &mut names).await?,
            68..76 => link(&mut program, &mut names).await?,
            76..84 => set_mode(&mut program, &mut names).await?,
            84..94 => look_up(&mut program, &mut names).await?,
            _ => list(&mut program, &names).await?,
        }
    }
    Ok(())
}

impl Names {
    fn pick(&self, program: &mut Program, is_wanted: impl Fn(&Own) -> bool) -> Option<(String, Own)> {
        let wanted: Vec<_> = self.present.iter().filter(|(_, own)| is_wanted(own)).collect();
        let (name, own) = wanted.get(program.rng.below(wanted.len().max(1) as u64) as usize)?;
        Some(((*name).clone(), **own))
    }

    /// Notes that a name exists.
    fn add(&mut self, program: &Program, name: &str, own: Own) {
        self.present.insert(name.to_owned(), own);
        program.model.borrow_mut().set(name, Presence::Present(own.kind));
    }

    /// Notes that a name no longer exists.
    fn drop(&mut self, program: &Program, name: &str) {
        self.present.remove(name);
        self.absent.push(name.to_owned());
        program.model.borrow_mut().set(name, Presence::Absent);
    }
}

impl Program {
    /// Notes that a change of names begins: whether it is made is unknown until its result.
    fn begin_change(&self, note: &str, names: &[&str]) {
        self.begin(note.to_owned());
        let mut model = self.model.borrow_mut();
        names.iter().for_each(|name| model.set(name, Presence::Unknown));
    }

    /// Notes that a change was made, which must have happened exactly once.
    fn made_once(&self, note: String) {
        let mut model = self.model.borrow_mut();
        model.checks += 1;
        model.once.insert(note);
    }
}

/// Runs `steps` steps, most of which look at names of any program. Directories have no timeouts, so that only a delegation answers
/// without a request.
///
/// # Errors
/// A result that cannot be.
pub(super) async fn run_looking(
    mut program: Program,
    directory: Directory,
    steps: u32,
) -> Result<(), String> {
    let mut names = Names { directory, present: BTreeMap::new(), absent: Vec::new() };
    for _ in 0..steps {
        program.pause(20_000).await;
        match program.rng.below(100) {
            0..2 => create_object(&mut program, &mut names).await?,
            2..4 => remove(&mut program, &mut names).await?,
            4..6 => rename(&mut program, &mut names).await?,
            6..16 => list_all(&mut program, &names).await?,
            _ => look_at_any(&mut program, &names).await?,
        }
    }
    Ok(())
}

/// What all programs know about a name, and how often that has changed.
type Known = (String, Presence, u64);

/// Returns all names about which something is known.
fn known(program: &Program) -> Vec<Known> {
    let model = program.model.borrow();
    let certain = model.names.iter().filter(|(_, presence)| **presence != Presence::Unknown);
    certain.map(|(name, presence)| (name.clone(), *presence, model.name_changes[name])).collect()
}

/// Returns whether a name has not changed since.
fn is_unchanged(program: &Program, (name, _, changes): &Known) -> bool {
    program.model.borrow().name_changes[name] == *changes
}

/// Counts a look if a directory is delegated.
fn note_look(program: &Program) {
    if program.client.directory_delegation_counts().held > 0 {
        program.model.borrow_mut().delegated_looks += 1;
    }
}

async fn look_at_any(program: &mut Program, names: &Names) -> Result<(), String> {
    let mut all = known(program);
    if all.is_empty() {
        return Ok(());
    }
    let picked = all.swap_remove(program.rng.below(all.len() as u64) as usize);
    let (name, presence, _) = &picked;
    program.begin(format!("look at {name}"));
    note_look(program);
    let found = names.directory.look_up(name).await;
    let is_right = match (presence, &found) {
        (Presence::Present(kind), Ok(found)) => found.attributes.kind == *kind,
        (Presence::Absent, Err(OpError::Status(Status::NOENT))) => true,
        _ => false,
    };
    if !is_right && is_unchanged(program, &picked) {
        return Err(program.wrong(&format!("look at {name}, which is {presence:?}"), &found));
    }
    Ok(())
}

async fn list_all(program: &mut Program, names: &Names) -> Result<(), String> {
    let all = known(program);
    program.begin("list all".into());
    note_look(program);
    let listed = program.must("list all", names.directory.list(false).await)?;
    for known in &all {
        let (name, presence, _) = known;
        let is_there = listed.iter().any(|listed| listed == name.as_bytes());
        if is_there != matches!(presence, Presence::Present(_)) && is_unchanged(program, known) {
            return Err(program.wrong(&format!("list all, {name} is {presence:?}"), &is_there));
        }
    }
    Ok(())
}

async fn create_file(program: &mut Program, names: &mut Names) -> Result<(), String> {
    let name = program.new_name();
    let note = format!("create {name}");
    program.begin_change(&note, &[&name]);
    let mode = 0o600 + program.rng.below(0o100) as u32;
    let creation = match program.rng.chance(60) {
        true => Creation::Exclusive(program.rng.next_u64().to_be_bytes()),
        false => Creation::IfMissing,
    };
    let set = SetAttributes::with_mode(mode);
    let created = names.directory.create_file(&name, creation, &set, Bytes::from(content(mode))).await;
    let handle = program.must(&note, created)?;
    program.checked();
    let own = Own { kind: FileKind::Regular, handle, mode, first_mode: mode, mtime: Timestamp::default() };
    names.add(program, &name, own);
    Ok(())
}

async fn create_object(program: &mut Program, names: &mut Names) -> Result<(), String> {
    let name = program.new_name();
    let note = format!("create {name}");
    program.begin_change(&note, &[&name]);
    let (kind, new) = match program.rng.below(3) {
        0 => (FileKind::Directory, NewObject::Directory),
        1 => (FileKind::Symlink, NewObject::Symlink(Bytes::from(name.clone().into_bytes()))),
        _ => (FileKind::Fifo, NewObject::Fifo),
    };
    let mode = 0o700;
    let set = SetAttributes::with_mode(mode);
    let created = names.directory.create_object(&name, &new, &set).await;
    let object = program.must(&note, created)?;
    if object.attributes.kind != kind {
        return Err(program.wrong(&note, &object));
    }
    program.made_once(note);
    let own = Own { kind, handle: object.handle, mode, first_mode: mode, mtime: Timestamp::default() };
    names.add(program, &name, own);
    Ok(())
}

async fn remove(program: &mut Program, names: &mut Names) -> Result<(), String> {
    let Some((name, own)) = names.pick(program, |_| true) else { return Ok(()) };
    let note = format!("remove {name}");
    program.begin_change(&note, &[&name]);
    let removed = names.directory.remove(&name, own.kind == FileKind::Directory).await;
    program.must(&note, removed)?;
    program.made_once(note);
    names.drop(program, &name);
    Ok(())
}

async fn rename(program: &mut Program, names: &mut Names) -> Result<(), String> {
    let Some((from, own)) = names.pick(program, |_| true) else { return Ok(()) };
    // Two names of one file stay both (RFC 8881 §18.26.3).
    let replaced = match program.rng.chance(30) {
        true => names.pick(program, |other| other.kind == own.kind && other.handle != own.handle),
        false => None,
    };
    let to = replaced.map_or_else(|| program.new_name(), |(name, _)| name);
    let note = format!("rename {from} to {to}");
    program.begin_change(&note, &[&from, &to]);
    let renamed = names.directory.rename(&from, &to).await;
    program.must(&note, renamed)?;
    program.made_once(note);
    names.drop(program, &from);
    names.add(program, &to, own);
    Ok(())
}

async fn link(program: &mut Program, names: &mut Names) -> Result<(), String> {
    let Some((from, own)) = names.pick(program, |own| own.kind == FileKind::Regular) else { return Ok(()) };
    let name = program.new_name();
    let note = format!("link {name}");
    program.begin_change(&note, &[&name]);
    let linked = names.directory.link((&from, own.handle), &name).await;
    program.must(&note, linked)?;
    program.made_once(note);
    names.add(program, &name, own);
    Ok(())
}

async fn set_mode(program: &mut Program, names: &mut Names) -> Result<(), String> {
    let Some((name, own)) = names.pick(program, |own| own.kind != FileKind::Symlink) else { return Ok(()) };
    program.begin(format!("set mode of {name}"));
    let mode = 0o400 + program.rng.below(0o400) as u32;
    let set = SetAttributes::with_mode(mode);
    let changed = names.directory.set_attributes((&name, own.handle), &set).await;
    let attributes = program.must("set mode", changed)?;
    if attributes.mode != mode {
        return Err(program.wrong(&format!("mode {mode:o} of {name}"), &attributes));
    }
    for other in names.present.values_mut().filter(|other| other.handle == own.handle) {
        other.mode = mode;
    }
    program.checked();
    Ok(())
}

async fn look_up(program: &mut Program, names: &mut Names) -> Result<(), String> {
    if let Some((name, own)) = names.pick(program, |_| true) {
        program.begin(format!("look up {name}"));
        let found = names.directory.look_up(&name).await;
        let found = program.must(&format!("look up {name}"), found)?;
        let has_mode = found.attributes.mode == own.mode || own.kind == FileKind::Symlink;
        if (found.handle, found.attributes.kind) != (own.handle, own.kind) || !has_mode {
            return Err(program.wrong(&format!("look up {name}, which is {own:?}"), &found));
        }
        // Nobody sets times, and all clocks agree.
        if found.attributes.mtime < own.mtime {
            return Err(program.wrong(&format!("{name} was changed at {:?}", own.mtime), &found));
        }
        for other in names.present.values_mut().filter(|other| other.handle == own.handle) {
            other.mtime = found.attributes.mtime;
        }
        if own.kind == FileKind::Regular {
            check_content(program, names, &name, &own).await?;
        }
        program.checked();
    }
    if let Some(name) = names.absent.last().filter(|name| !names.present.contains_key(*name)) {
        program.begin(format!("look up {name}, which was removed"));
        let found = names.directory.look_up(name).await;
        if found != Err(OpError::Status(Status::NOENT)) {
            return Err(program.wrong(&format!("look up {name}, which was removed"), &found));
        }
        program.checked();
    }
    Ok(())
}

async fn check_content(program: &Program, names: &Names, name: &str, own: &Own) -> Result<(), String> {
    program.begin(format!("read {name}"));
    let read = names.directory.read(name).await;
    match program.must(&format!("read {name}"), read)? {
        Some(read) if read != content(own.first_mode) => {
            Err(program.wrong(&format!("content of {name}"), &String::from_utf8_lossy(&read)))
        }
        _ => Ok(()),
    }
}

/// Returns the content of a file that was created with this mode.
fn content(mode: u32) -> Vec<u8> {
    format!("mode {mode:o}").into_bytes()
}

/// Lists the directory, in which others change names meanwhile: each own name occurs once.
async fn list(program: &mut Program, names: &Names) -> Result<(), String> {
    program.begin("list".into());
    let plus = program.rng.chance(50);
    let listed = program.must("list", names.directory.list(plus).await)?;
    let mut seen = BTreeMap::<String, u32>::new();
    for name in listed {
        *seen.entry(String::from_utf8_lossy(&name).into_owned()).or_default() += 1;
    }
    for name in names.present.keys() {
        if seen.get(name) != Some(&1) {
            return Err(program.wrong(&format!("{name} in a listing"), &seen.get(name)));
        }
    }
    let is_gone = |name: &&String| !names.present.contains_key(*name);
    if let Some(name) = names.absent.iter().filter(is_gone).find(|name| seen.contains_key(*name)) {
        return Err(program.wrong("a listing has a removed name", name));
    }
    program.checked();
    Ok(())
}
