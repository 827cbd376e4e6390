//! Records over restarts, damage, torn writes, and files that are not logs.

use std::os::unix::fs::FileExt;

use server::{RECORD_BYTES_MAX, ReplyLog};

use super::format::*;
use super::*;

/// Opens and closes the log; returns its records, and the line about damage.
fn records(path: &Path) -> (Vec<Vec<u8>>, Option<String>) {
    let (_, recovered) = FileReplyLog::open(path).unwrap();
    (recovered.records, recovered.damage)
}

fn new_path() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    (directory, path)
}

fn record(number: usize, bytes: usize) -> Vec<u8> {
    let mut record = vec![number as u8 | 1; bytes];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record
}

/// Writes a log of this many records of a hundred bytes, two cells each.
fn log_of(path: &Path, count: usize) {
    let (log, _) = FileReplyLog::open(path).unwrap();
    (0..count).for_each(|number| log.append(&[&record(number, 100)]));
}

fn change(path: &Path, at: u64, to: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(to, at).unwrap();
}

#[test]
fn records_survive_without_a_sync_or_close() {
    let (_directory, path) = new_path();
    let (log, recovered) = FileReplyLog::open(&path).unwrap();
    assert!(recovered.records.is_empty() && recovered.damage.is_none());
    log.append(&[b"one"]);
    log.append(&[b"", b"two, ", b"in parts"]);
    log.append(&[&[3; RECORD_BYTES_MAX]]);
    log.append(&[&[4; RECORD_BYTES_MAX + 1]]);
    let expected = vec![b"one".to_vec(), b"two, in parts".to_vec(), vec![3; RECORD_BYTES_MAX]];
    // The log is still open, as after a SIGKILL.
    assert_eq!(records(&path), (expected.clone(), None));
    let (again, _) = FileReplyLog::open(&path).unwrap();
    again.append(&[b"four"]);
    assert_eq!(records(&path).0, [expected, vec![b"four".to_vec()]].concat());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
}

#[test]
fn new_records_overwrite_the_oldest_and_leave_no_damage() {
    let (_directory, path) = new_path();
    let (mut log, _) = FileReplyLog::open(&path).unwrap();
    let (mut number, mut seed) = (0, 7usize);
    let mut lengths = Vec::new();
    for round in 0..3 {
        while number < (round + 1) * 9_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Mostly short ones, sometimes the longest.
            let bytes = if seed >> 33 & 63 == 0 { RECORD_BYTES_MAX } else { 8 + (seed >> 33) % 1500 };
            log.append(&[&record(number, bytes)]);
            lengths.push(bytes);
            number += 1;
        }
        drop(log);
        let recovered;
        (log, recovered) = FileReplyLog::open(&path).unwrap();
        assert_eq!(recovered.damage, None, "round {round}");
        let count = recovered.records.len();
        assert!(count > 8_000 && (round < 2 || count < number), "{count} records");
        for (found, expected) in recovered.records.iter().zip(number - count..) {
            assert_eq!(*found, record(expected, lengths[expected]), "in order, without a gap");
        }
    }
}

#[test]
fn a_flipped_bit_loses_its_record_only() {
    for (offset, lost) in [(0, 3), (9, 3), (17, 3), (50, 3), (115, 3), (64 + 60, 3)] {
        let (_directory, path) = new_path();
        log_of(&path, 6);
        let at = (CELL + 2 * lost * CELL) as u64 + offset;
        let mut byte = [0];
        File::open(&path).unwrap().read_exact_at(&mut byte, at).unwrap();
        change(&path, at, &[byte[0] ^ 0x10]);
        let (found, damage) = records(&path);
        let mut expected: Vec<_> = (0..6).map(|number| record(number, 100)).collect();
        if offset < 64 + 52 {
            expected.remove(lost);
            assert!(damage.unwrap().ends_with("replies.log: damaged in 1 places: records there are lost"));
        }
        assert_eq!(found, expected, "byte {offset}");
        // Cleared, so that it is reported once.
        assert_eq!(records(&path), (expected, None));
    }
}

#[test]
fn a_torn_tail_loses_the_torn_record_only() {
    let (_directory, path) = new_path();
    log_of(&path, 6);
    change(&path, (CELL + 11 * CELL) as u64, &[0; CELL]);
    let (found, damage) = records(&path);
    assert_eq!(found.len(), 5);
    assert!(damage.is_some());
    let (log, _) = FileReplyLog::open(&path).unwrap();
    log.append(&[b"continues"]);
    assert_eq!(records(&path).0.last().unwrap(), b"continues");
}

