//! Operations on many paths in few requests. Each directory is resolved once, however many of the paths are in it.
//!
//! Each operation returns a result for each path, in their order; a failure affects no other path. They bypass the caches, which
//! see the changes as those of another client. Data that an open file of this mount has written behind are not seen until it is
//! synced; those of closed files are sent first.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use protocol::nfs4::types::Status;

use super::{FileSystem, OpenOptions, path};
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::errno::Errno;
use crate::error::{Error, OpError};
use crate::many::{NewEntry, NewFile, NewKind, ReadFile};
use crate::results::{FileHandle, Object};

/// Maximum number of directories that are resolved at a time.
const RESOLVED_MAX: usize = 256;
const TOO_LONG: OpError = OpError::Invalid(Errno::EFBIG, "the file is longer than the maximum");
const NO_NAME: OpError = OpError::Invalid(Errno::EBUSY, "the root has no name");

/// A file to write by [`FileSystem::write_many`].
#[derive(Debug, Clone)]
pub struct WholeFile<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// Mode bits if it is created.
    pub mode: u32,
    /// All its data: not more than fits into one WRITE.
    pub data: Bytes,
}

/// An object to create by [`FileSystem::create_many`].
#[derive(Debug, Clone)]
pub struct NewPath<'a> {
    /// Its path, which must be free.
    pub path: &'a [u8],
    /// Its kind.
    pub kind: NewKind,
    /// Its mode bits.
    pub mode: u32,
}

/// The directory and the name of a path, or why there is none.
type Place = Result<(FileHandle, Vec<u8>), OpError>;

impl FileSystem {
    /// Reads files of at most `max` bytes, whole, many in a request. Symbolic links are followed. These, and files
    /// of which the server sent only a part, take some requests each.
    ///
    /// # Errors
    /// As open(2) and read(2); [`OpError::Invalid`] with EFBIG for a longer file.
    pub async fn read_many(&self, paths: &[&[u8]], max: u32) -> Vec<Result<Bytes, Error>> {
        self.read_whole(paths, max, false).await
    }

    /// As [`Self::read_many`], without OPEN and CLOSE: a file takes two operations less, and the server keeps no state for it. What this gives
    /// up: the caller is not known to have the file open. So an open of another client that denies reading is possible, and may refuse the READ;
    /// and a file that is removed in between is gone (ESTALE). Versions 2, 3 and 4.0 always read so.
    ///
    /// # Errors
    /// As [`Self::read_many`].
    pub async fn read_many_unopened(&self, paths: &[&[u8]], max: u32) -> Vec<Result<Bytes, Error>> {
        self.read_whole(paths, max, true).await
    }

    async fn read_whole(&self, paths: &[&[u8]], max: u32, without_open: bool) -> Vec<Result<Bytes, Error>> {
        self.send_lingering_data().await;
        let places = self.places(paths).await;
        let files: Vec<ReadFile<'_>> = places
            .iter()
            .flatten()
            .map(|(directory, name)| ReadFile {
                directory: *directory,
                name,
                handle: None,
                without_open,
                count: max,
            })
            .collect();
        let mut read = self.client().read_many(self.caller(), &files).await.into_iter();
        let mut outcomes = Vec::with_capacity(paths.len());
        for (path, place) in paths.iter().zip(&places) {
            outcomes.push(match place.clone().and_then(|_| next(&mut read)) {
                Ok(whole) if whole.is_whole || whole.data.len() as u64 == whole.attributes.size => {
                    Ok(whole.data)
                }
                Ok(whole) if whole.attributes.size > u64::from(max) => {
                    Err(self.failed("read", path, TOO_LONG))
                }
                // RFC 8881 §18.22.3: a server may send less than requested; Linux's does if a compound of version 4.0 has many READs.
                Ok(_) | Err(OpError::Status(Status::SYMLINK)) => self.read_alone(path, max).await,
                Err(cause) => Err(self.failed("read", path, cause)),
            });
        }
        outcomes
    }

