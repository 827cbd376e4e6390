//! The output of `stat`: its default, and formats of `%` directives.

use super::attributes::{Attributes, FileKind, STORAGE_UNIT, Timestamp, storage};
use super::mode::mode_string;
use super::names::OwnerNames;
use super::quote::shell_quoted;
use super::time::TimeFormat;

/// The output of GNU `stat`, as a format of its own directives.
const DEFAULT: &str = "  File: %N
  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F
Device: %d\tInode: %-11i Links: %h
Access: (%04a/%10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)
Access: %x
Modify: %y
Change: %z
 Birth: %w
";

/// Largest width in a directive.
const WIDTH_MAX: usize = 1000;

/// A file to print.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The name as it was given.
    pub name: &'a [u8],
    pub attributes: &'a Attributes,
    /// The target of a symbolic link.
    pub target: Option<&'a [u8]>,
    /// Bytes that the server prefers to transfer at once.
    pub io_size: u64,
}

/// A parsed format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatFormat(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Directive { letter: char, width: usize, fill: Fill },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    Left,
    Right,
    Zeros,
}

/// Directive of the default: as `%N`, with quotes only where a shell needs them.
const NAME_IF_NEEDED: char = 'Q';

/// The directives that exist.
const LETTERS: &str = "aAbBdFfghGiNnosTtuUwWxXyYzZ";

impl StatFormat {
    /// Returns the format of `stat` without options.
    pub fn default_format() -> Self {
        let mut format = Self::parse(DEFAULT.as_bytes()).expect("the default is a format");
        for piece in &mut format.0 {
            if let Piece::Directive { letter: letter @ 'N', .. } = piece {
                *letter = NAME_IF_NEEDED;
            }
        }
        format
    }

    /// Parses the value of `--format`, which prints a newline at the end.
    ///
    /// # Errors
    /// One line that names the wrong directive.
    pub fn line(format: &[u8]) -> Result<Self, String> {
        let mut parsed = Self::parse(format)?;
        parsed.0.push(Piece::Text(b"\n".to_vec()));
        Ok(parsed)
    }

    /// Parses the value of `--printf`, in which backslashes escape.
    ///
    /// # Errors
    /// One line that names the wrong directive.
    pub fn printf(format: &[u8]) -> Result<Self, String> {
        Self::parse(&unescaped(format))
    }

    fn parse(format: &[u8]) -> Result<Self, String> {
        let (mut pieces, mut rest) = (Vec::new(), format);
        while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
            pieces.push(Piece::Text(rest[..percent].to_vec()));
            let (piece, length) = directive(&rest[percent + 1..]).map_err(|wrong| {
                let known: Vec<_> = LETTERS.chars().map(|letter| format!("%{letter}")).collect();
                format!("unknown directive `%{wrong}` in a format: there are {} and %%", known.join(" "))
            })?;
            pieces.push(piece);
            rest = &rest[percent + 1 + length..];
        }
        pieces.push(Piece::Text(rest.to_vec()));
        Ok(Self(pieces))
    }

    /// Prints a file.
    pub fn print(&self, subject: &Subject<'_>, time: &TimeFormat, names: &OwnerNames) -> Vec<u8> {
        let mut printed = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => printed.extend(text),
                Piece::Directive { letter, width, fill } => {
                    let value = value(*letter, subject, time, names);
                    let padding = width.saturating_sub(String::from_utf8_lossy(&value).chars().count());
                    let fill_byte = if *fill == Fill::Zeros { b'0' } else { b' ' };
                    let padding = std::iter::repeat_n(fill_byte, padding);
                    if *fill == Fill::Right {
                        printed.extend(value);
                        printed.extend(padding);
                    } else {
                        printed.extend(padding);
                        printed.extend(value);
                    }
                }
            }
        }
        printed
    }
}

