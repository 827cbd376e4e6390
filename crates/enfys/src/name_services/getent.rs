//! The system's name services (nsswitch.conf(5)), queried by running getent(1).
//!
//! Rejected: getpwnam(3) and similar functions. A directory service that does not answer would block a thread, while a process
//! can be killed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use store::error_text;

/// Longest pause in the answer to a query for one name.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest pause in a list of all names, which is read at the start.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Exit status of getent(1) if there is no such entry.
const NO_ENTRY: i32 = 2;

/// Returns the output of `getent DATABASE NAME`, or of `getent DATABASE` without a name; `None` if there is no such entry.
///
/// # Errors
/// One line: getent failed, did not answer in time, or printed more than `bytes_max` bytes.
pub fn query(database: &str, name: Option<&str>, bytes_max: usize) -> Result<Option<String>, String> {
    let failed = |why: String| format!("getent {database}: {why}");
    let mut child = Command::new("getent")
        .args([database, "--"])
        .args(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(error_text(&error)))?;
    let timeout = if name.is_some() { TIMEOUT } else { LIST_TIMEOUT };
    let printed = read_output(&mut child, timeout, bytes_max);
    if printed.is_err() {
        // It may have exited.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| failed(error_text(&error)))?;
    let printed = printed.map_err(failed)?;
    match status.code() {
        Some(0) => Ok(Some(String::from_utf8_lossy(&printed).into_owned())),
        Some(NO_ENTRY) => Ok(None),
        _ => Err(failed(status.to_string())),
    }
}

/// Reads the output of a program, which may pause for `timeout`.
fn read_output(child: &mut Child, timeout: Duration, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut out = child.stdout.take().ok_or("no output")?;
    let (mut printed, mut chunk) = (Vec::new(), [0; 4096]);
    let mut deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut wanted = [PollFd::new(&out, PollFlags::IN)];
        match poll(&mut wanted, Some(&left)) {
            Ok(0) => return Err(format!("no answer within {} s", timeout.as_secs())),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        match out.read(&mut chunk).map_err(|error| error_text(&error))? {
            0 => return Ok(printed),
            length => printed.extend_from_slice(&chunk[..length]),
        }
        if printed.len() > bytes_max {
            return Err(format!("an answer longer than {bytes_max} bytes"));
        }
        deadline = Instant::now() + timeout;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_of(script: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        let mut child =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let printed = read_output(&mut child, timeout, 10);
        child.kill().expect("a child");
        child.wait().expect("a child");
        printed
    }

    #[test]
    fn a_program_without_an_answer_is_killed() {
        assert!(output_of("exec sleep 60", Duration::ZERO).unwrap_err().contains("no answer"));
    }

    #[test]
    fn an_answer_is_bounded() {
        let long = Duration::from_secs(60);
        assert_eq!(output_of("echo 123456789; exec sleep 0", long).as_deref(), Ok(&b"123456789\n"[..]));
        assert!(output_of("echo 1234567890; exec sleep 60", long).unwrap_err().contains("longer than 10"));
    }

    #[test]
    fn entries_and_lists_are_read() {
        let root = query("passwd", Some("root"), 4096).expect("an answer");
        assert!(root.is_some_and(|line| line.starts_with("root:")));
        assert_eq!(query("passwd", Some("no-such-user-of-enfys"), 4096), Ok(None));
        let all = query("group", None, 1 << 20).expect("an answer").expect("groups");
        assert!(all.lines().any(|line| line.starts_with("root:")));
        // Not parsed as an option.
        assert_eq!(query("passwd", Some("--help"), 4096), Ok(None));
    }
}
