//! Lines of `ls`.

use unicode_width::UnicodeWidthStr;

use super::attributes::{Attributes, FileKind, storage};
use super::columns::columns;
use super::human::SizeUnit;
use super::mode::mode_string;
use super::names::OwnerNames;
use super::quote::Quoting;
use super::time::TimeFormat;

/// An entry to list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The name as it is printed.
    pub name: Vec<u8>,
    pub attributes: Attributes,
    /// The target of a symbolic link, if it was read.
    pub target: Option<Vec<u8>>,
}

/// The format of entries.
#[derive(Debug)]
pub struct ListFormat<'a> {
    /// Lines with attributes (`-l`).
    pub is_long: bool,
    /// Numbers of files before the names (`-i`).
    pub shows_file_id: bool,
    pub quoting: Quoting,
    /// Width of the terminal, for columns of names; one name a line without it.
    pub width: Option<usize>,
    pub size: SizeUnit,
    pub time: &'a TimeFormat,
    pub names: &'a OwnerNames,
}

/// Blocks that `total` counts.
const TOTAL_UNIT: u64 = 1024;

impl ListFormat<'_> {
    /// Prints entries in their order.
    pub fn print(&self, entries: &[Listed]) -> Vec<u8> {
        let quoted: Vec<Vec<u8>> = entries.iter().map(|entry| self.quoting.quote(&entry.name)).collect();
        // An unquoted name among quoted ones has a space for the quote that it lacks.
        let is_quoted = |index: usize| quoted[index] != entries[index].name;
        let any_is_quoted = (0..entries.len()).any(is_quoted);
        let name = |index: usize| {
            let space = if any_is_quoted && !is_quoted(index) { &b" "[..] } else { b"" };
            [space, &quoted[index]].concat()
        };
        let names: Vec<Vec<u8>> = (0..entries.len()).map(name).collect();
        if self.is_long {
            return self.long(entries, &names);
        }
        let with_id = |(entry, name): (&Listed, Vec<u8>)| match self.shows_file_id {
            true => [format!("{} ", entry.attributes.fileid).as_bytes(), &name].concat(),
            false => name,
        };
        let words: Vec<Vec<u8>> = entries.iter().zip(names).map(with_id).collect();
        match self.width {
            Some(width) => {
                let words: Vec<String> =
                    words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                columns(&words, width).into_bytes()
            }
            None => words.iter().flat_map(|word| [word, &b"\n"[..]].concat()).collect(),
        }
    }

    /// Returns the line `total`, which `ls -l` prints before the entries of a directory.
    pub fn total(&self, entries: &[Listed]) -> String {
        let used = entries.iter().map(|entry| storage(&entry.attributes)).fold(0, u64::saturating_add);
        let unit = if self.size == SizeUnit::Blocks(1) { SizeUnit::Blocks(TOTAL_UNIT) } else { self.size };
        format!("total {}\n", unit.print(used))
    }

    fn long(&self, entries: &[Listed], names: &[Vec<u8>]) -> Vec<u8> {
        let rows: Vec<Row> = entries.iter().map(|entry| self.row(&entry.attributes)).collect();
        let widths = Row::widths(&rows);
        let mut text = Vec::new();
        for ((entry, row), name) in entries.iter().zip(&rows).zip(names) {
            text.extend(row.print(&widths).as_bytes());
            text.extend(name);
            if let Some(target) = &entry.target {
                text.extend(b" -> ");
                text.extend(self.quoting.quote(target));
            }
            text.push(b'\n');
        }
        text
    }

    fn row(&self, attributes: &Attributes) -> Row {
        let size = match attributes.kind {
            FileKind::BlockDevice | FileKind::CharacterDevice => {
                let (major, minor) = attributes.device;
                format!("{major}, {minor:>3}")
            }
            _ => self.size.print(attributes.size),
        };
        Row {
            file_id: if self.shows_file_id { attributes.fileid.to_string() } else { String::new() },
            mode: mode_string(attributes),
            links: attributes.nlink.to_string(),
            user: self.names.user_name(attributes.uid),
            group: self.names.group_name(attributes.gid),
            size,
            time: self.time.print(attributes.mtime),
        }
    }
}

/// The cells of a line before the name.
struct Row {
    file_id: String,
    mode: String,
    links: String,
    user: String,
    group: String,
    size: String,
    time: String,
}

impl Row {
    fn cells(&self) -> [&str; 7] {
        [&self.file_id, &self.mode, &self.links, &self.user, &self.group, &self.size, &self.time]
    }

    /// Returns the width of each column.
    fn widths(rows: &[Self]) -> [usize; 7] {
        let mut widths = [0; 7];
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row.cells()) {
                *width = cell.width().max(*width);
            }
        }
        widths
    }

    fn print(&self, widths: &[usize; 7]) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in self.cells().into_iter().zip(widths).enumerate() {
            if *width == 0 {
                continue;
            }
            let padding = std::iter::repeat_n(' ', width - cell.width());
            // Names of owners begin, numbers end in one column.
            if [3, 4].contains(&index) {
                line.push_str(cell);
                line.extend(padding);
            } else {
                line.extend(padding);
                line.push_str(cell);
            }
            line.push(' ');
        }
        line
    }
}

#[cfg(test)]
mod tests;