/// Parses the text after `%`; returns the parsed part and its length, or the text that is not a directive.
fn directive(text: &[u8]) -> Result<(Piece, usize), String> {
    let flags = text.iter().take_while(|byte| b"-0".contains(byte)).count();
    let digits = text[flags..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let length = flags + digits + 1;
    let shown = || String::from_utf8_lossy(&text[..length.min(text.len())]).into_owned();
    let letter = char::from(*text.get(length - 1).ok_or_else(shown)?);
    if letter == '%' && length == 1 {
        return Ok((Piece::Text(b"%".to_vec()), 1));
    }
    let width = String::from_utf8_lossy(&text[flags..flags + digits]).into_owned();
    let width: usize = if digits == 0 { 0 } else { width.parse().map_err(|_| shown())? };
    if !LETTERS.contains(letter) || width > WIDTH_MAX {
        return Err(shown());
    }
    let fill = match &text[..flags] {
        flags if flags.contains(&b'-') => Fill::Right,
        [] => Fill::Left,
        _ => Fill::Zeros,
    };
    Ok((Piece::Directive { letter, width, fill }, length))
}

fn value(letter: char, subject: &Subject<'_>, time: &TimeFormat, names: &OwnerNames) -> Vec<u8> {
    let Subject { name, attributes, target, io_size } = *subject;
    let seconds = |time: Timestamp| time.seconds.to_string();
    let text = match letter {
        'n' => return name.to_vec(),
        'N' => match target {
            Some(target) => format!("{} -> {}", always_quoted(name), always_quoted(target)),
            None => always_quoted(name),
        },
        NAME_IF_NEEDED => match target {
            Some(target) => format!("{} -> {}", shell_quoted(name), shell_quoted(target)),
            None => shell_quoted(name),
        },
        'a' => format!("{:o}", attributes.mode),
        'A' => mode_string(attributes),
        'b' => (storage(attributes) / STORAGE_UNIT).to_string(),
        'B' => STORAGE_UNIT.to_string(),
        'd' => format!("{:x},{:x}", attributes.fsid.major, attributes.fsid.minor),
        'F' => kind(attributes).to_owned(),
        'f' => format!("{:x}", kind_bits(attributes.kind) | attributes.mode),
        'g' => attributes.gid.to_string(),
        'G' => names.group_name(attributes.gid),
        'h' => attributes.nlink.to_string(),
        'i' => attributes.fileid.to_string(),
        'o' => io_size.to_string(),
        's' => attributes.size.to_string(),
        't' => format!("{:x}", attributes.device.0),
        'T' => format!("{:x}", attributes.device.1),
        'u' => attributes.uid.to_string(),
        'U' => names.user_name(attributes.uid),
        // Not every version of the protocol has the time of creation.
        'w' => "-".to_owned(),
        'W' => "0".to_owned(),
        'x' => time.print_full(attributes.atime),
        'X' => seconds(attributes.atime),
        'y' => time.print_full(attributes.mtime),
        'Y' => seconds(attributes.mtime),
        'z' => time.print_full(attributes.ctime),
        _ => seconds(attributes.ctime),
    };
    text.into_bytes()
}

/// Quotes a name even where no shell needs it.
fn always_quoted(name: &[u8]) -> String {
    let quoted = shell_quoted(name);
    if quoted.starts_with(['\'', '"']) { quoted } else { format!("'{quoted}'") }
}

fn kind(attributes: &Attributes) -> &'static str {
    match attributes.kind {
        FileKind::Regular if attributes.size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block special file",
        FileKind::CharacterDevice => "character special file",
        FileKind::Socket => "socket",
        FileKind::Fifo => "fifo",
    }
}