    /// Creates or overwrites files with all their data, many in a request. The data are stable afterwards. Symbolic links are
    /// followed, some requests each.
    ///
    /// # Errors
    /// As open(2) and write(2). Some data of a file that failed may have been written.
    pub async fn write_many(&self, files: &[WholeFile<'_>]) -> Vec<Result<(), Error>> {
        self.send_lingering_data().await;
        let paths: Vec<&[u8]> = files.iter().map(|file| file.path).collect();
        let places = self.places(&paths).await;
        let mut items = Vec::new();
        for (place, file) in places.iter().zip(files) {
            if let Ok((directory, name)) = place {
                let (directory, data, set) = (*directory, file.data.clone(), SetAttributes::default());
                items.push(NewFile { directory, name, mode: file.mode, data, set });
            }
        }
        let mut written = self.client().write_many(self.caller(), &items).await.into_iter();
        self.forget_names(&places);
        let mut outcomes = Vec::with_capacity(files.len());
        for (file, place) in files.iter().zip(&places) {
            outcomes.push(match place.clone().and_then(|_| next(&mut written)) {
                Ok(_) => Ok(()),
                Err(OpError::Status(Status::SYMLINK)) => self.write_alone(file).await,
                Err(cause) => Err(self.failed("write", file.path, cause)),
            });
        }
        outcomes
    }

    /// Creates empty files, directories, links and special files, many in a request. All directories above are resolved first, so
    /// that an object whose directory is created by the same call fails with ENOENT: create a tree level by level.
    ///
    /// # Errors
    /// As open(2) with `O_EXCL`, mkdir(2), symlink(2) and mknod(2). An object that exists (EEXIST) is not changed; of one that failed,
    /// nothing was created, except that a file also fails with EEXIST if it was created and the reply was lost.
    pub async fn create_many(&self, new: &[NewPath<'_>]) -> Vec<Result<Object, Error>> {
        let paths: Vec<&[u8]> = new.iter().map(|new| new.path).collect();
        let places = self.places(&paths).await;
        let mut items = Vec::new();
        for (place, new) in places.iter().zip(new) {
            if let Ok((directory, name)) = place {
                items.push(NewEntry { directory: *directory, name, kind: new.kind.clone(), mode: new.mode });
            }
        }
        let mut created = self.client().create_many(self.caller(), &items).await.into_iter();
        self.forget_names(&places);
        let mut of = |(path, place): (&&[u8], &Place)| {
            place.clone().and_then(|_| next(&mut created)).map_err(|cause| self.failed("create", path, cause))
        };
        paths.iter().zip(&places).map(&mut of).collect()
    }

    /// Returns the attributes of objects, many in a request. Symbolic links at the end of a path are not followed.
    ///
    /// # Errors
    /// As lstat(2).
    pub async fn stat_many(&self, paths: &[&[u8]]) -> Vec<Result<Attributes, Error>> {
        self.send_lingering_data().await;
        let places = self.places(paths).await;
        let known: Vec<_> =
            places.iter().flatten().map(|(directory, name)| (*directory, &name[..])).collect();
        let mut found = self.client().stat_many(self.caller(), &known).await.into_iter();
        let mut of = |(path, place): (&&[u8], &Place)| {
            let object = place.clone().and_then(|_| next(&mut found));
            object.map(|object| object.attributes).map_err(|cause| self.failed("stat", path, cause))
        };
        paths.iter().zip(&places).map(&mut of).collect()
    }

    /// Removes names, many in a request: of files, or of empty directories if `directories`.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2); in version 4 the server does not check which of them the name is of.
    pub async fn remove_many(&self, paths: &[&[u8]], directories: bool) -> Vec<Result<(), Error>> {
        let places = self.places(paths).await;
        let known: Vec<_> =
            places.iter().flatten().map(|(directory, name)| (*directory, &name[..])).collect();
        let mut removed = self.client().remove_many(self.caller(), &known, directories).await.into_iter();
        self.forget_names(&places);
        let mut of = |(path, place): (&&[u8], &Place)| {
            place.clone().and_then(|_| next(&mut removed)).map_err(|cause| self.failed("remove", path, cause))
        };
        paths.iter().zip(&places).map(&mut of).collect()
    }

    /// Sends data that closed files still have under delegations. Their errors remain for the next program that opens the file.
    async fn send_lingering_data(&self) {
        if self.client().config().caches.delegations {
            let _ = self.mounted().sync_all().await;
        }
    }

    /// Returns the directory and the last name of each path. Directories are resolved together, each once.
    async fn places(&self, paths: &[&[u8]]) -> Vec<Place> {
        let parents: Vec<Option<(Vec<u8>, Vec<u8>)>> = paths
            .iter()
            .map(|path| {
                let names = path::split(path);
                let (name, parents) = names.split_last()?;
                Some((parents.join(&b'/'), name.to_vec()))
            })
            .collect();
        let mut known: HashMap<&[u8], Result<FileHandle, OpError>> = HashMap::new();
        let (mut running, mut waiting) = (FuturesUnordered::new(), Vec::new());
        for (parent, _) in parents.iter().flatten() {
            if known.insert(parent, Err(OpError::Status(Status::NOENT))).is_none() {
                waiting.push(&parent[..]);
            }
        }
        let resolve = async |path| (path, self.directory(path).await);
        loop {
            while running.len() < RESOLVED_MAX
                && let Some(path) = waiting.pop()
            {
                running.push(resolve(path));
            }
            let Some((path, directory)) = running.next().await else { break };
            known.insert(path, directory);
        }
        let place = |parent: &Option<(Vec<u8>, Vec<u8>)>| {
            let (parent, name) = parent.as_ref().ok_or(NO_NAME)?;
            self.mounted().check_name(name)?;
            Ok((known[&parent[..]].clone()?, name.clone()))
        };
        parents.iter().map(place).collect()
    }

    async fn directory(&self, path: &[u8]) -> Result<FileHandle, OpError> {
        if path.is_empty() {
            return Ok(self.root().handle);
        }
        let object = self.resolve(path, true).await?;
        match object.attributes.kind {
            FileKind::Directory => Ok(object.handle),
            _ => Err(OpError::Status(Status::NOTDIR)),
        }
    }

    /// Makes the caches revalidate the directories in which names were changed.
    fn forget_names(&self, places: &[Place]) {
        let directories: HashSet<FileHandle> =
            places.iter().flatten().map(|(directory, _)| *directory).collect();
        self.mounted().expire(&directories);
    }

    async fn read_alone(&self, path: &[u8], max: u32) -> Result<Bytes, Error> {
        let file = self.open(path, &OpenOptions::READ).await?;
        let read = file.read_at(0, max as usize + 1).await;
        file.close().await?;
        let data = read?.concat();
        if data.len() > max as usize { Err(self.failed("read", path, TOO_LONG)) } else { Ok(data.into()) }
    }

    async fn write_alone(&self, file: &WholeFile<'_>) -> Result<(), Error> {
        let options = OpenOptions { permissions: file.mode, ..OpenOptions::CREATE };
        let open = self.open(file.path, &options).await?;
        let written = open.write_at(0, file.data.clone()).await;
        let closed = open.close().await;
        written.and(closed)
    }
}

/// Takes the next outcome.
fn next<T>(outcomes: &mut impl Iterator<Item = Result<T, OpError>>) -> Result<T, OpError> {
    outcomes.next().unwrap_or(Err(OpError::BadReply("results are missing")))
}
