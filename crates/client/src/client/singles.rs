//! Operations on many files as single operations that are in flight together: for version 3, and for files that the compounds of 4.0 did not complete.

use std::future::Future;

use futures_util::stream::{FuturesOrdered, StreamExt};
use protocol::nfs4::types::Status;

use super::Client;
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::config::Caller;
use crate::error::OpError;
use crate::many::{ListPart, NewDirectory, NewEntry, NewFile, NewKind, ReadFile, Whole};
use crate::results::{Creation, DirPage, FileHandle, NewObject, Object, OpenMode, OpenState, Stability};

/// Items that are worked on at a time. The version's own bound of calls in flight is usually lower.
const IN_FLIGHT: usize = 256;

/// Runs an operation for each item, many at a time, and returns the outcomes in the items' order.
pub(super) async fn in_flight<'a, I, F: Future>(items: &'a [I], run: impl Fn(&'a I) -> F) -> Vec<F::Output> {
    let (mut running, mut outcomes) = (FuturesOrdered::new(), Vec::with_capacity(items.len()));
    for item in items {
        if running.len() >= IN_FLIGHT {
            outcomes.extend(running.next().await);
        }
        running.push_back(run(item));
    }
    while let Some(outcome) = running.next().await {
        outcomes.push(outcome);
    }
    outcomes
}

pub(super) async fn read(
    client: &Client,
    caller: &Caller,
    files: &[ReadFile<'_>],
) -> Vec<Result<Whole, OpError>> {
    in_flight(files, async |file| {
        let (handle, known) = match file.handle {
            Some(handle) => (handle, None),
            None => {
                let Object { handle, attributes } = client.lookup(caller, file.directory, file.name).await?;
                if attributes.kind == FileKind::Symlink {
                    return Err(OpError::Status(Status::SYMLINK));
                }
                (handle, Some(attributes))
            }
        };
        // The server checks the permission with the READ; ACCESS, which an open asks, would be one call more.
        let reply = client.read(caller, handle, &OpenState::default(), 0, file.count).await?;
        let attributes = match reply.attributes.or(known) {
            Some(attributes) => attributes,
            None => client.get_attributes(caller, handle).await?,
        };
        Ok(Whole { data: reply.data, is_whole: reply.eof, attributes })
    })
    .await
}

pub(super) async fn list(
    client: &Client,
    caller: &Caller,
    parts: &[ListPart],
) -> Vec<Result<DirPage, OpError>> {
    in_flight(parts, async |part| {
        client.read_directory(caller, part.directory, part.position, part.bytes, true).await
    })
    .await
}

pub(super) async fn write(
    client: &Client,
    caller: &Caller,
    files: &[NewFile<'_>],
) -> Vec<Result<Object, OpError>> {
    in_flight(files, async |file| {
        let set = SetAttributes { size: Some(0), ..SetAttributes::with_mode(file.mode) };
        let opened = client.open_anew(caller, file.directory, file.name, &set).await?;
        let written = write_all(client, caller, opened.object, &opened.state, file).await;
        let closed = client.close_file(caller, opened.object.handle, &opened.state).await;
        let object = written?;
        closed?;
        Ok(object)
    })
    .await
}

/// Writes the files that have no outcome yet.
pub(super) async fn write_rest(
    client: &Client,
    caller: &Caller,
    files: &[NewFile<'_>],
    outcomes: &mut [Option<Result<Object, OpError>>],
) {
    let rest: Vec<NewFile<'_>> = files
        .iter()
        .zip(&*outcomes)
        .filter(|(_, outcome)| outcome.is_none())
        .map(|(file, _)| file.clone())
        .collect();
    let mut written = write(client, caller, &rest).await.into_iter();
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
        *outcome = written.next();
    }
}

async fn write_all(
    client: &Client,
    caller: &Caller,
    object: Object,
    state: &OpenState,
    file: &NewFile<'_>,
) -> Result<Object, OpError> {
    let (handle, mut offset, mut data) = (object.handle, 0, file.data.clone());
    let mut attributes = object.attributes;
    while !data.is_empty() {
        let reply = client.write(caller, handle, state, offset, data.clone(), Stability::FileSync).await?;
        offset += u64::from(reply.count);
        data = data.slice(reply.count as usize..);
        attributes = reply.file.after.unwrap_or(attributes);
    }
    if !file.set.is_empty() {
        attributes = client.set_attributes(caller, handle, state, &file.set).await?;
    }
    Ok(Object { handle, attributes })
}

pub(super) async fn create(
    client: &Client,
    caller: &Caller,
    new: &[NewEntry<'_>],
) -> Vec<Result<Object, OpError>> {
    in_flight(new, async |new| {
        let set = SetAttributes::with_mode(new.mode);
        let NewKind::Object(kind) = &new.kind else {
            let (mode, creation) = (OpenMode::WRITE, Creation::Guarded);
            let opened = client.open(caller, new.directory, new.name, mode, creation, &set).await?;
            client.close_file(caller, opened.object.handle, &opened.state).await?;
            return Ok(opened.object);
        };
        let created = client.create_object(caller, new.directory, new.name, kind, &set).await;
        created.map(|(object, _)| object)
    })
    .await
}

pub(super) async fn create_directories(
    client: &Client,
    caller: &Caller,
    directories: &[NewDirectory<'_>],
) -> Vec<Result<Object, OpError>> {
    in_flight(directories, async |new| {
        let set = SetAttributes::with_mode(new.mode);
        let created = client.create_object(caller, new.parent, new.name, &NewObject::Directory, &set).await;
        created.map(|(object, _)| object)
    })
    .await
}

pub(super) async fn remove(
    client: &Client,
    caller: &Caller,
    names: &[(FileHandle, &[u8])],
    directories: bool,
) -> Vec<Result<(), OpError>> {
    in_flight(names, async |(directory, name)| {
        let removed = match directories {
            true => client.remove_directory(caller, *directory, name).await,
            false => client.remove_file(caller, *directory, name).await,
        };
        removed.map(|_| ())
    })
    .await
}

pub(super) async fn set_attributes(
    client: &Client,
    caller: &Caller,
    objects: &[(FileHandle, SetAttributes)],
) -> Vec<Result<Attributes, OpError>> {
    let state = OpenState::default();
    in_flight(objects, async |(handle, set)| client.set_attributes(caller, *handle, &state, set).await).await
}
