//! O_APPEND from several descriptors of one client at once: every record arrives complete and once.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;

use crate::{Checked, same, told};

const WRITERS: usize = 4;
const RECORD_BYTES: usize = 97;

/// Appends `records` records with each of the writers.
pub(crate) fn check(path: &Path, records: usize) -> Checked {
    let results: Vec<Checked> = thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || append(path, writer, records))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap_or(Err("a writer panicked".into()))).collect()
    });
    results.into_iter().collect::<Checked>()?;
    let bytes = fs::read(path).map_err(told(path))?;
    same("size", WRITERS * records * RECORD_BYTES, bytes.len())?;
    let mut found: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
    found.sort_unstable();
    let mut expected: Vec<Vec<u8>> =
        (0..WRITERS).flat_map(|writer| (0..records).map(move |number| record(writer, number))).collect();
    expected.sort_unstable();
    match found.iter().zip(&expected).find(|(found, expected)| **found != expected.as_slice()) {
        Some((found, _)) => {
            Err(format!("a record that no writer wrote, or a repeated one: {}", found.escape_ascii()))
        }
        None => Ok(()),
    }
}

fn append(path: &Path, writer: usize, records: usize) -> Checked {
    let mut file = File::options().append(true).create(true).open(path).map_err(told(path))?;
    for number in 0..records {
        let length = file.write(&record(writer, number)).map_err(told(path))?;
        same("length of a write", RECORD_BYTES, length)?;
    }
    file.sync_all().map_err(told(path))
}

fn record(writer: usize, number: usize) -> Vec<u8> {
    let mut record = format!("writer {writer} record {number:06} ").into_bytes();
    record.resize(RECORD_BYTES - 1, b'a' + (writer * 7 + number) as u8 % 26);
    record.push(b'\n');
    record
}
