//! Result files: written at once or not at all, and read with a check of their version.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::{FORMAT, FORMAT_VERSION, RunResult};

/// Maximum bytes of a result file; an hour of a thousand clients by the second has some 50 MB.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Ending of result files.
const ENDING: &str = "json";

/// Writes a result into a directory, under the run's id. The file exists as a whole or not at all, even after a crash.
///
/// # Errors
/// The file and the system's reason.
pub fn save(directory: &Path, result: &RunResult) -> Result<PathBuf, String> {
    let path = directory.join(format!("{}.{ENDING}", result.run.id));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(directory).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    let mut text = serde_json::to_vec(result).map_err(|error| format!("{}: {error}", path.display()))?;
    text.push(b'\n');
    file.write_all(&text).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(path)
}

/// Reads a result file.
///
/// # Errors
/// The file, and why it is not a result.
pub fn read(path: &Path) -> Result<RunResult, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let length = fs::metadata(path).map_err(|error| failed(&error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(failed(&format_args!("{length} bytes: a result has at most {FILE_BYTES_MAX}")));
    }
    let text = fs::read(path).map_err(|error| failed(&error))?;
    parse(&text).map_err(|why| failed(&why))
}

/// Reads a result from its text.
///
/// # Errors
/// Why the text is not a result.
pub fn parse(text: &[u8]) -> Result<RunResult, String> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: Option<String>,
        format_version: Option<u32>,
    }
    let head: Head = serde_json::from_slice(text).map_err(|error| format!("no JSON object: {error}"))?;
    if head.format.as_deref() != Some(FORMAT) {
        return Err(format!("not a result of `enfys bench`: its `format` is not \"{FORMAT}\""));
    }
    match head.format_version {
        Some(FORMAT_VERSION) => {}
        Some(version) => {
            return Err(format!(
                "format version {version}; this program reads version {FORMAT_VERSION}. Use the program that wrote it, \
                 or run the plan again"
            ));
        }
        None => return Err("no `format_version`".to_owned()),
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Reads all results of files and directories; a directory's other files are ignored.
///
/// # Errors
/// The first file that cannot be read, or that nothing was found.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<RunResult>, String> {
    let mut results = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in result_files(path)? {
                results.push(read(&file)?);
            }
        } else {
            results.push(read(path)?);
        }
    }
    if results.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(format!("no results in {}", names.join(", ")));
    }
    Ok(results)
}

/// Returns the ids of the runs that a directory has complete results of; failed runs are repeated.
///
/// # Errors
/// If the directory or a result cannot be read. A missing directory has no results.
pub fn completed(directory: &Path) -> Result<BTreeSet<String>, String> {
    if !directory.exists() {
        return Ok(BTreeSet::new());
    }
    let mut ids = BTreeSet::new();
    for file in result_files(directory)? {
        let result = read(&file)?;
        if result.is_complete() {
            ids.insert(result.run.id);
        }
    }
    Ok(ids)
}

fn result_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let entries: Result<Vec<PathBuf>, _> =
        fs::read_dir(directory).map_err(failed)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files = entries.map_err(failed)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::tests::result;
    use super::super::{Outcome, RunResult};
    use super::*;

    #[test]
    fn a_result_is_read_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let written = result("enfys", "4.1", 2, 1000);
        let path = save(directory.path(), &written).unwrap();
        assert_eq!(read(&path).unwrap(), written);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn failed_runs_are_repeated_and_complete_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let done = result("enfys", "3", 1, 1000);
        let failed =
            RunResult { outcome: Outcome::Failed("no space".to_owned()), ..result("enfys", "3", 2, 1000) };
        save(directory.path(), &done).unwrap();
        save(directory.path(), &failed).unwrap();
        assert_eq!(completed(directory.path()).unwrap(), BTreeSet::from([done.run.id]));
        assert_eq!(completed(&directory.path().join("none")).unwrap(), BTreeSet::new());
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let mut newer = result("enfys", "3", 1, 1000);
        newer.format_version = 2;
        let newer = serde_json::to_vec(&newer).unwrap();
        let whole = serde_json::to_vec(&result("enfys", "3", 1, 1000)).unwrap();
        for (text, why) in [
            (&b"hello"[..], "no JSON object"),
            (b"{\"jobs\": []}", "not a result of `enfys bench`"),
            (b"{\"format\": \"enfys-bench-run\"}", "no `format_version`"),
            (&newer, "format version 2; this program reads version 1"),
            (&whole[..whole.len() / 2], "no JSON object"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn directories_are_read_in_order_of_names() {
        let directory = tempfile::tempdir().unwrap();
        for round in [3, 1, 2] {
            save(directory.path(), &result("enfys", "3", round, 1000)).unwrap();
        }
        fs::write(directory.path().join("notes.txt"), "no result").unwrap();
        let rounds: Vec<u32> =
            read_all(&[directory.path().to_owned()]).unwrap().iter().map(|result| result.run.round).collect();
        assert_eq!(rounds, [1, 2, 3]);
        let empty = tempfile::tempdir().unwrap();
        assert!(read_all(&[empty.path().to_owned()]).unwrap_err().starts_with("no results in"));
    }
}
