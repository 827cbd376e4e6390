//! Signals of a thread that waits for a request, from `/proc`.

use std::fs;

use rustix::process::Signal;

/// `PF_EXITING` of `linux/sched.h`: the thread is in exit(2).
const PF_EXITING: u32 = 0x4;

/// Whether a thread can continue to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalState {
    /// No pending signal ends it.
    NotFatal,
    /// A pending signal ends it, as soon as its request is answered.
    Fatal,
    /// Not visible: gone, or outside of this process's `/proc`.
    Unknown,
}

/// Returns the effect of the pending signals on the thread.
pub(crate) fn signal_state(tid: u32) -> SignalState {
    if tid == 0 {
        return SignalState::Unknown;
    }
    // Works for every thread, although a listing of /proc shows only processes.
    match fs::read(format!("/proc/{tid}/status")) {
        Ok(status) => parse_signals(&status),
        Err(_) => SignalState::Unknown,
    }
}

/// Returns whether the thread is exiting. A thread that is not visible is not.
pub(crate) fn is_exiting(tid: u32) -> bool {
    tid != 0 && fs::read(format!("/proc/{tid}/stat")).is_ok_and(|stat| parse_exiting(&stat))
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Signals whose default action does not end the process.
fn harmless() -> u64 {
    [
        Signal::CHILD,
        Signal::CONT,
        Signal::URG,
        Signal::WINCH,
        Signal::STOP,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
    ]
    .into_iter()
    .fold(0, |set, signal| set | bit(signal))
}

fn parse_signals(status: &[u8]) -> SignalState {
    let set = |name: &str| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
        u64::from_str_radix(std::str::from_utf8(line.trim_ascii()).ok()?, 16).ok()
    };
    let (Some(own), Some(shared)) = (set("SigPnd:"), set("ShdPnd:")) else { return SignalState::Unknown };
    let (Some(blocked), Some(ignored), Some(caught)) = (set("SigBlk:"), set("SigIgn:"), set("SigCgt:"))
    else {
        return SignalState::Unknown;
    };
    let pending = own | shared;
    // A fatal signal of a process becomes SIGKILL of each of its threads.
    let kill = pending & bit(Signal::KILL);
    let by_default = pending & !(blocked | ignored | caught | harmless());
    if kill | by_default != 0 { SignalState::Fatal } else { SignalState::NotFatal }
}

fn parse_exiting(stat: &[u8]) -> bool {
    // The name in parentheses may contain anything. Flags are the seventh field after it.
    let after = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let flags = after.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).nth(6);
    let flags = flags.and_then(|field| std::str::from_utf8(field).ok()?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> SignalState {
        let text = format!(
            "Name:\tSigPnd: 1\nThreads:\t1\nSigQ:\t0/31\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        );
        parse_signals(text.as_bytes())
    }

    const KILL: u64 = 1 << 8;
    const TERM: u64 = 1 << 14;
    const CHLD: u64 = 1 << 16;
    const ALRM: u64 = 1 << 13;
    const WINCH: u64 = 1 << 27;
    const TSTP: u64 = 1 << 19;

    #[test]
    fn kill_is_fatal_even_if_it_seems_blocked() {
        assert_eq!(status(KILL, 0, !0, 0, 0), SignalState::Fatal);
        assert_eq!(status(0, KILL, 0, 0, 0), SignalState::Fatal);
    }

    #[test]
    fn default_action_is_fatal_unless_harmless() {
        assert_eq!(status(0, TERM, 0, 0, 0), SignalState::Fatal);
        assert_eq!(status(0, CHLD | WINCH | TSTP, 0, 0, 0), SignalState::NotFatal);
    }

    #[test]
    fn blocked_ignored_and_caught_signals_are_not_fatal() {
        assert_eq!(status(0, TERM, TERM, 0, 0), SignalState::NotFatal);
        assert_eq!(status(0, TERM, 0, TERM, 0), SignalState::NotFatal);
        assert_eq!(status(0, TERM | ALRM, 0, 0, TERM | ALRM), SignalState::NotFatal);
    }

    #[test]
    fn text_without_signals_is_unknown() {
        assert_eq!(parse_signals(b""), SignalState::Unknown);
        assert_eq!(parse_signals(b"SigPnd:\tzz\nShdPnd:\t0\n"), SignalState::Unknown);
    }

    #[test]
    fn exiting_is_read_behind_a_strange_name() {
        assert!(parse_exiting(b"12 (a) S 4 (b) R 1 2 3 0 -1 4194308 0 0"));
        assert!(!parse_exiting(b"12 (a) S 4 (b) R 1 2 3 0 -1 4194304 0 0"));
        assert!(!parse_exiting(b""));
    }

    #[test]
    fn this_thread_lives() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_eq!(signal_state(tid), SignalState::NotFatal);
        assert!(!is_exiting(tid));
        assert_eq!(signal_state(0), SignalState::Unknown);
    }
}
