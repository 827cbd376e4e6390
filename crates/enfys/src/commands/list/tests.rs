//! Lines of `ls` for constructed entries.

use super::*;
use crate::commands::attributes::{OfTest, Timestamp};

fn listed(name: &str, kind: FileKind, size: u64) -> Listed {
    let attributes = Attributes { size, used: size.next_multiple_of(4096), ..Attributes::of_test(kind) };
    Listed { name: name.as_bytes().to_vec(), attributes, target: None }
}

fn printed(entries: &[Listed], change: impl Fn(&mut ListFormat<'_>)) -> String {
    let names = OwnerNames::new(true);
    let time = TimeFormat::utc(Timestamp { seconds: 1_700_000_000, nanoseconds: 0 }, false);
    let mut format = ListFormat {
        is_long: true,
        shows_file_id: false,
        quoting: Quoting::Raw,
        width: None,
        size: SizeUnit::Blocks(1),
        time: &time,
        names: &names,
    };
    change(&mut format);
    String::from_utf8(format.print(entries)).expect("text")
}

/// The output of `LC_ALL=C ls -ln`.
#[test]
fn a_long_line_aligns_its_columns() {
    let mut directory = listed("d", FileKind::Directory, 4096);
    directory.attributes.mode = 0o755;
    directory.attributes.nlink = 12;
    let mut link = listed("l", FileKind::Symlink, 3);
    link.attributes.mode = 0o777;
    link.attributes.uid = 1000;
    link.attributes.gid = 50;
    link.target = Some(b"a b".to_vec());
    let mut device = listed("n", FileKind::CharacterDevice, 0);
    device.attributes.device = (1, 3);
    let entries = [directory, listed("f", FileKind::Regular, 123_456_789), link, device];
    assert_eq!(
        printed(&entries, |_| {}),
        "drwxr-xr-x 12 0    0       4096 Jan  1  1970 d\n\
         -rw-r--r--  1 0    0  123456789 Jan  1  1970 f\n\
         lrwxrwxrwx  1 1000 50         3 Jan  1  1970 l -> a b\n\
         crw-r--r--  1 0    0     1,   3 Jan  1  1970 n\n"
    );
    let human = printed(&entries[..2], |format| format.size = SizeUnit::Binary);
    assert!(human.contains(" 4.0K ") && human.contains(" 118M "), "{human}");
}

#[test]
fn names_without_attributes_are_lines_or_columns() {
    let entries = ["a", "b", "c"].map(|name| listed(name, FileKind::Regular, 0));
    assert_eq!(printed(&entries, |format| format.is_long = false), "a\nb\nc\n");
    let columns = printed(&entries, |format| (format.is_long, format.width) = (false, Some(80)));
    assert_eq!(columns, "a  b  c\n");
    let with_ids = printed(&entries, |format| (format.is_long, format.shows_file_id) = (false, true));
    assert_eq!(with_ids, "1 a\n1 b\n1 c\n");
}

#[test]
fn quoted_names_align_with_others_on_a_terminal() {
    let entries = ["a b", "c"].map(|name| listed(name, FileKind::Regular, 0));
    let shown = printed(&entries, |format| (format.is_long, format.quoting) = (false, Quoting::Shell));
    assert_eq!(shown, "'a b'\n c\n");
    assert_eq!(printed(&entries, |format| format.is_long = false), "a b\nc\n");
}

#[test]
fn the_total_counts_kibibytes() {
    let names = OwnerNames::new(true);
    let time = TimeFormat::utc(Timestamp::default(), false);
    let format = ListFormat {
        is_long: true,
        shows_file_id: false,
        quoting: Quoting::Raw,
        width: None,
        size: SizeUnit::Blocks(1),
        time: &time,
        names: &names,
    };
    let entries = [listed("a", FileKind::Regular, 1), listed("b", FileKind::Regular, 5000)];
    assert_eq!(format.total(&entries), "total 12\n");
    let human = ListFormat { size: SizeUnit::Binary, ..format };
    assert_eq!(human.total(&entries), "total 12K\n");
}