#[test]
fn a_file_that_is_not_a_log_of_this_version_is_replaced() {
    let whole = |path: &Path| {
        log_of(path, 3);
        std::fs::read(path).unwrap()
    };
    let (_directory, path) = new_path();
    let sound = whole(&path);
    let another_version = [&MAGIC[..7], b"\x01", &sound[8..]].concat();
    for (bytes, what) in [
        (another_version, "of another version: started empty"),
        (sound[..FILE_BYTES - 1].to_vec(), "not a reply log, or damaged: started empty"),
        (vec![0xff; 10], "not a reply log, or damaged: started empty"),
        (vec![0; FILE_BYTES], "not a reply log, or damaged: started empty"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let (found, damage) = records(&path);
        assert!(found.is_empty());
        assert_eq!(damage.unwrap(), format!("{}: {what}", path.display()));
        log_of(&path, 2);
        assert_eq!(records(&path), (vec![record(0, 100), record(1, 100)], None));
    }
    // Empty, as after a crash of the machine right after its creation: not reported.
    std::fs::write(&path, b"").unwrap();
    assert_eq!(records(&path), (vec![], None));
}

#[test]
fn a_log_from_before_the_last_boot_is_not_read() {
    let (_directory, path) = new_path();
    log_of(&path, 3);
    assert_eq!(records(&path).0.len(), 3, "the same boot");
    let mut boot = boot_id();
    boot[15] ^= 1;
    change(&path, BOOT_AT as u64, &boot);
    let (log, recovered) = FileReplyLog::open(&path).unwrap();
    assert!(recovered.records.is_empty());
    assert_eq!(recovered.damage, None, "this is not damage");
    let expected = format!("{}: written before the last boot: started empty", path.display());
    assert_eq!(recovered.outdated, Some(expected));
    log.append(&[b"since"]);
    let (_, again) = FileReplyLog::open(&path).unwrap();
    assert_eq!((again.records, again.outdated), (vec![b"since".to_vec()], None));
}

#[test]
fn the_checksum_is_crc32c_of_key_and_record() {
    // RFC 3720 appendix B.4: "32 bytes of zeroes: … CRC: aa 36 91 8a", and "32 bytes of ones: … 43 ab a8 62".
    assert_eq!(checksum(checksum_seed(&[0; 16]), &[0; 16]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(checksum(checksum_seed(&[0xff; 16]), &[0xff; 16]), [0x43, 0xab, 0xa8, 0x62]);
}

#[test]
fn bytes_inside_a_torn_record_do_not_pass_for_records() {
    let inner = |path: &Path| {
        let (log, _) = FileReplyLog::open(path).unwrap();
        log.append(&[b"another"]);
        std::fs::read(path).unwrap()[CELL..2 * CELL].to_vec()
    };
    let (_elsewhere, elsewhere) = new_path();
    let (_directory, path) = new_path();
    let (log, _) = FileReplyLog::open(&path).unwrap();
    // A record of another log, placed so that it begins a cell.
    log.append(&[&[7; CELL - PREFIX], &inner(&elsewhere)]);
    change(&path, CELL as u64, &[0]);
    let (found, damage) = records(&path);
    assert!(found.is_empty() && damage.is_some());
}

#[test]
fn random_bytes_do_not_stop_the_scan() {
    let (_directory, path) = new_path();
    log_of(&path, 10);
    let noise: Vec<u8> = (0..100_000u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    change(&path, 5 * CELL as u64, &noise);
    let (found, damage) = records(&path);
    assert_eq!(found, [record(0, 100), record(1, 100)]);
    assert!(damage.is_some());
}

#[test]
fn an_error_names_the_file_in_one_line() {
    let (directory, path) = new_path();
    std::fs::create_dir(&path).unwrap();
    let error = FileReplyLog::open(&path).unwrap_err();
    assert_eq!(error, format!("{}: Is a directory", path.display()));
    let absent = path_in(&directory.path().join("absent"));
    assert!(FileReplyLog::open(&absent).unwrap_err().ends_with("No such file or directory"));
    // Always full, and not a regular file.
    let full = directory.path().join("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    assert!(FileReplyLog::open(&full).is_err());
}
