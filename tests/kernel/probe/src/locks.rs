//! Locks of two processes. Each process is this program (`hold`), controlled line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::sys::{self, Lock};
use crate::{Checked, same, told};

const END: u64 = i64::MAX as u64;

/// Checks byte-range locks: conflicts, upgrades, splits, waiting, and release by close and by the end of the process.
pub(crate) fn check(path: &Path, other: &Path) -> Checked {
    let (mut a, mut b) = (Holder::new(path)?, Holder::new(other)?);
    conflicts(&mut a, &mut b)?;
    splits_and_upgrades(&mut a, &mut b)?;
    // NLM of version 2 has offsets of 32 bits.
    if std::env::var("VERSION").as_deref() != Ok("2") {
        far_ends(&mut a, &mut b)?;
    }
    waits(&mut a, &mut b)?;
    released_by_close(&mut a, &mut b)?;
    released_by_death(a, &mut b)
}

fn conflicts(a: &mut Holder, b: &mut Holder) -> Checked {
    a.expect("lock write 0 100", "ok")?;
    b.expect("lock write 50 60", "busy")?;
    b.expect("lock read 99 200", "busy")?;
    b.expect("test write 0 200", "write 0 100")?;
    b.expect("lock write 100 200", "ok")?;
    a.expect("test read 0 END", "write 100 200")?;
    a.expect("lock unlock 0 END", "ok")?;
    b.expect("lock unlock 0 END", "ok")?;
    a.expect("lock read 0 10", "ok")?;
    b.expect("lock read 0 10", "ok")?;
    a.expect("lock write 0 10", "busy")?;
    a.expect("lock unlock 0 END", "ok")?;
    b.expect("lock unlock 0 END", "ok")?;
    println!("ok: conflicts");
    Ok(())
}

fn splits_and_upgrades(a: &mut Holder, b: &mut Holder) -> Checked {
    a.expect("lock write 0 300", "ok")?;
    a.expect("lock unlock 100 200", "ok")?;
    b.expect("lock write 100 200", "ok")?;
    b.expect("lock write 99 100", "busy")?;
    b.expect("lock write 200 201", "busy")?;
    b.expect("lock unlock 0 END", "ok")?;
    // Two locks become one of another kind, and both ends hold.
    a.expect("lock read 0 300", "ok")?;
    b.expect("test write 0 END", "read 0 300")?;
    b.expect("lock read 0 300", "ok")?;
    b.expect("lock unlock 0 END", "ok")?;
    a.expect("lock write 0 300", "ok")?;
    b.expect("test read 0 END", "write 0 300")?;
    a.expect("lock unlock 0 END", "ok")?;
    println!("ok: splits and upgrades");
    Ok(())
}

fn far_ends(a: &mut Holder, b: &mut Holder) -> Checked {
    a.expect("lock write 5000000000 END", "ok")?;
    b.expect("lock write 9223372036854775806 END", "busy")?;
    b.expect("lock write 4999999999 5000000000", "ok")?;
    b.expect("test write 0 END", "write 5000000000 END")?;
    a.expect("lock unlock 0 END", "ok")?;
    b.expect("lock unlock 0 END", "ok")?;
    println!("ok: ends beyond 4 GiB");
    Ok(())
}

fn waits(a: &mut Holder, b: &mut Holder) -> Checked {
    a.expect("lock write 0 10", "ok")?;
    // No answer yet: b waits in the kernel. The next line answers the earlier command.
    b.tell("wait write 0 10")?;
    a.expect("lock write 20 30", "ok")?;
    a.expect("lock unlock 0 10", "ok")?;
    same("the waiting process gets the lock", "ok".to_owned(), b.answer()?)?;
    a.expect("lock write 0 10", "busy")?;
    a.expect("lock unlock 0 END", "ok")?;
    b.expect("lock unlock 0 END", "ok")?;
    println!("ok: waits");
    Ok(())
}

fn released_by_close(a: &mut Holder, b: &mut Holder) -> Checked {
    a.expect("lock write 0 10", "ok")?;
    b.expect("lock write 0 10", "busy")?;
    a.expect("reopen", "ok")?;
    b.expect("lock write 0 10", "ok")?;
    b.expect("lock unlock 0 END", "ok")?;
    println!("ok: released by close");
    Ok(())
}

fn released_by_death(mut a: Holder, b: &mut Holder) -> Checked {
    a.expect("lock write 0 10", "ok")?;
    b.expect("lock write 0 10", "busy")?;
    a.kill()?;
    b.expect("wait write 0 10", "ok")?;
    println!("ok: released by death");
    Ok(())
}

