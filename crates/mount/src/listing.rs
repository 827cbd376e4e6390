//! Positions in a directory. The kernel names an entry by its index; the server continues after a cookie that may be any number.

use client::fs::inode::{Entry, Listing};
use fuse::Errno;

/// Maximum number of entries of a directory. The cookies of all entries reached are kept while it is open.
const ENTRIES_MAX: usize = 1 << 26;

/// The entries that an open directory has read.
#[derive(Debug)]
pub(crate) struct Position {
    /// The cookie of each entry reached, and the one at which the listing continues.
    starts: Vec<u64>,
    /// The last part, and the index of its first entry.
    part: Vec<Entry>,
    first: usize,
    /// Whether the listing ends with this part.
    is_last: bool,
}

impl Default for Position {
    fn default() -> Self {
        Self { starts: vec![0], part: Vec::new(), first: 0, is_last: false }
    }
}

/// An entry, or the way to get it.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Entry(&'a Entry),
    /// Read the part at this cookie, and pass it to [`Position::fetched`].
    Fetch(u64),
    End,
}

impl Position {
    /// Returns the cookies of the entries reached, for another process.
    pub(crate) fn save(&self) -> Vec<u64> {
        self.starts.clone()
    }

    /// Returns the position of another process; the next entry is read again.
    pub(crate) fn restored(starts: Vec<u64>) -> Self {
        if starts.is_empty() { Self::default() } else { Self { starts, ..Self::default() } }
    }

    /// Returns the entry with an index, counted from 0.
    ///
    /// # Errors
    /// EINVAL for an index that was not reached before.
    pub(crate) fn entry(&self, index: usize) -> Result<Step<'_>, Errno> {
        if let Some(entry) = index.checked_sub(self.first).and_then(|at| self.part.get(at)) {
            return Ok(Step::Entry(entry));
        }
        if self.is_last && index == self.first + self.part.len() {
            return Ok(Step::End);
        }
        self.starts.get(index).map(|cookie| Step::Fetch(*cookie)).ok_or(Errno::INVAL)
    }

    /// Takes the part that begins with the entry `index`.
    ///
    /// # Errors
    /// EOVERFLOW if the directory is too large, EINVAL for an index that was not reached before.
    pub(crate) fn fetched(&mut self, index: usize, part: Listing) -> Result<(), Errno> {
        if index >= self.starts.len() {
            return Err(Errno::INVAL);
        }
        if index + part.entries.len() > ENTRIES_MAX {
            return Err(Errno::OVERFLOW);
        }
        self.starts.truncate(index + 1);
        self.starts.extend(part.entries.iter().map(|entry| entry.cookie));
        // It may follow `.` and `..`, which the client leaves out.
        if let Some(last) = self.starts.last_mut() {
            *last = part.next_cookie;
        }
        self.is_last = part.is_end;
        self.first = index;
        self.part = part.entries;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(cookies: &[u64], next_cookie: u64, is_end: bool) -> Listing {
        let entry = |cookie: &u64| Entry {
            name: cookie.to_string().into(),
            fileid: *cookie,
            cookie: *cookie,
            kind: None,
            object: None,
        };
        Listing { entries: cookies.iter().map(entry).collect(), next_cookie, is_end }
    }

    /// Returns the entry's cookie, the cookie to fetch as a negative number, or none at the end.
    fn shown(position: &Position, index: usize) -> Result<Option<i128>, Errno> {
        Ok(match position.entry(index)? {
            Step::Entry(entry) => Some(entry.cookie.into()),
            Step::Fetch(cookie) => Some(-i128::from(cookie)),
            Step::End => None,
        })
    }

    #[test]
    fn continues_and_returns_to_earlier_entries_by_cookie() {
        let mut position = Position::default();
        assert_eq!(shown(&position, 0), Ok(Some(0)));
        position.fetched(0, part(&[u64::MAX, 3], 3, false)).expect("a part");
        assert_eq!((shown(&position, 0), shown(&position, 1)), (Ok(Some(u64::MAX.into())), Ok(Some(3))));
        assert_eq!(shown(&position, 2), Ok(Some(-3)));
        position.fetched(2, part(&[9], 9, true)).expect("a part");
        assert_eq!((shown(&position, 2), shown(&position, 3)), (Ok(Some(9)), Ok(None)));
        assert_eq!(shown(&position, 1), Ok(Some(-i128::from(u64::MAX))), "entry 1 begins after entry 0");
        assert_eq!(shown(&position, 4), Err(Errno::INVAL));
    }

    #[test]
    fn another_process_continues_at_the_same_entries() {
        let mut position = Position::default();
        position.fetched(0, part(&[5, 3], 3, false)).expect("a part");
        let mut other = Position::restored(position.save());
        assert_eq!((shown(&other, 1), shown(&other, 2)), (Ok(Some(-5)), Ok(Some(-3))));
        other.fetched(2, part(&[9], 9, true)).expect("a part");
        assert_eq!((shown(&other, 2), shown(&other, 3)), (Ok(Some(9)), Ok(None)));
        assert_eq!(shown(&Position::restored(Vec::new()), 0), Ok(Some(0)));
    }

    #[test]
    fn a_part_of_dots_continues_at_its_cookie() {
        let mut position = Position::default();
        position.fetched(0, part(&[], 2, false)).expect("a part");
        assert_eq!(shown(&position, 0), Ok(Some(-2)));
        position.fetched(0, part(&[], 2, true)).expect("a part");
        assert_eq!(shown(&position, 0), Ok(None));
    }
}
