//! Signals of programs that are blocked in a read.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Outcome;
use crate::mounted::{Mounted, ends_within};
use crate::serve::{Kind, OnInterrupt};

/// Longest wait for the end of a killed program.
const DEAD_MAX: Duration = Duration::from_secs(10);
/// Longest wait for its requests.
const BLOCKED_MAX: Duration = Duration::from_secs(10);
/// Time between SIGCHLD and SIGKILL.
const BETWEEN: Duration = Duration::from_millis(500);
/// Time in which the CPU of watched requests is measured.
const WATCH: Duration = Duration::from_secs(5);

/// What becomes of a program.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum End {
    /// Seconds from SIGKILL to the end.
    Dead(f64),
    /// SIGCHLD, which has a handler with `SA_RESTART`, ended the read with EINTR.
    Eintr,
    /// Alive after 10 s.
    Never,
}

/// Starts a program whose threads read the file that is never answered, and waits until they are blocked.
fn start(mounted: &Mounted, threads: usize) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("blocked").arg(mounted.path("blocked")).arg(threads.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let start = Instant::now();
    while mounted.counters()?.blocked < threads as u64 {
        if start.elapsed() > BLOCKED_MAX {
            child.kill()?;
            return Err("the program does not read".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    // The threads wait in the kernel since before the file system saw their requests.
    Ok(child)
}

/// Kills a blocked program, after SIGCHLD if `interrupted`.
pub fn kill_blocked(kind: Kind, on_interrupt: OnInterrupt, interrupted: bool) -> Outcome<End> {
    let mut mounted = Mounted::new(kind, on_interrupt)?;
    let mut child = start(&mounted, 1)?;
    if interrupted {
        kill_process(Pid::from_child(&child), Signal::CHILD)?;
        if ends_within(&mut child, BETWEEN)? {
            let mut text = String::new();
            child.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
            return if text.trim() == libc::EINTR.to_string() {
                Ok(End::Eintr)
            } else {
                Err("the read ended".into())
            };
        }
    }
    let start = Instant::now();
    child.kill()?;
    if ends_within(&mut child, DEAD_MAX)? {
        return Ok(End::Dead(start.elapsed().as_secs_f64()));
    }
    mounted.kill()?;
    if !ends_within(&mut child, DEAD_MAX)? {
        return Err("a killed program outlives its mount".into());
    }
    Ok(End::Never)
}

/// The cost of many interrupted requests.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// CPU of the FUSE process while they wait, in cores.
    pub cores: f64,
    /// Seconds from SIGKILL to the end of the program.
    pub dead: f64,
}

/// Interrupts `threads` blocked threads of a program, and kills it.
pub fn watch(threads: usize) -> Outcome<Watched> {
    let mounted = Mounted::new(Kind::Enfys, OnInterrupt::Default)?;
    let mut child = start(&mounted, threads)?;
    for task in std::fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let tid: libc::pid_t = task?.file_name().to_string_lossy().parse()?;
        // SAFETY: the call has no pointers.
        unsafe { libc::syscall(libc::SYS_tgkill, child.id(), tid, libc::SIGCHLD) };
    }
    // INTERRUPTs arrive.
    thread::sleep(BETWEEN);
    let (cpu, since) = (mounted.cpu()?, Instant::now());
    thread::sleep(WATCH);
    let cores = (mounted.cpu()? - cpu) / since.elapsed().as_secs_f64();
    let start = Instant::now();
    child.kill()?;
    if !ends_within(&mut child, DEAD_MAX)? {
        return Err("killed threads do not end".into());
    }
    Ok(Watched { cores, dead: start.elapsed().as_secs_f64() })
}
