//! The table of `df`.

use unicode_width::UnicodeWidthStr;

use super::human::SizeUnit;

/// Space and file slots of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Its location, as in `HOST:/PATH`.
    pub source: String,
    /// The requested path.
    pub path: String,
    /// All bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes that the caller may use.
    pub available: u64,
    /// All file slots.
    pub files: u64,
    /// Free file slots.
    pub files_free: u64,
}

/// The quantity that `df` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Bytes(SizeUnit),
    Files,
}

/// Minimum width of the first column, as in coreutils.
const SOURCE_WIDTH: usize = 14;
/// Minimum width of numbers.
const NUMBER_WIDTH: usize = 5;

/// Prints the table.
pub fn table(spaces: &[Space], counted: Counted) -> String {
    let header = match counted {
        Counted::Files => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%", "Mounted on"].map(String::from),
        Counted::Bytes(SizeUnit::Blocks(size)) => {
            let blocks =
                if size % 1024 == 0 { format!("{}K-blocks", size / 1024) } else { format!("{size}B-blocks") };
            [
                "Filesystem".into(),
                blocks,
                "Used".into(),
                "Available".into(),
                "Use%".into(),
                "Mounted on".into(),
            ]
        }
        Counted::Bytes(_) => ["Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"].map(String::from),
    };
    let rows: Vec<[String; 6]> =
        std::iter::once(header).chain(spaces.iter().map(|space| space.row(counted))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths = [
        width(0).max(SOURCE_WIDTH),
        width(1).max(NUMBER_WIDTH),
        width(2).max(NUMBER_WIDTH),
        width(3).max(NUMBER_WIDTH),
        width(4),
    ];
    let mut text = String::new();
    for row in &rows {
        let padding = |column: usize| " ".repeat(widths[column] - row[column].width());
        text.push_str(&format!("{}{}", row[0], padding(0)));
        for (column, cell) in row.iter().enumerate().take(5).skip(1) {
            text.push_str(&format!(" {}{cell}", padding(column)));
        }
        text.push_str(&format!(" {}\n", row[5]));
    }
    text
}

impl Space {
    fn row(&self, counted: Counted) -> [String; 6] {
        let (numbers, percent) = match counted {
            Counted::Bytes(unit) => {
                let used = self.total.saturating_sub(self.free);
                (
                    [self.total, used, self.available].map(|bytes| unit.print(bytes)),
                    percent(used, self.available),
                )
            }
            Counted::Files => {
                let used = self.files.saturating_sub(self.files_free);
                let numbers = [self.files, used, self.files_free].map(|files| files.to_string());
                (numbers, percent(used, self.files_free))
            }
        };
        let [all, used, available] = numbers;
        [self.source.clone(), all, used, available, percent, self.path.clone()]
    }
}

/// Returns the used part of what a user can have, rounded up.
fn percent(used: u64, available: u64) -> String {
    let all = u128::from(used) + u128::from(available);
    if all == 0 { "-".into() } else { format!("{}%", (u128::from(used) * 100).div_ceil(all)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        Space {
            source: "server:/export".into(),
            path: "/export".into(),
            total: 100 << 30,
            free: 40 << 30,
            available: 35 << 30,
            files: 1000,
            files_free: 250,
        }
    }

    /// The layout of `df` of GNU coreutils.
    #[test]
    fn the_table_is_aligned() {
        assert_eq!(
            table(&[space()], Counted::Bytes(SizeUnit::Blocks(1024))),
            "Filesystem     1K-blocks     Used Available Use% Mounted on\n\
             server:/export 104857600 62914560  36700160  64% /export\n"
        );
        assert_eq!(
            table(&[space()], Counted::Bytes(SizeUnit::Binary)),
            "Filesystem      Size  Used Avail Use% Mounted on\nserver:/export  100G   60G   35G  64% /export\n"
        );
        assert_eq!(
            table(&[space()], Counted::Files),
            "Filesystem     Inodes IUsed IFree IUse% Mounted on\nserver:/export   1000   750   250   75% /export\n"
        );
    }

    #[test]
    fn an_empty_file_system_has_no_percentage() {
        let nothing = Space { total: 0, free: 0, available: 0, files: 0, files_free: 0, ..space() };
        assert!(table(&[nothing], Counted::Files).contains("  - /export"));
        let lying = Space { free: u64::MAX, available: u64::MAX, ..space() };
        assert!(table(&[lying], Counted::Bytes(SizeUnit::Binary)).contains(" 0% "));
    }
}
