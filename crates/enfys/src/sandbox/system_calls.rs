//! A filter of system calls (seccomp(2)): those that serving and getent(1) use are allowed, all others fail.
//!
//! System calls of later kernels are not on the list, and so not allowed. A refused call fails with `ENOSYS`, as on a kernel without
//! it: libraries have a fallback for that error, and often none for `EPERM` (the C library for clone3(2)). The process is not
//! killed, since libraries probe for system calls.
//!
//! Only rare calls have rules about their arguments. For all others, the kernel (5.11) caches the decision and does not run the filter.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use store::error_text;

/// cachestat(2), of Linux 6.5; the `libc` crate does not name it.
const SYS_CACHESTAT: c_long = 451;
/// `CLONE_NEWTIME`, which the `libc` crate does not have on every platform.
const CLONE_NEWTIME: i32 = 0x80;
/// Flags that create namespaces. In its own namespace, a process has capabilities, which expose more of the kernel.
const NEW_NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | CLONE_NEWTIME;
/// Socket families: for clients, the service manager and name services, and netlink for the owners of connections.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// System calls that are allowed with any arguments.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Threads, memory, time, signals.
    libc::SYS_brk, libc::SYS_clock_getres, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_exit,
    libc::SYS_exit_group, libc::SYS_futex, libc::SYS_get_mempolicy, libc::SYS_get_robust_list, libc::SYS_getcpu,
    libc::SYS_getitimer, libc::SYS_getrandom, libc::SYS_gettid, libc::SYS_gettimeofday, libc::SYS_madvise,
    libc::SYS_membarrier, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_mremap,
    libc::SYS_msync, libc::SYS_munlock, libc::SYS_munmap, libc::SYS_nanosleep, libc::SYS_restart_syscall,
    libc::SYS_rseq, libc::SYS_rt_sigaction, libc::SYS_rt_sigpending, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait, libc::SYS_sched_getaffinity, libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler, libc::SYS_sched_yield, libc::SYS_set_robust_list, libc::SYS_set_tid_address,
    libc::SYS_setitimer, libc::SYS_sigaltstack, libc::SYS_signalfd4, libc::SYS_timer_create, libc::SYS_timer_delete,
    libc::SYS_timer_settime, libc::SYS_timerfd_create, libc::SYS_timerfd_gettime, libc::SYS_timerfd_settime,
    // This process, and those that it runs.
    libc::SYS_capget, libc::SYS_execve, libc::SYS_getegid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getgroups,
    libc::SYS_getpgid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getpriority, libc::SYS_getresgid,
    libc::SYS_getresuid, libc::SYS_getrusage, libc::SYS_getsid, libc::SYS_getuid, libc::SYS_kill,
    libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_prctl, libc::SYS_prlimit64, libc::SYS_setpgid,
    libc::SYS_setsid, libc::SYS_sysinfo, libc::SYS_tgkill, libc::SYS_times, libc::SYS_tkill, libc::SYS_umask,
    libc::SYS_uname, libc::SYS_wait4, libc::SYS_waitid,
    // Acting as callers.
    libc::SYS_setfsgid, libc::SYS_setfsuid, libc::SYS_setgroups,
    // Descriptors and events.
    libc::SYS_close, libc::SYS_close_range, libc::SYS_dup, libc::SYS_dup3, libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_fcntl,
    libc::SYS_flock, libc::SYS_ioctl, libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_pselect6,
    // Content.
    SYS_CACHESTAT, libc::SYS_copy_file_range, libc::SYS_fadvise64, libc::SYS_fallocate, libc::SYS_fdatasync, libc::SYS_fsync,
    libc::SYS_ftruncate, libc::SYS_lseek, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_pwrite64,
    libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readahead, libc::SYS_readv, libc::SYS_sendfile,
    libc::SYS_splice, libc::SYS_sync, libc::SYS_sync_file_range, libc::SYS_syncfs, libc::SYS_tee,
    libc::SYS_truncate, libc::SYS_vmsplice, libc::SYS_write, libc::SYS_writev,
    // Names and attributes.
    libc::SYS_chdir, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fanotify_init, libc::SYS_fanotify_mark,
    libc::SYS_fchdir, libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchmodat2, libc::SYS_fchown,
    libc::SYS_fchownat, libc::SYS_fgetxattr, libc::SYS_flistxattr, libc::SYS_fremovexattr, libc::SYS_fsetxattr,
    libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_getcwd, libc::SYS_getdents64, libc::SYS_getxattr,
    libc::SYS_inotify_add_watch, libc::SYS_inotify_init1, libc::SYS_inotify_rm_watch, libc::SYS_lgetxattr,
    libc::SYS_linkat, libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_lremovexattr, libc::SYS_lsetxattr,
    libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_name_to_handle_at, libc::SYS_newfstatat,
    libc::SYS_open_by_handle_at, libc::SYS_openat, libc::SYS_openat2, libc::SYS_readlinkat, libc::SYS_removexattr,
    libc::SYS_renameat2, libc::SYS_setxattr, libc::SYS_statfs, libc::SYS_statx, libc::SYS_symlinkat,
    libc::SYS_unlinkat, libc::SYS_utimensat,
    // Network.
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_connect, libc::SYS_getpeername,
    libc::SYS_getsockname, libc::SYS_getsockopt, libc::SYS_listen, libc::SYS_recvfrom, libc::SYS_recvmmsg,
    libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_setsockopt,
    libc::SYS_shutdown, libc::SYS_socketpair,
];

