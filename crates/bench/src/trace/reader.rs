//! Reads a trace, as far as it is undamaged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use super::RECORDS_MAX;
use super::format::{End, FORMAT, FORMAT_VERSION, Header, Kind, Record};

/// Maximum bytes of a line: two paths and the numbers.
const LINE_MAX: u64 = 64 << 10;

/// A trace in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The first line.
    pub header: Header,
    /// The operations by their beginning; each has a path.
    pub records: Vec<Record>,
    /// Why the operations after these could not be read.
    pub damage: Option<String>,
    /// Why the source had more operations than the trace.
    pub incomplete: Option<String>,
}

impl Trace {
    /// Reads a trace. One that is truncated or damaged has the operations before the damage.
    ///
    /// # Errors
    /// If the file cannot be read, or does not begin with the header of a trace of this version.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let file = File::open(path).map_err(|error| wrong(&error))?;
        Self::parse(BufReader::new(file)).map_err(|error| wrong(&error))
    }

    /// As [`Self::read`], from text.
    ///
    /// # Errors
    /// If it does not begin with the header of a trace of this version.
    pub fn parse(mut text: impl BufRead) -> Result<Self, String> {
        let first = next_line(&mut text)?.unwrap_or_default();
        let header: Header = serde_json::from_str(&first)
            .ok()
            .filter(|header: &Header| header.format == FORMAT)
            .ok_or("not a trace: expected a first line with the format `enfys-trace`")?;
        if header.format_version != FORMAT_VERSION {
            return Err(format!(
                "version {} of the format, written by enfys {}; this program reads version {FORMAT_VERSION}",
                header.format_version, header.enfys_version
            ));
        }
        let mut reading = Reading::default();
        let damage = reading.all(&mut text).err();
        let mut records = reading.records;
        records.sort_by_key(|record| record.at_us);
        Ok(Self { header, records, damage, incomplete: reading.incomplete })
    }

    /// Returns the clients, and the greatest number of streams of one.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        let most =
            |number: fn(&Record) -> u32| self.records.iter().map(number).max().map_or(1, |number| number + 1);
        (most(|record| record.client), most(|record| record.stream))
    }
}

#[derive(Default)]
struct Reading {
    records: Vec<Record>,
    /// The paths of all files that were opened.
    open: BTreeMap<u64, String>,
    incomplete: Option<String>,
}

impl Reading {
    /// Reads to the last line; the error is the damage.
    fn all(&mut self, text: &mut impl BufRead) -> Result<(), String> {
        loop {
            let number = self.records.len() + 1;
            let damage = |why: &str| format!("operation {number}: {why}");
            let line = next_line(text).map_err(|why| damage(&why))?;
            let line = line.ok_or_else(|| damage("the trace is truncated: it has no last line"))?;
            if let Ok(end) = serde_json::from_str::<End>(&line) {
                self.incomplete = end.incomplete;
                let is_whole = end.end == self.records.len() as u64;
                return if is_whole {
                    Ok(())
                } else {
                    Err(format!("{} operations, but the last line says {}", self.records.len(), end.end))
                };
            }
            if number as u64 > RECORDS_MAX {
                return Err(damage("too many operations"));
            }
            let record = self.record(&line).map_err(|why| damage(&why))?;
            self.records.push(record);
        }
    }

    fn record(&mut self, line: &str) -> Result<Record, String> {
        let mut record: Record = serde_json::from_str(line).map_err(|error| error.to_string())?;
        record.check()?;
        let Some(file) = record.file else { return Ok(record) };
        if record.op == Kind::Open {
            if self.open.contains_key(&file) {
                return Err(format!("file {file} is opened twice"));
            }
            self.open.insert(file, record.path().to_owned());
        } else if record.path.is_none() {
            let path = self.open.get(&file);
            record.path = Some(path.ok_or_else(|| format!("file {file} was not opened"))?.clone());
        }
        Ok(record)
    }
}

/// Returns the next line without its end; `None` at the end of the file. A last line without its end is damage.
fn next_line(text: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    text.take(LINE_MAX).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line).map(Some).map_err(|_| "not UTF-8".to_owned()),
        Some(_) if line.len() as u64 >= LINE_MAX - 1 => Err(format!("a line of more than {LINE_MAX} bytes")),
        Some(_) => Err("the trace is truncated in a line".to_owned()),
    }
}
