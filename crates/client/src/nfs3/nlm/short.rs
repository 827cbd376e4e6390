//! Arguments and results of NLM versions 1 and 3, which go with NFS version 2: offsets and lengths have 32 bits.

use protocol::nlm::{CancelArgs, Holder, Lock, LockArgs, TestArgs, TestReply, TestRes, UnlockArgs};
use xdr::Encode;

use crate::errno::Errno;
use crate::error::OpError;

/// Arguments with a range.
pub(super) trait Ranged: Encode {
    /// The arguments with 32 bits.
    type Short: Encode;

    /// Converts the arguments.
    ///
    /// # Errors
    /// EOVERFLOW if the range ends after 4 GiB, and not at the end of the file.
    fn shortened(&self) -> Result<Self::Short, OpError>;
}

impl Ranged for TestArgs {
    type Short = TestArgs<u32>;

    fn shortened(&self) -> Result<TestArgs<u32>, OpError> {
        let Self { cookie, exclusive, alock } = self;
        Ok(TestArgs { cookie: cookie.clone(), exclusive: *exclusive, alock: shortened(alock)? })
    }
}

impl Ranged for LockArgs {
    type Short = LockArgs<u32>;

    fn shortened(&self) -> Result<LockArgs<u32>, OpError> {
        let Self { cookie, block, exclusive, alock, reclaim, state } = self;
        let (block, exclusive, reclaim, state) = (*block, *exclusive, *reclaim, *state);
        Ok(LockArgs { cookie: cookie.clone(), block, exclusive, alock: shortened(alock)?, reclaim, state })
    }
}

impl Ranged for CancelArgs {
    type Short = CancelArgs<u32>;

    fn shortened(&self) -> Result<CancelArgs<u32>, OpError> {
        let Self { cookie, block, exclusive, alock } = self;
        let (block, exclusive) = (*block, *exclusive);
        Ok(CancelArgs { cookie: cookie.clone(), block, exclusive, alock: shortened(alock)? })
    }
}

impl Ranged for UnlockArgs {
    type Short = UnlockArgs<u32>;

    fn shortened(&self) -> Result<UnlockArgs<u32>, OpError> {
        Ok(UnlockArgs { cookie: self.cookie.clone(), alock: shortened(&self.alock)? })
    }
}

fn shortened(lock: &Lock) -> Result<Lock<u32>, OpError> {
    let too_far = || OpError::Invalid(Errno::EOVERFLOW, "locks of NFS version 2 end before 4 GiB");
    let last = match lock.l_len {
        0 => lock.l_offset,
        length => lock.l_offset.saturating_add(length - 1),
    };
    u32::try_from(last).map_err(|_| too_far())?;
    Ok(Lock {
        caller_name: lock.caller_name.clone(),
        fh: lock.fh.clone(),
        oh: lock.oh.clone(),
        svid: lock.svid,
        l_offset: u32::try_from(lock.l_offset).map_err(|_| too_far())?,
        l_len: u32::try_from(lock.l_len).map_err(|_| too_far())?,
    })
}

/// Converts the results of TEST.
pub(super) fn widened(TestRes { cookie, stat }: TestRes<u32>) -> TestRes {
    let stat = match stat {
        TestReply::Denied(Holder { exclusive, svid, oh, l_offset, l_len }) => {
            let (l_offset, l_len) = (l_offset.into(), l_len.into());
            TestReply::Denied(Holder { exclusive, svid, oh, l_offset, l_len })
        }
        TestReply::Other(stat) => TestReply::Other(stat),
    };
    TestRes { cookie, stat }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_32_bits_are_sent_and_longer_ones_refused() {
        let lock = |l_offset, l_len| Lock {
            caller_name: Default::default(),
            fh: Default::default(),
            oh: Default::default(),
            svid: 7,
            l_offset,
            l_len,
        };
        let most = u64::from(u32::MAX);
        for (offset, length) in [(0, 0), (most, 0), (most, 1), (1, most), (0, most)] {
            let short = shortened(&lock(offset, length)).unwrap();
            assert_eq!(Lock::from(short), lock(offset, length));
        }
        for (offset, length) in [(most + 1, 0), (most, 2), (0, most + 1), (u64::MAX, u64::MAX), (1 << 40, 7)]
        {
            let error = shortened(&lock(offset, length)).unwrap_err();
            assert_eq!(error.errno(), Errno::EOVERFLOW, "{offset} {length}");
        }
    }
}