/// Older variants of these on this architecture.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_access, libc::SYS_alarm, libc::SYS_arch_prctl, libc::SYS_chmod, libc::SYS_chown, libc::SYS_creat,
    libc::SYS_dup2, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_fork,
    libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_getpgrp, libc::SYS_getrlimit, libc::SYS_inotify_init,
    libc::SYS_lchown, libc::SYS_link, libc::SYS_lstat, libc::SYS_mkdir, libc::SYS_mknod, libc::SYS_open,
    libc::SYS_pause, libc::SYS_pipe, libc::SYS_poll, libc::SYS_readlink, libc::SYS_rename, libc::SYS_renameat,
    libc::SYS_rmdir, libc::SYS_select, libc::SYS_setrlimit, libc::SYS_signalfd, libc::SYS_stat, libc::SYS_symlink,
    libc::SYS_time, libc::SYS_unlink, libc::SYS_utime, libc::SYS_utimes, libc::SYS_vfork,
];
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[c_long] = &[libc::SYS_getrlimit, libc::SYS_renameat, libc::SYS_setrlimit];
#[cfg(target_arch = "riscv64")]
const ALLOWED_HERE: &[c_long] = &[libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_riscv_flush_icache];

/// Key rings, in which Kerberos may store tickets.
#[cfg(feature = "krb5")]
const ALLOWED_TO_KERBEROS: &[c_long] = &[libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key];
#[cfg(not(feature = "krb5"))]
const ALLOWED_TO_KERBEROS: &[c_long] = &[];

/// System calls of the quota helper ([`crate::quotas`]): messages, the question, and what a process needs to live and end.
#[rustfmt::skip]
const HELPER: &[c_long] = &[
    libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_quotactl_fd, libc::SYS_close, libc::SYS_write,
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_madvise, libc::SYS_futex,
    libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_exit, libc::SYS_exit_group,
];

/// Filters the system calls of all threads of this process.
///
/// # Errors
/// One line: the kernel has no seccomp, or a container forbids it.
pub fn restrict() -> Result<(), String> {
    let rules = rules().map_err(|error| error.to_string())?;
    install(&program(rules)?, libc::SECCOMP_FILTER_FLAG_TSYNC).map_err(|error| error_text(&error))
}

/// Filters the system calls of the quota helper.
///
/// # Errors
/// As [`restrict`].
pub fn restrict_helper() -> Result<(), String> {
    let rules = HELPER.iter().map(|number| (*number, Vec::new())).collect();
    install(&program(rules)?, libc::SECCOMP_FILTER_FLAG_TSYNC).map_err(|error| error_text(&error))
}

fn program(rules: BTreeMap<c_long, Vec<SeccompRule>>) -> Result<BpfProgram, String> {
    let target = std::env::consts::ARCH.try_into();
    let target = target.map_err(|error: seccompiler::BackendError| error.to_string())?;
    let refused = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, target);
    filter.and_then(TryInto::try_into).map_err(|error| error.to_string())
}

/// Returns the allowed system calls, by number. One without rules is allowed with any arguments, others if one of the rules matches.
fn rules() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::BackendError> {
    let first = |comparison, value: i32| {
        let value = u64::from(value.cast_unsigned());
        SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, comparison, value)?])
    };
    let always = [ALLOWED, ALLOWED_HERE, ALLOWED_TO_KERBEROS].into_iter().flatten();
    let mut rules: BTreeMap<_, _> = always.map(|number| (*number, Vec::new())).collect();
    let namespaces = u64::from(NEW_NAMESPACES.cast_unsigned());
    // clone3(2) is not allowed: its flags are in memory, where no filter can see them.
    rules.insert(libc::SYS_clone, vec![first(SeccompCmpOp::MaskedEq(namespaces), 0)?]);
    // A separate umask for a thread.
    rules.insert(libc::SYS_unshare, vec![first(SeccompCmpOp::Eq, libc::CLONE_FS)?]);
    let families = FAMILIES.into_iter().map(|family| first(SeccompCmpOp::Eq, family));
    rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
    Ok(rules)
}

