//! The other side of names: Bonnie++, with empty files in one directory.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{FILES_STEP, Settings, empty_caches};
use crate::plan::BONNIE;
use crate::runner::search_path;

/// The column of random creation in a line of results; each rate is followed by a CPU use (bon_csv2html(1)).
const RANDOM_CREATE: usize = 32;
/// The first column of the versions that have these columns.
const FORMATS: [&str; 2] = ["1.97", "1.98"];

/// Returns files a second of creation, stat and deletion in random order; `None` for a phase that is too short for it.
pub(super) fn names(settings: &Settings, place: &Path) -> Result<[Option<f64>; 3], String> {
    empty_caches(settings, None)?;
    let mut command = Command::new(BONNIE.name);
    // No large file; files of 0 bytes in one directory.
    command.arg("-d").arg(place).args(["-s", "0", "-q", "-m", "honesty", "-n"]);
    command.arg(format!("{}:0:0:1", settings.files / FILES_STEP));
    if rustix::process::geteuid().is_root() {
        // It refuses to run as root otherwise.
        command.args(["-u", "root"]);
    }
    let output = command.env("PATH", search_path()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("bonnie++: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("bonnie++ failed: {}: {said}", output.status));
    }
    rates(&String::from_utf8_lossy(&output.stdout))
}

fn rates(text: &str) -> Result<[Option<f64>; 3], String> {
    let is_result = |line: &&str| FORMATS.iter().any(|format| line.starts_with(&format!("{format},")));
    let line = text.lines().rfind(is_result).ok_or("bonnie++: no line of results in a known format")?;
    let columns: Vec<&str> = line.split(',').collect();
    let rate = |index: usize| match columns.get(RANDOM_CREATE + 2 * index) {
        // "If a test completes too quickly" (bonnie++(8)).
        Some(text) if text.starts_with('+') => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| format!("bonnie++: `{text}` is no rate")),
        None => Err("bonnie++: a line of results with too few columns".to_owned()),
    };
    Ok([rate(0)?, rate(1)?, rate(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_the_random_phases_are_read_and_short_ones_are_none() {
        // Columns as bon_csv2html(1) lists them; the last twelve are latencies.
        let line = |rates: &str| {
            format!(
                "1.98,2.00a,x,1,1795957466,,,,,,,,,,,,,,,,,1,,,,,11,1,12,1,13,1,{rates},,,,,,,18ms,4us,8ms,8ms,5us,4ms\n"
            )
        };
        assert_eq!(rates(&line("21000,9,+++++,+++,2300,9")), Ok([Some(21_000.0), None, Some(2300.0)]));
        assert_eq!(rates("Cannot open\n").unwrap_err(), "bonnie++: no line of results in a known format");
        assert_eq!(rates(&line("fast,9,1,1,1,1")).unwrap_err(), "bonnie++: `fast` is no rate");
        assert_eq!(rates("1.98,2.00a,x").unwrap_err(), "bonnie++: a line of results with too few columns");
    }
}
