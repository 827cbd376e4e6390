//! A file that was sent to the server without a COMMIT.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Timespec, Timestamps, futimens};

use crate::{Checked, same, sys, told};

/// Time limit for `go` to appear.
const GO_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// Writes `content` to `path` and makes the client send it, without COMMIT; creates `sent`; when `go` exists, sets the times to those of
/// `content`, as cp(1) does before it closes, and closes.
pub(crate) fn write(content: &Path, path: &Path, sent: &Path, go: &Path) -> Checked {
    let original = File::open(content).and_then(|file| file.metadata()).map_err(told(content))?;
    let bytes = std::fs::read(content).map_err(told(content))?;
    let mut file = File::create(path).map_err(told(path))?;
    file.write_all(&bytes).map_err(told(path))?;
    sys::write_out(&file).map_err(told(path))?;
    File::create(sent).map_err(told(sent))?;
    let limit = Instant::now() + GO_LIMIT;
    while !go.exists() {
        same("the file `go` exists", true, Instant::now() < limit)?;
        thread::sleep(POLL);
    }
    let time = Timespec { tv_sec: original.mtime(), tv_nsec: original.mtime_nsec() };
    futimens(&file, &Timestamps { last_access: time, last_modification: time }).map_err(told(path))?;
    file.sync_all().map_err(told(path))
}
