//! Determines the allowed results of an action. If several errors apply, POSIX does not define which of them is
//! returned.

use super::action::{Content, Kind};
use super::model::{Id, Model, Node, READ, SEARCH, WRITE};
use crate::{CreateMode, Credentials, Error, FileKind, Removal, SetXattr};

/// The allowed results of an action. It must succeed if nothing forbids it, otherwise it must fail with one of these
/// errors; `possible_errors` are errors that a system's settings may add.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) required_errors: Vec<Error>,
    pub(super) possible_errors: Vec<Error>,
}

impl From<Vec<Error>> for Expected {
    fn from(required_errors: Vec<Error>) -> Self {
        Self { required_errors, possible_errors: Vec::new() }
    }
}

impl From<Error> for Expected {
    fn from(error: Error) -> Self {
        vec![error].into()
    }
}

impl Model {
    pub(super) fn expect_create(&self, who: &Credentials, directory: Id, name: &str, kind: Kind) -> Expected {
        let (parent, existing) = match self.search(who, directory, name) {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        let writable = parent.may(who, WRITE | SEARCH);
        let Some(existing) = existing.and_then(|id| self.get(id)) else {
            return if writable { Expected::default() } else { Error::Access.into() };
        };
        let mut expected = self.expect_existing(who, existing, kind);
        // Linux returns EEXIST first, others check the directory first.
        if !writable && !expected.required_errors.is_empty() {
            expected.required_errors.push(Error::Access);
        }
        expected
    }

    fn expect_existing(&self, who: &Credentials, existing: &Node, kind: Kind) -> Expected {
        match (kind, existing.kind) {
            (Kind::File(CreateMode::Unchecked, size), FileKind::Regular) => {
                let refused = size.is_some() && !existing.owned_by(who) && !existing.may(who, WRITE);
                if refused { Error::Access.into() } else { Expected::default() }
            }
            (Kind::File(CreateMode::Unchecked, _), FileKind::Directory) => Error::IsDirectory.into(),
            (Kind::File(CreateMode::Unchecked, _), FileKind::Symlink) => Error::IsSymlink.into(),
            (Kind::File(CreateMode::Unchecked, _), _) => Error::WrongKind.into(),
            (Kind::File(CreateMode::Exclusive(verifier), _), _) if existing.verifier == Some(verifier) => {
                Expected::default()
            }
            _ => Error::Exists.into(),
        }
    }

    pub(super) fn expect_remove(
        &self,
        who: &Credentials,
        directory: Id,
        name: &str,
        removal: Removal,
    ) -> Expected {
        let (parent, victim) = match self.search(who, directory, name) {
            Ok((parent, Some(victim))) => (parent, victim),
            Ok((_, None)) => return Error::NotFound.into(),
            Err(error) => return error.into(),
        };
        let mut errors = self.removal(who, parent, victim);
        if let Some(node) = self.get(victim) {
            match (removal, node.is_directory()) {
                (Removal::File, true) => errors.push(Error::IsDirectory),
                (Removal::Directory, false) => errors.push(Error::NotDirectory),
                _ if !node.entries.is_empty() => errors.push(Error::NotEmpty),
                _ => {}
            }
        }
        errors.into()
    }

    pub(super) fn expect_rename(&self, who: &Credentials, from: (Id, &str), to: (Id, &str)) -> Expected {
        let (left, entered) = (self.search(who, from.0, from.1), self.search(who, to.0, to.1));
        let ((parent, source), (new_parent, target)) = match (left, entered) {
            (Ok(left), Ok(entered)) => (left, entered),
            (left, entered) => {
                return [left.err(), entered.err()].into_iter().flatten().collect::<Vec<_>>().into();
            }
        };
        let Some(source) = source else { return Error::NotFound.into() };
        if target == Some(source) {
            return Expected::default();
        }
        let object = self.get(source).expect("an entry leads to an existing object");
        let mut errors = self.removal(who, parent, source);
        if object.is_directory() && self.is_inside(to.0, source) {
            errors.push(Error::Invalid);
        }
        if object.is_directory() && from.0 != to.0 && !object.may(who, WRITE) {
            errors.push(Error::Access);
        }
        if !new_parent.may(who, WRITE | SEARCH) {
            errors.push(Error::Access);
        }
        if let Some(target) = target {
            errors.extend(self.removal(who, new_parent, target));
            let replaced = self.get(target).expect("an entry leads to an existing object");
            match (object.is_directory(), replaced.is_directory()) {
                (true, false) => errors.push(Error::NotDirectory),
                (false, true) => errors.extend([Error::IsDirectory, Error::NotEmpty]),
                _ if !replaced.entries.is_empty() => errors.extend([Error::NotEmpty, Error::Exists]),
                _ => {}
            }
        }
        errors.into()
    }

    pub(super) fn expect_link(&self, who: &Credentials, file: Id, directory: Id, name: &str) -> Expected {
        let mut errors = Vec::new();
        let node = self.get(file);
        match node {
            None => errors.push(Error::Stale),
            Some(node) if node.is_directory() => errors.push(Error::IsDirectory),
            Some(_) if self.links(file) == 0 => errors.extend([Error::NotFound, Error::Stale]),
            Some(_) => {}
        }
        match self.search(who, directory, name) {
            Err(error) => errors.push(error),
            Ok((parent, existing)) => {
                errors.extend(existing.map(|_| Error::Exists));
                errors.extend((!parent.may(who, WRITE | SEARCH)).then_some(Error::Access));
            }
        }
        // Linux's fs.protected_hardlinks: no links to others' files that the caller may not read and write.
        let foreign = node.is_some_and(|node| !node.owned_by(who));
        Expected {
            required_errors: errors,
            possible_errors: if foreign { vec![Error::NotPermitted] } else { Vec::new() },
        }
    }

    /// Returns the file as a regular one, or the error.
    fn regular(&self, file: Id) -> Result<&Node, Error> {
        let node = self.get(file).ok_or(Error::Stale)?;
        match node.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::WrongKind),
        }
    }

    pub(super) fn expect_content(&self, who: &Credentials, file: Id, content: Content) -> Expected {
        let node = match self.regular(file) {
            Ok(node) => node,
            Err(Error::WrongKind) if matches!(content, Content::Size(_)) => {
                return vec![Error::WrongKind, Error::Invalid].into();
            }
            Err(error) => return error.into(),
        };
        let granted = match content {
            Content::Read { .. } => node.may(who, READ) || node.may(who, SEARCH),
            Content::Write { .. } | Content::Size(_) => node.may(who, WRITE),
        };
        if granted || node.owned_by(who) { Expected::default() } else { Error::Access.into() }
    }

    pub(super) fn expect_open(&self, who: &Credentials, file: Id, read: bool, write: bool) -> Expected {
        let node = match self.regular(file) {
            Ok(node) => node,
            Err(Error::WrongKind) if self.get(file).is_some_and(|node| node.kind == FileKind::Symlink) => {
                return Error::IsSymlink.into();
            }
            Err(error) => return error.into(),
        };
        let readable = !read || node.may(who, READ) || node.may(who, SEARCH);
        if readable && (!write || node.may(who, WRITE)) { Expected::default() } else { Error::Access.into() }
    }

    pub(super) fn expect_chmod(&self, who: &Credentials, file: Id) -> Expected {
        let Some(node) = self.get(file) else { return Error::Stale.into() };
        if node.owned_by(who) { Expected::default() } else { Error::NotPermitted.into() }
    }

    pub(super) fn expect_chown(
        &self,
        who: &Credentials,
        file: Id,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Expected {
        let Some(node) = self.get(file) else { return Error::Stale.into() };
        let keeps = uid.is_none_or(|uid| uid == node.uid);
        let group = gid.is_none_or(|gid| gid == node.gid || who.is_in_group(gid));
        let changes = uid.is_some() || gid.is_some();
        let granted = who.is_root() || !changes || (node.owned_by(who) && keeps && group);
        if granted { Expected::default() } else { Error::NotPermitted.into() }
    }

    pub(super) fn expect_lookup(&self, who: &Credentials, directory: Id, name: &str) -> Expected {
        match self.search(who, directory, name) {
            Ok((_, Some(_))) => Expected::default(),
            Ok((_, None)) => Error::NotFound.into(),
            Err(error) => error.into(),
        }
    }

    pub(super) fn expect_list(&self, who: &Credentials, directory: Id) -> Expected {
        match self.get(directory) {
            None => Error::Stale.into(),
            Some(node) if !node.is_directory() => Error::NotDirectory.into(),
            Some(node) if !node.may(who, READ) => Error::Access.into(),
            Some(_) => Expected::default(),
        }
    }

    pub(super) fn expect_xattr(
        &self,
        who: &Credentials,
        file: Id,
        name: &str,
        how: Option<SetXattr>,
    ) -> Expected {
        let Some(node) = self.get(file) else { return Error::Stale.into() };
        if !matches!(node.kind, FileKind::Regular | FileKind::Directory) {
            return vec![Error::NotPermitted, Error::NotSupported, Error::Access, Error::NoXattr].into();
        }
        let mut errors = Vec::new();
        errors.extend((!node.may(who, WRITE)).then_some(Error::Access));
        // xattr(7): only the owner of a sticky directory sets them.
        let sticky = node.is_directory() && node.mode & 0o1000 != 0 && !node.owned_by(who);
        errors.extend(sticky.then_some(Error::NotPermitted));
        let present = node.xattrs.contains_key(name);
        match how {
            Some(SetXattr::Create) if present => errors.push(Error::Exists),
            Some(SetXattr::Replace) | None if !present => errors.push(Error::NoXattr),
            _ => {}
        }
        errors.into()
    }
}
