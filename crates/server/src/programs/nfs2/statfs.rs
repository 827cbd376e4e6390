use protocol::nfs2::{FileHandle, MAXDATA, StatfsOk};
use vfs::FsStat;
use xdr::Writer;

use super::reply::{Failure, answer, clamp, resolve_at_mount};
use crate::request::Request;

/// The smallest block size in bytes that STATFS reports.
const SMALLEST_BLOCK: u32 = 4096;

/// The largest one. Clients compute with it in 32 bits.
const LARGEST_BLOCK: u32 = 1 << 30;

/// Maximum number of blocks: clients may take the numbers as signed.
const BLOCKS_MAX: u32 = i32::MAX as u32;

/// STATFS (RFC 1094 §2.2.18).
pub(super) async fn serve(
    request: &Request<'_>,
    file: FileHandle,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let target = resolve_at_mount(request, &file)?;
    let (space, _) = target.export.backend.statfs(&target.context, &target.handle).await?;
    answer(reply, in_blocks(&space))
}

/// Returns the space in the smallest blocks whose numbers fit.
fn in_blocks(space: &FsStat) -> StatfsOk {
    let mut bsize = SMALLEST_BLOCK;
    while space.total_bytes / u64::from(bsize) > u64::from(BLOCKS_MAX) && bsize < LARGEST_BLOCK {
        bsize *= 2;
    }
    let blocks = |bytes: u64| clamp(bytes / u64::from(bsize)).min(BLOCKS_MAX);
    StatfsOk {
        tsize: MAXDATA as u32,
        bsize,
        blocks: blocks(space.total_bytes),
        bfree: blocks(space.free_bytes),
        bavail: blocks(space.available_bytes),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{Proc, StatfsRes};

    use super::*;
    use crate::programs::nfs2::tests::Client;

    fn space(total_bytes: u64) -> FsStat {
        let (free_bytes, available_bytes) = (total_bytes / 2, total_bytes / 4);
        FsStat { total_bytes, free_bytes, available_bytes, total_files: 0, free_files: 0, available_files: 0 }
    }

    #[test]
    fn blocks_grow_until_their_number_fits() {
        for (total, expected) in [
            (0, (4096, 0, 0, 0)),
            (1 << 20, (4096, 256, 128, 64)),
            (1 << 43, (8192, 1 << 30, 1 << 29, 1 << 28)),
            ((1 << 43) - 1, (4096, BLOCKS_MAX, (1 << 30) - 1, (1 << 29) - 1)),
            (u64::MAX, (LARGEST_BLOCK, BLOCKS_MAX, BLOCKS_MAX, BLOCKS_MAX)),
        ] {
            let StatfsOk { bsize, blocks, bfree, bavail, .. } = in_blocks(&space(total));
            assert_eq!((bsize, blocks, bfree, bavail), expected, "{total} bytes");
        }
    }

    #[test]
    fn the_transfer_size_is_the_protocols() {
        let client = Client::new();
        match client.call::<StatfsRes>(Proc::STATFS, &client.root) {
            StatfsRes::Ok(ok) => assert_eq!((ok.tsize, ok.bfree <= ok.blocks), (8192, true)),
            StatfsRes::Fail(status) => panic!("{status:?}"),
        }
    }
}