/// Returns the kind's bits in `st_mode` (inode(7)).
fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharacterDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// Replaces the escapes that `--printf` knows.
fn unescaped(format: &[u8]) -> Vec<u8> {
    let (mut text, mut bytes) = (Vec::new(), format.iter().copied());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => text.push(b'\n'),
            Some(b't') => text.push(b'\t'),
            Some(b'0') => text.push(0),
            Some(b'\\') | None => text.push(b'\\'),
            Some(other) => text.extend([b'\\', other]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::attributes::{FsId, OfTest};

    fn attributes() -> Attributes {
        Attributes {
            mode: 0o644,
            nlink: 2,
            uid: 7,
            gid: 8,
            size: 1000,
            used: 4096,
            device: (8, 17),
            fsid: FsId { major: 0x2b, minor: 0 },
            fileid: 77,
            atime: Timestamp { seconds: 1, nanoseconds: 5 },
            mtime: Timestamp { seconds: 2, nanoseconds: 0 },
            ctime: Timestamp { seconds: 3, nanoseconds: 0 },
            ..Attributes::of_test(FileKind::Regular)
        }
    }

    fn printed(format: &StatFormat, attributes: &Attributes, target: Option<&[u8]>) -> String {
        let subject = Subject { name: b"a b", attributes, target, io_size: 1_048_576 };
        let time = TimeFormat::utc(Timestamp::default(), false);
        String::from_utf8(format.print(&subject, &time, &OwnerNames::new(true))).expect("text")
    }

    /// The layout of `stat` of GNU coreutils 9.1.
    #[test]
    fn the_default_shows_everything() {
        assert_eq!(
            printed(&StatFormat::default_format(), &attributes(), None),
            "  File: 'a b'\n  Size: 1000      \tBlocks: 8          IO Block: 1048576 regular file\n\
             Device: 2b,0\tInode: 77          Links: 2\n\
             Access: (0644/-rw-r--r--)  Uid: (    7/       7)   Gid: (    8/       8)\n\
             Access: 1970-01-01 00:00:01.000000005 +0000\nModify: 1970-01-01 00:00:02.000000000 +0000\n\
             Change: 1970-01-01 00:00:03.000000000 +0000\n Birth: -\n"
        );
    }

    #[test]
    fn directives_have_widths_and_fillings() {
        let line = |format: &str| printed(&StatFormat::line(format.as_bytes()).unwrap(), &attributes(), None);
        assert_eq!(line("%n|%s|%8s|%-8s|%08s|%%"), "a b|1000|    1000|1000    |00001000|%\n");
        assert_eq!(line("%a %A %f %h %i %u %g"), "644 -rw-r--r-- 81a4 2 77 7 8\n");
        assert_eq!(line("%X %Y %Z %W %w"), "1 2 3 0 -\n");
        assert_eq!(line("%t,%T %b %B %o %d"), "8,11 8 512 1048576 2b,0\n");
        assert_eq!(line(""), "\n");
    }

    #[test]
    fn printf_has_escapes_and_no_newline() {
        let format = StatFormat::printf(br"%s\t%h\n\0\q\\").unwrap();
        assert_eq!(printed(&format, &attributes(), None), "1000\t2\n\0\\q\\");
    }

    #[test]
    fn a_link_shows_its_target() {
        let link = Attributes::of_test(FileKind::Symlink);
        let format = StatFormat::line(b"%N %F").unwrap();
        assert_eq!(printed(&format, &link, Some(b"target")), "'a b' -> 'target' symbolic link\n");
    }

    #[test]
    fn kinds_have_their_names() {
        let name = |kind_of: FileKind| kind(&Attributes::of_test(kind_of));
        assert_eq!(name(FileKind::Regular), "regular empty file");
        assert_eq!(name(FileKind::Fifo), "fifo");
        assert_eq!(kind_bits(FileKind::Directory) | 0o755, 0o40755);
    }

    #[test]
    fn unknown_directives_are_named() {
        for (format, wrong) in
            [("%Q", "`%Q`"), ("%", "`%`"), ("a%5", "`%5`"), ("%9999s", "`%9999s`"), ("%-%", "`%-%`")]
        {
            let error = StatFormat::line(format.as_bytes()).expect_err(format);
            assert!(error.contains(wrong) && error.contains("%a %A"), "{error}");
        }
    }
}