/// Installs a filter, which cannot be removed again.
///
/// Without `SECCOMP_FILTER_FLAG_SPEC_ALLOW`, kernels before 5.16 turn off speculative store bypass for all threads, which slows down
/// memory accesses. That protects against foreign code that measures times; this process runs no such code.
fn install(program: &BpfProgram, flags: libc::c_ulong) -> io::Result<()> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let program = libc::sock_fprog {
        len: program.len().try_into().map_err(too_long)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: `program` describes `len` instructions in memory, of the layout that the kernel's `sock_filter` has (both are
    // `repr(C)` of a u16, two u8 and a u32); the kernel copies them and writes nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match result {
        0 => Ok(()),
        // A positive result is a thread whose filters differ from this thread's.
        1.. => Err(io::Error::other("another thread has a filter of its own")),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;
    use crate::name_services::getent;

    #[test]
    fn dangerous_system_calls_are_not_allowed() {
        let rules = rules().unwrap();
        for number in [
            libc::SYS_acct,
            libc::SYS_bpf,
            libc::SYS_capset,
            libc::SYS_chroot,
            libc::SYS_clone3,
            libc::SYS_delete_module,
            libc::SYS_execveat,
            libc::SYS_finit_module,
            libc::SYS_init_module,
            libc::SYS_io_uring_setup,
            libc::SYS_kexec_load,
            libc::SYS_mount,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_perf_event_open,
            libc::SYS_personality,
            libc::SYS_pidfd_getfd,
            libc::SYS_pivot_root,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_ptrace,
            libc::SYS_quotactl,
            libc::SYS_quotactl_fd,
            libc::SYS_reboot,
            libc::SYS_seccomp,
            libc::SYS_setns,
            libc::SYS_setresuid,
            libc::SYS_setuid,
            libc::SYS_sethostname,
            libc::SYS_settimeofday,
            libc::SYS_swapon,
            libc::SYS_umount2,
            libc::SYS_userfaultfd,
        ] {
            assert!(!rules.contains_key(&number), "system call {number}");
        }
    }

    #[test]
    fn each_system_call_is_listed_once() {
        let mut all: Vec<_> = [ALLOWED, ALLOWED_HERE, ALLOWED_TO_KERBEROS].concat();
        all.sort_unstable();
        let listed = all.len();
        all.dedup();
        assert_eq!(all.len(), listed);
        let with_rules = [libc::SYS_clone, libc::SYS_unshare, libc::SYS_socket];
        assert!(
            with_rules.iter().all(|number| all.binary_search(number).is_err()),
            "their rules would have no effect"
        );
    }

    #[test]
    fn system_calls_made_by_number_are_listed() {
        fn scan(directory: &std::path::Path, listed: &str) {
            for entry in std::fs::read_dir(directory).expect("sources") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    scan(&path, listed);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("text");
                let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                for rest in text.split("libc::SYS_").skip(1).chain(text.split("const SYS_").skip(1)) {
                    let name = rest.split(ends).next().unwrap_or_default();
                    let is_listed = listed.split(ends).any(|word| word.strip_prefix("SYS_") == Some(name));
                    assert!(is_listed, "SYS_{name} of {} is not allowed", path.display());
                }
            }
        }
        let (listed, _) = include_str!("system_calls.rs").split_once("#[cfg(test)]\nmod tests").unwrap();
        for of in ["localfs", "net", "server", "store", "vfs"] {
            scan(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src"), listed);
        }
    }

    /// Environment variable of the child process of this test.
    const IS_CHILD: &str = "ENFYS_TEST_FILTERED";

    #[test]
    fn other_system_calls_fail_and_getent_works() {
        if std::env::var_os(IS_CHILD).is_none() {
            let name = "other_system_calls_fail_and_getent_works";
            let child = Command::new(std::env::current_exe().unwrap()).arg(name).env(IS_CHILD, "1").output();
            let child = child.unwrap();
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
            assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
            return;
        }
        let socket_of_another_family = || socket(AddressFamily::KEY, SocketType::RAW, None).err();
        assert_ne!(socket_of_another_family(), Some(Errno::NOSYS));
        rustix::thread::set_no_new_privs(true).unwrap();
        restrict().expect("a filter");
        assert_eq!(rustix::process::chroot("/"), Err(Errno::NOSYS));
        assert_eq!(rustix::system::sethostname(b"taken over"), Err(Errno::NOSYS));
        assert_eq!(socket_of_another_family(), Some(Errno::NOSYS));
        assert_eq!(socket(AddressFamily::PACKET, SocketType::RAW, None).err(), Some(Errno::NOSYS));
        for allowed in [AddressFamily::INET, AddressFamily::INET6, AddressFamily::UNIX] {
            assert_ne!(socket(allowed, SocketType::STREAM, None).err(), Some(Errno::NOSYS));
        }
        socket(AddressFamily::NETLINK, SocketType::RAW, None).expect("to look up the owner of a connection");
        // Threads and programs inherit the filter, and can still be started.
        let of_thread = std::thread::spawn(|| rustix::process::chroot("/"));
        assert_eq!(of_thread.join().unwrap(), Err(Errno::NOSYS));
        let root = getent::query("passwd", Some("root"), 4096).expect("an answer");
        assert!(root.is_some_and(|line| line.starts_with("root:")));
        let output = Command::new("unshare").args(["--user", "true"]).output().expect("it runs");
        assert!(
            !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("not implemented")
        );
    }
}
