use std::sync::atomic::Ordering::Relaxed;

use protocol::rquota::{Path, QuotaStatus, Rquota};
use vfs::{Credentials, Quota, QuotaKind, QuotaUse};

use crate::Export;
use crate::request::Request;

/// The smallest unit of blocks, bytes: that of Linux's rquotad.
const BLOCK_BYTES: u64 = 1024;

/// The arguments of GETQUOTA.
pub(super) struct Asked {
    /// A path in an export.
    pub(super) path: Path,
    pub(super) kind: QuotaKind,
    pub(super) id: u32,
}

/// Finds a quota.
pub(super) async fn find(request: &Request<'_>, asked: &Asked) -> Result<Rquota, QuotaStatus> {
    let export = export(request, &asked.path)?;
    let caller = request.context(export).credentials;
    if !may_ask(&caller, asked) {
        return Err(QuotaStatus::EPERM);
    }
    let found = export.backend.quota(asked.kind, asked.id).await;
    let quota = found.ok().flatten().ok_or(QuotaStatus::NOQUOTA)?;
    Ok(encoded(&quota, request.now.wall.seconds))
}

/// Returns the export of a path. Directories are not looked up: all of an export have the same quotas. Of a mount of version 4, quota(1)
/// sends the path without the slash at its start, so that rpc.rquotad can find it below its pseudo root.
fn export<'r>(request: &'r Request<'_>, path: &[u8]) -> Result<&'r Export, QuotaStatus> {
    let exports = &request.exports;
    let from_root = [b"/", path].concat();
    let path = if path.starts_with(b"/") { path } else { &from_root };
    let of_path = exports.iter().chain(exports.nested()).filter(|export| export.below(path).is_some());
    let innermost = of_path.max_by_key(|export| export.path.len()).ok_or(QuotaStatus::NOQUOTA)?;
    let Some(export) = exports.for_client(innermost.id, request.connection.peer.ip()) else {
        request.server.metrics.refused.fetch_add(1, Relaxed);
        return Err(QuotaStatus::EPERM);
    };
    if !export.options.flavors.allow(request.identity.flavor()) {
        return Err(QuotaStatus::EPERM);
    }
    if export.is_absent() { Err(QuotaStatus::NOQUOTA) } else { Ok(export) }
}

/// Returns whether a caller may ask for a quota: root for all, others for their own and that of their groups, as quota(1) does.
fn may_ask(caller: &Credentials, asked: &Asked) -> bool {
    caller.is_root()
        || match asked.kind {
            QuotaKind::User => caller.uid == asked.id,
            QuotaKind::Group => caller.is_in_group(asked.id),
        }
}

/// Encodes a quota; `now` is in seconds since 1970.
fn encoded(quota: &Quota, now: i64) -> Rquota {
    let Quota { bytes, files } = quota;
    let most = [Some(bytes.used), bytes.soft, bytes.hard].into_iter().flatten().max().unwrap_or(0);
    // The numbers of blocks have 32 bits: larger quotas are counted in larger blocks.
    let mut block = BLOCK_BYTES;
    while most.div_ceil(block) > u64::from(u32::MAX) && block < 1 << 30 {
        block *= 2;
    }
    let blocks = |bytes: u64| clamp(bytes.div_ceil(block));
    Rquota {
        bsize: block as i32,
        active: true,
        // 0 is no limit.
        bhardlimit: bytes.hard.map_or(0, blocks),
        bsoftlimit: bytes.soft.map_or(0, blocks),
        curblocks: blocks(bytes.used),
        fhardlimit: files.hard.map_or(0, clamp),
        fsoftlimit: files.soft.map_or(0, clamp),
        curfiles: clamp(files.used),
        btimeleft: time_left(bytes, now),
        ftimeleft: time_left(files, now),
    }
}

fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn time_left(of: &QuotaUse, now: i64) -> u32 {
    of.deadline.map_or(0, |deadline| clamp(u64::try_from(deadline.saturating_sub(now)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_exceed_32_bits_are_counted_in_larger_blocks() {
        let quota = |used, hard| Quota {
            bytes: QuotaUse { used, hard: Some(hard), ..QuotaUse::default() },
            files: QuotaUse { used: 1 << 40, ..QuotaUse::default() },
        };
        let small = encoded(&quota(1025, 4 << 20), 0);
        assert_eq!((small.bsize, small.curblocks, small.bhardlimit, small.bsoftlimit), (1024, 2, 4096, 0));
        assert_eq!(small.curfiles, u32::MAX);
        // 16 TiB are 2^34 blocks of 1 KiB.
        let large = encoded(&quota(3 << 40, 16 << 40), 0);
        assert!(u64::from(large.bhardlimit) * large.bsize as u64 == 16 << 40, "{large:?}");
        assert!(u64::from(large.curblocks) * large.bsize as u64 == 3 << 40, "{large:?}");
        let huge = encoded(&quota(0, u64::MAX), 0);
        assert!(huge.bhardlimit > 0 && huge.bsize > 0, "{huge:?}");
    }

    #[test]
    fn deadlines_are_the_time_that_is_left() {
        let at = |now| {
            let bytes = QuotaUse { deadline: Some(1000), ..QuotaUse::default() };
            let quota = encoded(&Quota { bytes, files: QuotaUse::default() }, now);
            (quota.btimeleft, quota.ftimeleft)
        };
        assert_eq!((at(400), at(1000), at(2000)), ((600, 0), (0, 0), (0, 0)));
    }
}
