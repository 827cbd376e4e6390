//! The system's name services, asked by getent(1): all that nsswitch.conf(5) names.
//!
//! The rejected alternative is getpwnam(3) and its kin: a directory service that does not answer would keep a thread, where it
//! costs a process that can be ended.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use store::error_text;

/// How long the name services may take until the next piece of an answer about one name.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where they list all names, at the start.
const LIST_PATIENCE: Duration = Duration::from_secs(60);
/// What getent(1) ends with where there is no such entry.
const NO_ENTRY: i32 = 2;

/// What `getent DATABASE NAME` prints, or `getent DATABASE` where there is no name; none where there is no such entry.
///
/// # Errors
/// Why there is no answer: among others, nothing came in time, or more than `bytes_max`.
pub fn print(database: &str, name: Option<&str>, bytes_max: usize) -> Result<Option<String>, String> {
    let failed = |why: String| format!("getent {database}: {why}");
    let mut child = Command::new("getent")
        .args([database, "--"])
        .args(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(error_text(&error)))?;
    let patience = if name.is_some() { PATIENCE } else { LIST_PATIENCE };
    let printed = read_within(&mut child, patience, bytes_max);
    if printed.is_err() {
        // It may have ended meanwhile.
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

/// All that a program prints until it closes its output; it may pause for `patience`.
fn read_within(child: &mut Child, patience: Duration, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut out = child.stdout.take().ok_or("no output")?;
    let (mut printed, mut chunk) = (Vec::new(), [0; 4096]);
    let mut deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut wanted = [PollFd::new(&out, PollFlags::IN)];
        match poll(&mut wanted, Some(&left)) {
            Ok(0) => return Err(format!("no answer within {} s", patience.as_secs())),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        match out.read(&mut chunk).map_err(|error| error_text(&error))? {
            0 => return Ok(printed),
            length => printed.extend_from_slice(&chunk[..length]),
        }
        if printed.len() > bytes_max {
            return Err(format!("an answer of more than {bytes_max} bytes"));
        }
        deadline = Instant::now() + patience;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printing(script: &str, patience: Duration) -> Result<Vec<u8>, String> {
        let mut child =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let printed = read_within(&mut child, patience, 10);
        child.kill().expect("a child");
        child.wait().expect("a child");
        printed
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        assert!(printing("exec sleep 60", Duration::ZERO).unwrap_err().contains("no answer"));
    }

    #[test]
    fn an_answer_has_an_end() {
        let long = Duration::from_secs(60);
        assert_eq!(printing("echo 123456789; exec sleep 0", long).as_deref(), Ok(&b"123456789\n"[..]));
        assert!(printing("echo 1234567890; exec sleep 60", long).unwrap_err().contains("more than 10"));
    }

    #[test]
    fn lists_and_entries_are_told_apart() {
        let root = print("passwd", Some("root"), 4096).expect("an answer");
        assert!(root.is_some_and(|line| line.starts_with("root:")));
        assert_eq!(print("passwd", Some("no-such-user-of-enfys"), 4096), Ok(None));
        let all = print("group", None, 1 << 20).expect("an answer").expect("groups");
        assert!(all.lines().any(|line| line.starts_with("root:")));
        // Not taken for an option.
        assert_eq!(print("passwd", Some("--help"), 4096), Ok(None));
    }
}
