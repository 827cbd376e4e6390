//! The small files of [`crate::layout`]: the next one, and the check that a listing has all.

use bytes::Bytes;
use xdr::Opaque;

use super::template::{Template, patch};
use crate::layout;

/// A connection's position among the small files: in order, each connection starting at another one.
#[derive(Debug)]
pub(crate) struct Walk {
    index: u32,
}

impl Walk {
    /// Connections are numbered from 0.
    pub(crate) fn of_connection(connection: u32) -> Self {
        Self { index: connection * 10 % layout::SMALL_FILES }
    }

    /// Returns the next file.
    pub(crate) fn next(&mut self) -> u32 {
        self.index = (self.index + 1) % layout::SMALL_FILES;
        self.index
    }
}

/// The position of a small file's name in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameField {
    /// Offset of the digits, in which the names differ.
    digits_at: usize,
}

impl NameField {
    /// Finds the field in the output of `render` for two files.
    pub(crate) fn find(render: impl Fn(u32) -> Template) -> Self {
        Self { digits_at: Template::field(&render(0), &render(999)) }
    }

    /// Overwrites the name in the request that starts at `start` of `out`.
    pub(crate) fn patch(self, out: &mut [u8], start: usize, index: u32) {
        let digits = [index / 100 % 10, index / 10 % 10, index % 10].map(|digit| b'0' + digit as u8);
        patch(out, start + self.digits_at, &digits);
    }
}

/// Returns the name of the small file `index` for the protocols.
pub(crate) fn name<const MAX: usize>(index: u32) -> Opaque<MAX> {
    let name = Bytes::from(layout::small_name(index).into_bytes());
    Opaque::new(name).expect("the names are short")
}

/// Checks that `data` is the content of the small file `index`.
///
/// # Errors
/// A description of the difference.
pub(crate) fn check_data(index: u32, data: &[u8]) -> Result<(), String> {
    if data.len() != crate::operation::SMALL_BYTES as usize {
        return Err(format!("{} bytes of data", data.len()));
    }
    if data[..8] != layout::pattern_word(layout::small_offset(index)) {
        return Err(format!("data that differ from those of {}", layout::small_name(index)));
    }
    Ok(())
}

/// The entries that one listing of the directory has returned so far.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    seen: Vec<bool>,
}

impl Listing {
    /// Returns an empty listing.
    pub(crate) fn new() -> Self {
        Self { seen: vec![false; layout::SMALL_FILES as usize] }
    }

    /// Counts an entry and returns whether it is a file: `.` and `..`, which version 3 lists, are not counted.
    ///
    /// # Errors
    /// A name that belongs to no small file, or is listed twice.
    pub(crate) fn add(&mut self, name: &[u8]) -> Result<bool, String> {
        if name == b"." || name == b".." {
            return Ok(false);
        }
        let index = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.strip_prefix("small-"))
            .filter(|digits| digits.len() == 3)
            .and_then(|digits| digits.parse::<usize>().ok());
        match index.and_then(|index| self.seen.get_mut(index)) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(format!("{} twice", String::from_utf8_lossy(name))),
            None => return Err(format!("an entry {}", String::from_utf8_lossy(name))),
        }
        Ok(true)
    }

    /// Ends the listing, and begins the next one.
    ///
    /// # Errors
    /// Entries are missing.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let missing = self.seen.iter().filter(|seen| !**seen).count();
        self.seen.fill(false);
        if missing == 0 { Ok(()) } else { Err(format!("{missing} entries are missing")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::template::Program;

    #[test]
    fn a_walk_visits_every_file_and_connections_begin_apart() {
        let mut walk = Walk::of_connection(99);
        let mut seen: Vec<u32> = (0..1000).map(|_| walk.next()).collect();
        assert_eq!(seen[0], 991);
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_patched_name_is_that_of_the_file() {
        let program = Program { number: 1, version: 1 };
        let render = |index| Template::call(program, 1, &name::<64>(index));
        let field = NameField::find(render);
        for index in [0, 7, 42, 305, 999] {
            let mut out = vec![1, 2];
            let start = render(0).append(5, &mut out);
            field.patch(&mut out, start, index);
            let mut expected = vec![1, 2];
            render(index).append(5, &mut expected);
            assert_eq!(out, expected, "{index}");
        }
    }

    #[test]
    fn a_listing_holds_each_file_once() {
        let mut listing = Listing::new();
        let fill = |listing: &mut Listing| {
            for index in 0..999 {
                assert_eq!(listing.add(layout::small_name(index).as_bytes()), Ok(true));
            }
        };
        fill(&mut listing);
        assert_eq!(listing.add(b"."), Ok(false));
        assert_eq!(listing.end(), Err("1 entries are missing".into()));
        fill(&mut listing);
        assert!(listing.add(b"small-000").unwrap_err().contains("twice"));
        for wrong in [&b"small-1000"[..], b"small-1", b"other", b"small-0\xff0"] {
            assert!(listing.add(wrong).is_err(), "{wrong:?}");
        }
        listing.add(b"small-999").unwrap();
        assert_eq!(listing.end(), Ok(()));
    }

    #[test]
    fn data_of_another_file_are_an_error() {
        let mut data = vec![0; 4096];
        layout::fill_pattern(7 * 4096, &mut data);
        assert_eq!(check_data(7, &data), Ok(()));
        assert!(check_data(8, &data).is_err());
        assert!(check_data(7, &data[..4092]).is_err());
    }
}
