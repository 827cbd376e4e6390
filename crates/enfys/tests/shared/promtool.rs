//! Prometheus' own checker.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Checks metrics with `promtool`, if it is installed.
pub(crate) fn check(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: there is no promtool");
        return;
    };
    child.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    let complaints = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(complaints, "");
}