/// Checks flock(2), which an NFS client turns into a lock of the whole file.
pub(crate) fn check_flock(path: &Path, other: &Path) -> Checked {
    let (mut a, mut b) = (Holder::new(path)?, Holder::new(other)?);
    a.expect("flock write", "ok")?;
    b.expect("flock read", "busy")?;
    b.expect("flock write", "busy")?;
    a.expect("flock unlock", "ok")?;
    b.expect("flock read", "ok")?;
    a.expect("flock read", "ok")?;
    a.expect("flock unlock", "ok")?;
    b.expect("flock write", "ok")?;
    a.expect("flock read", "busy")?;
    b.kill()?;
    a.expect("flock-wait write", "ok")?;
    println!("ok: flock");
    Ok(())
}

/// A process that holds locks.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn new(path: &Path) -> Result<Holder, String> {
        let program = std::env::current_exe().map_err(told("own path"))?;
        let mut child = Command::new(program)
            .arg("hold")
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(told("a holder"))?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        Ok(Holder { child, input, output: BufReader::new(output) })
    }

    fn tell(&mut self, line: &str) -> Checked {
        writeln!(self.input, "{line}").map_err(told(line))
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(told("a holder's answer"))?;
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, line: &str, answer: &str) -> Checked {
        self.tell(line)?;
        same(line, answer.to_owned(), self.answer()?)
    }

    fn kill(&mut self) -> Checked {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(told("kill"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads commands from standard input, one per line, and answers each with a line.
pub(crate) fn hold(path: &Path) -> Checked {
    let open =
        || File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(told(path));
    let mut file = open()?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(told("standard input"))?;
        let answer = match line.as_str() {
            "reopen" => {
                drop(file);
                file = open()?;
                "ok".to_owned()
            }
            line => obey(&file, line)?,
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}").and_then(|()| output.flush()).map_err(told("standard output"))?;
    }
    Ok(())
}

fn obey(file: &File, line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["lock", kind, start, end] => said(sys::set_lock(file, lock(kind)?, &range(start, end)?, false)),
        ["wait", kind, start, end] => said(sys::set_lock(file, lock(kind)?, &range(start, end)?, true)),
        ["test", kind, start, end] => {
            let found = sys::test_lock(file, lock(kind)?, &range(start, end)?).map_err(told(line))?;
            Ok(found.map_or("free".to_owned(), |(kind, range)| describe(kind, &range)))
        }
        ["flock", "read"] => {
            said(flock(file, FlockOperation::NonBlockingLockShared).map_err(io::Error::from))
        }
        ["flock", "write"] => {
            said(flock(file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from))
        }
        ["flock-wait", "write"] => said(flock(file, FlockOperation::LockExclusive).map_err(io::Error::from)),
        ["flock", "unlock"] => said(flock(file, FlockOperation::Unlock).map_err(io::Error::from)),
        _ => Err(format!("unknown: {line}")),
    }
}

fn said(result: io::Result<()>) -> Result<String, String> {
    match result {
        Ok(()) => Ok("ok".into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::EACCES) => {
            Ok("busy".into())
        }
        Err(error) => Ok(error.to_string()),
    }
}

fn lock(word: &str) -> Result<Lock, String> {
    match word {
        "read" => Ok(Lock::Read),
        "write" => Ok(Lock::Write),
        "unlock" => Ok(Lock::Unlock),
        _ => Err(format!("unknown kind of lock: {word}")),
    }
}

fn range(start: &str, end: &str) -> Result<Range<u64>, String> {
    let number = |word: &str| if word == "END" { Ok(END) } else { word.parse().map_err(told(word)) };
    Ok(number(start)?..number(end)?)
}

fn describe(kind: Lock, range: &Range<u64>) -> String {
    let kind = match kind {
        Lock::Read => "read",
        Lock::Write | Lock::Unlock => "write",
    };
    let end = if range.end == END { "END".to_owned() } else { range.end.to_string() };
    format!("{kind} {} {end}", range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_hold_on_a_local_file_system() {
        let path = std::env::temp_dir().join(format!("kernel-probe-hold-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file");
        assert_eq!(obey(&file, "test write 0 END").expect("an answer"), "free");
        assert_eq!(describe(Lock::Read, &(5..END)), "read 5 END");
        assert!(obey(&file, "lock sideways 0 1").is_err());
        std::fs::remove_file(&path).expect("removed");
    }
}
