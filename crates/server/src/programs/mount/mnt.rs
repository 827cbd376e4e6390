use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use protocol::mount::{DirPath, FhStatus, MountOk, MountResult, MountStat, VERSION_3};
use tracing::info;
use vfs::{Credentials, Error, FileKind, Handle};
use xdr::{Encode, List, Writer};

use super::MountTable;
use crate::files::mount_points::cross;
use crate::request::Request;
use crate::{Export, Flavor, Quoted};

/// MNT (RFC 1813 §5.2.1, RFC 1094 §A.5.2): the handle of an export, or of a directory below one.
pub(super) async fn serve(
    request: &Request<'_>,
    table: &MountTable,
    (version, path): (u32, &DirPath),
    reply: &mut Writer,
) -> MountStat {
    let peer = request.connection.peer;
    let start = reply.mark();
    match mount(request, (version, path), reply).await {
        Ok(()) => {
            if let Some(suppressed) = request.server.throttle.admit(request.now) {
                info!(path = %Quoted(path), version, %peer, suppressed, "mounted");
            }
            table.insert(request.connection.peer.ip(), path);
            MountStat::OK
        }
        Err(status) => {
            if let Some(suppressed) = request.server.throttle.admit(request.now) {
                info!(path = %Quoted(path), version, %peer, ?status, suppressed, "mount refused");
            }
            reply.rewind(start);
            match version {
                VERSION_3 => MountResult::Fail(status).encode(reply),
                _ => FhStatus::Fail(errno(status)).encode(reply),
            }
            status
        }
    }
}

/// Writes the results of a version, if the path can be mounted.
async fn mount(
    request: &Request<'_>,
    (version, path): (u32, &[u8]),
    reply: &mut Writer,
) -> Result<(), MountStat> {
    let (export, handle) = find(request, path).await?;
    let key = &request.server.settings.handle_key;
    if version != VERSION_3 {
        let handle = key.seal_short(export.id, &handle).ok_or(MountStat::SERVERFAULT)?;
        FhStatus::Ok(handle).encode(reply);
        return Ok(());
    }
    let wire = export.seal(key, &handle);
    let fhandle = protocol::nfs3::FileHandle::new(&wire).map_err(|_| MountStat::SERVERFAULT)?;
    // RFC 2623 §2.7: the list has pseudo flavors, which include mechanism and service. It omits AUTH_NONE if it has AUTH_SYS: Linux's client
    // would conclude that the server ignores credentials.
    let auth_flavors = export.options.flavors.iter().map(Flavor::number).collect();
    let auth_flavors = List::new(auth_flavors).map_err(|_| MountStat::SERVERFAULT)?;
    MountResult::Ok(MountOk { fhandle, auth_flavors }).encode(reply);
    Ok(())
}

/// Finds the directory at `path`, if the client may mount it. Also returns its export.
pub(super) async fn find<'r>(
    request: &'r Request<'_>,
    path: &[u8],
) -> Result<(&'r Export, Handle), MountStat> {
    let client = request.connection.peer.ip();
    let (export, rest) = export_of(request, path).ok_or(MountStat::NOENT)?;
    let Some(export) = request.exports.for_client(export.id, client) else {
        request.server.metrics.refused.fetch_add(1, Relaxed);
        return Err(MountStat::ACCES);
    };
    if request.is_port_refused(export) {
        return Err(MountStat::ACCES);
    }
    // The directory exists and the client may use it, but only with version 4, which can tell where it is.
    if export.is_absent() {
        return Err(MountStat::NOTSUPP);
    }
    walk(request, export, rest).await.map_err(status)
}

/// Returns the error of versions 1 and 2, "a UNIX error number" (RFC 1094 §A.4.3).
fn errno(status: MountStat) -> u32 {
    match status {
        // Version 3 numbers all others by their errno.
        MountStat::NOTSUPP | MountStat::SERVERFAULT => MountStat::IO.0,
        status => status.0,
    }
}

/// Returns the export of `path`, and the part of the path below it.
fn export_of<'r, 'p>(request: &'r Request<'_>, path: &'p [u8]) -> Option<(&'r Export, &'p [u8])> {
    request.exports.iter().find_map(|export| Some((&**export, export.below(path)?)))
}

/// Follows `path` below the export's root, without symbolic links. A client's superuser mounts for the whole client, so
/// directories closed to others do not stop it, as with Linux's mountd; any other caller has only the rights of its own
/// calls. A caller by a flavor that the export does not take is anonymous here: an unproven identity must not reveal names.
///
/// Also returns the export that the path leads into, which may be one that is mounted inside the first.
async fn walk<'r>(
    request: &'r Request<'_>,
    mut export: &'r Export,
    path: &[u8],
) -> Result<(&'r Export, Handle), Error> {
    let mut context = request.context(export);
    if request.connection.is_from_superuser() {
        context.credentials = Arc::new(Credentials::root());
    } else if !export.options.flavors.allow(request.identity.flavor()) {
        context.credentials = Arc::clone(&export.options.anonymous);
    }
    let mut handle = export.backend.root();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        if name == b".." {
            return Err(Error::NotFound);
        }
        let found = export.backend.lookup(&context, &handle, name).await;
        if found.as_ref().err() == Some(&Error::Access)
            && let Some(inner) = cross(request, (export, &context), &handle, name).await
        {
            (export, handle) = (inner, inner.backend.root());
            continue;
        }
        let found = found?;
        if found.attributes.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        handle = found.handle;
    }
    Ok((export, handle))
}

fn status(error: Error) -> MountStat {
    match error {
        Error::NotFound | Error::BadName => MountStat::NOENT,
        Error::NotDirectory => MountStat::NOTDIR,
        Error::Access | Error::NotPermitted => MountStat::ACCES,
        Error::NameTooLong => MountStat::NAMETOOLONG,
        Error::Io | Error::Later => MountStat::IO,
        _ => MountStat::SERVERFAULT,
    }
}
