//! quotactl_fd(2), of Linux 5.14: the quota of a user or group, on the file system of a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use vfs::{Quota, QuotaKind, QuotaUse};

/// Bytes of a block in the limits of `struct if_dqblk` (`QIF_DQBLKSIZE`).
const BLOCK_BYTES: u64 = 1024;
/// `USRQUOTA`, `GRPQUOTA`.
const TYPES: [libc::c_uint; 2] = [0, 1];

/// Asks for a quota; `None` if the file system keeps none of this kind, or none for this ID.
///
/// # Errors
/// Those of quotactl(2); [`io::ErrorKind::PermissionDenied`] for others without CAP_SYS_ADMIN.
pub fn quota(file: BorrowedFd<'_>, kind: QuotaKind, id: u32) -> io::Result<Option<Quota>> {
    let kind = match kind {
        QuotaKind::User => TYPES[0],
        QuotaKind::Group => TYPES[1],
    };
    // QCMD of <sys/quota.h>.
    let command = libc::Q_GETQUOTA.cast_unsigned() << 8 | kind;
    let mut found = MaybeUninit::<libc::dqblk>::zeroed();
    // SAFETY: the kernel writes at most one `struct if_dqblk`, which `libc::dqblk` equals, to the last argument, and keeps no pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command, id, found.as_mut_ptr()) };
    if result == 0 {
        // SAFETY: it was zeroed, which is a valid value of each field, and the kernel has written over it.
        return Ok(Some(translate(unsafe { found.assume_init_ref() })));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Quotas are off; the file system has none; the kernel has none, or is older; there is none for this ID.
        Some(libc::ESRCH | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENOTTY | libc::ENOENT) => {
            Ok(None)
        }
        _ => Err(error),
    }
}

fn translate(found: &libc::dqblk) -> Quota {
    let limit = |blocks: u64, unit: u64| (blocks > 0).then(|| blocks.saturating_mul(unit));
    let deadline = |time: u64| (time > 0).then(|| i64::try_from(time).unwrap_or(i64::MAX));
    Quota {
        bytes: QuotaUse {
            used: found.dqb_curspace,
            soft: limit(found.dqb_bsoftlimit, BLOCK_BYTES),
            hard: limit(found.dqb_bhardlimit, BLOCK_BYTES),
            deadline: deadline(found.dqb_btime),
        },
        files: QuotaUse {
            used: found.dqb_curinodes,
            soft: limit(found.dqb_isoftlimit, 1),
            hard: limit(found.dqb_ihardlimit, 1),
            deadline: deadline(found.dqb_itime),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn limits_are_in_blocks_and_zero_is_none() {
        // SAFETY: zeros are a valid value of each field.
        let mut found: libc::dqblk = unsafe { MaybeUninit::zeroed().assume_init() };
        assert_eq!(translate(&found), Quota::default());
        (found.dqb_curspace, found.dqb_bhardlimit, found.dqb_bsoftlimit) = (4097, 8, u64::MAX);
        (found.dqb_curinodes, found.dqb_isoftlimit, found.dqb_itime) = (3, 5, 1_000_000);
        let quota = translate(&found);
        assert_eq!(
            (quota.bytes.used, quota.bytes.hard, quota.bytes.soft),
            (4097, Some(8192), Some(u64::MAX))
        );
        let files = QuotaUse { used: 3, soft: Some(5), hard: None, deadline: Some(1_000_000) };
        assert_eq!(quota.files, files);
    }

    #[test]
    fn a_file_system_without_quotas_has_none() {
        let proc = std::fs::File::open("/proc").unwrap();
        assert_eq!(quota(proc.as_fd(), QuotaKind::User, 0).unwrap(), None);
    }
}
