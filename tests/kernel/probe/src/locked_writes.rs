//! Writes under one lock, which is held while the server is restarted.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::sys::{self, Lock};
use crate::{Checked, same, told};

/// Number of records after which the file is synced.
const RECORDS_PER_SYNC: usize = 16;
/// Pause between two records: many programs at once should be limited by the server, not by the processor.
const PAUSE: Duration = Duration::from_millis(2);

/// Appends numbered records to `path` under a lock of the whole file until `stop` exists; no other program may have written meanwhile.
pub(crate) fn check(path: &Path, stop: &Path) -> Checked {
    let mut file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(told(path))?;
    sys::set_lock(&file, Lock::Write, &(0..i64::MAX as u64), false).map_err(told("the lock"))?;
    let mut written = String::new();
    for number in 0_usize.. {
        let record = format!("record {number}\n");
        file.write_all(record.as_bytes()).map_err(told(path))?;
        written.push_str(&record);
        if number.is_multiple_of(RECORDS_PER_SYNC) {
            file.sync_all().map_err(told(path))?;
            if stop.exists() {
                break;
            }
        }
        thread::sleep(PAUSE);
    }
    same("what is in the file", written, fs::read_to_string(path).map_err(told(path))?)
}
