//! Messages recorded from other programs, with the fields that tshark shows.

use std::path::{Path, PathBuf};

use bytes::Bytes;

/// One message of a recorded exchange, without its record mark.
pub(crate) struct Golden {
    /// The file's name without extension: `lookup_reply_noent`.
    pub(crate) name: String,
    /// Fields by tshark's name, in wire order.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) message: Bytes,
}

/// Returns all recorded messages in `directory` below `crates/protocol/tests/golden`, for tests of any crate.
pub(crate) fn all(directory: &str) -> Vec<Golden> {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.find(|directory| directory.join("Cargo.lock").exists()).unwrap();
    let path = root.join("crates/protocol/tests/golden").join(directory);
    let mut paths: Vec<PathBuf> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Golden {
    let text = std::fs::read_to_string(path).unwrap();
    let (head, hex) = text.split_once("---\n").unwrap();
    let fields = head.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.split_once(" =").unwrap();
        (name.to_owned(), value.trim_start().to_owned())
    });
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    Golden {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        fields: fields.collect(),
        message: digits.chunks(2).map(octet).collect(),
    }
}
