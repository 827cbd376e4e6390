//! The other side of data rates: fio, with one synchronous call at a time in each thread.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Data, Settings, empty_caches, file_of};
use crate::plan::FIO;
use crate::runner::search_path;

/// Returns a rate in the unit of the measure.
pub(super) fn data(settings: &Settings, place: &Path, data: Data) -> Result<f64, String> {
    let fresh = place.join("fio");
    let is_fresh = data == Data::SequentialWrite;
    let mut arguments = arguments(settings, data);
    if is_fresh {
        // A file for each thread, created at its open.
        std::fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", fresh.display()))?;
        arguments.push(format!("--directory={}", escaped(&fresh)));
        empty_caches(settings, None)?;
    } else {
        let file = file_of(place, workload(data))?;
        arguments.push(format!("--filename={}", escaped(&file)));
        empty_caches(settings, Some(&file))?;
    }
    let text = run(&arguments)?;
    if is_fresh {
        std::fs::remove_dir_all(&fresh).map_err(|error| format!("{}: {error}", fresh.display()))?;
    }
    rate(&text, data)
}

/// The workload whose file is used.
fn workload(data: Data) -> &'static str {
    match data {
        Data::SequentialRead => "sequential-read",
        Data::RandomWrite => "random-write",
        Data::RandomRead | Data::SequentialWrite => "random-read",
    }
}

/// A colon separates file names of fio.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(':', "\\:")
}

fn arguments(settings: &Settings, data: Data) -> Vec<String> {
    let kind = match data {
        Data::SequentialWrite => "write",
        Data::SequentialRead => "read",
        Data::RandomRead => "randread",
        Data::RandomWrite => "randwrite",
    };
    let mut arguments: Vec<String> = [
        "--output-format=json",
        "--name=honesty",
        "--ioengine=psync",
        "--thread",
        "--group_reporting",
        // The caches are emptied before. Nothing else is done to the file.
        "--invalidate=0",
        "--fallocate=none",
        "--norandommap",
        "--randrepeat=0",
        // The same bytes in each write.
        "--scramble_buffers=0",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--rw={kind}"));
    arguments.push(format!("--bs={}", data.io_bytes()));
    arguments.push(format!("--size={}", settings.file_bytes));
    arguments.push(format!("--numjobs={}", settings.threads));
    match data {
        Data::SequentialWrite => arguments.extend(["--create_on_open=1", "--end_fsync=1"].map(str::to_owned)),
        _ => arguments.push(format!("--time_based --runtime={}ms", settings.duration.as_millis())),
    }
    if data == Data::RandomWrite {
        arguments.push("--sync=1".to_owned());
    }
    arguments.iter().flat_map(|argument| argument.split(' ')).map(str::to_owned).collect()
}

fn run(arguments: &[String]) -> Result<String, String> {
    let mut command = Command::new(FIO.name);
    command.args(arguments).env("PATH", search_path()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("fio: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [&output.stderr[..], &output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rfind(|line| line.contains("fio:")).unwrap_or_default();
    Err(format!("fio failed: {}: {last}", output.status))
}

/// Reads the rate from fio's JSON, before which it may have written notes.
fn rate(text: &str, data: Data) -> Result<f64, String> {
    let wrong = |what: &str| format!("fio: {what}");
    let start = text.find('{').ok_or_else(|| wrong("no JSON"))?;
    let output: Value = serde_json::from_str(&text[start..]).map_err(|error| wrong(&error.to_string()))?;
    let job = &output["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        return Err(wrong(&format!("error {}", job["error"])));
    }
    let direction = &job[if data.is_write() { "write" } else { "read" }];
    let rate = if data.is_sequential() {
        direction["bw_bytes"].as_f64().map(|bytes| bytes / 1e6)
    } else {
        direction["iops"].as_f64()
    };
    rate.filter(|rate| *rate > 0.0).ok_or_else(|| wrong("no rate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_direction_and_errors_are_none() {
        let text = r#"note: both iodepth >= 1
            {"jobs": [{"error": 0, "read": {"bw_bytes": 5000000, "iops": 7.5}, "write": {"bw_bytes": 0, "iops": 0.0}}]}"#;
        assert_eq!(rate(text, Data::SequentialRead), Ok(5.0));
        assert_eq!(rate(text, Data::RandomRead), Ok(7.5));
        assert_eq!(rate(text, Data::RandomWrite), Err("fio: no rate".to_owned()));
        let failed = text.replace("\"error\": 0", "\"error\": 28");
        assert_eq!(rate(&failed, Data::RandomRead), Err("fio: error 28".to_owned()));
        assert!(rate("fio: no such option", Data::RandomRead).is_err());
    }
}
