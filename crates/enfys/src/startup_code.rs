//! Gives back the memory of code that only the start runs.
//!
//! The kernel maps 64 KiB of the program around each page that runs. After the start, much of it belongs to parsing the command
//! line and the configuration, and counts as the server's memory.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs;

/// Unmaps the pages of this program's code. Those that run again are mapped again, mostly from the page cache.
pub(crate) fn unmap() {
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    let ranges = maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy())).filter_map(code);
    for (start, end) in ranges {
        // SAFETY: the range is a private mapping of a file that cannot be written through it, so that its pages have the file's
        // content: a page that is touched again is read from the file as before. A failure leaves it mapped.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// Returns the range of a line of proc_pid_maps(5), if it is executable, private and not writable.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    if fields.next()? != "r-xp" {
        return None;
    }
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_unmapped() {
        let line =
            |permissions: &str| format!("00401000-00402000 {permissions} 00001000 fe:00 42 /usr/bin/enfys");
        assert_eq!(code(&line("r-xp")), Some((0x40_1000, 0x40_2000)));
        for other in ["r--p", "rw-p", "rwxp", "r-xs"] {
            assert_eq!(code(&line(other)), None, "{other}");
        }
    }

    #[test]
    fn the_program_runs_on_without_mapped_code() {
        unmap();
        assert_eq!(code("none"), None);
    }
}
