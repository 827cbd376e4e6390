use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};

use crate::Seek;

/// Granularity of storage in bytes, and alignment of holes. As large as a client's page, so that this is one
/// allocation.
pub(super) const PAGE: u64 = 4096;

const PAGE_BYTES: usize = PAGE as usize;

/// Content of a page.
pub(super) type Page = Box<[u8; PAGE_BYTES]>;

/// The content of a regular file: pages where something was written, and holes that read as zeros. A byte at 2^40
/// costs one page. Bytes after the size are zero in every page, so that extending needs no clearing.
#[derive(Debug, Default)]
pub(super) struct Pages {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl Pages {
    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of pages.
    pub(super) fn kept(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Appends `count` bytes from `offset` on; the range must be inside the size.
    pub(super) fn read(&self, offset: u64, count: usize, into: &mut BytesMut) {
        if count == 0 {
            return;
        }
        into.reserve(count);
        let (mut at, end) = (offset, offset + count as u64);
        for (&index, page) in self.pages.range(index_of(offset)..=index_of(end - 1)) {
            let start = index * PAGE;
            if start > at {
                into.put_bytes(0, (start - at) as usize);
                at = start;
            }
            let inside = (at - start) as usize;
            let length = (PAGE - (at - start)).min(end - at) as usize;
            into.extend_from_slice(&page[inside..inside + length]);
            at += length as u64;
        }
        into.put_bytes(0, (end - at) as usize);
    }

    /// Writes `data` at `offset`, asking `grant` for each new page, and stops where it refuses. Returns the number of
    /// bytes written.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], mut grant: impl FnMut() -> bool) -> usize {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let inside = (at % PAGE) as usize;
            let length = (PAGE_BYTES - inside).min(data.len() - done);
            let piece = &data[done..done + length];
            if let Some(page) = self.pages.get_mut(&index_of(at)) {
                page[inside..inside + length].copy_from_slice(piece);
            } else if grant() {
                self.pages.insert(index_of(at), page_with(inside, piece));
            } else {
                break;
            }
            done += length;
            self.size = self.size.max(at + length as u64);
        }
        done
    }

    /// Sets the size. Returns the number of freed pages.
    pub(super) fn truncate(&mut self, size: u64) -> u64 {
        let kept = self.kept();
        if size < self.size {
            drop(self.pages.split_off(&size.div_ceil(PAGE)));
            self.clear_inside_page(size, size.next_multiple_of(PAGE));
        }
        self.size = size;
        kept - self.kept()
    }

    /// Returns the number of pages that [`allocate`](Self::allocate) would add.
    pub(super) fn missing(&self, offset: u64, length: u64) -> u64 {
        let (first, last) = (index_of(offset), index_of(offset + length - 1));
        last - first + 1 - self.pages.range(first..=last).count() as u64
    }

    /// Allocates a page for every byte of the range, and extends the size to its end.
    pub(super) fn allocate(&mut self, offset: u64, length: u64) {
        for index in index_of(offset)..=index_of(offset + length - 1) {
            self.pages.entry(index).or_insert_with(|| page_with(0, &[]));
        }
        self.size = self.size.max(offset + length);
    }

    /// Makes a hole of a range inside the size. Returns the number of freed pages.
    pub(super) fn deallocate(&mut self, offset: u64, length: u64) -> u64 {
        let kept = self.kept();
        let end = offset + length;
        let (first, last) =
            (offset.div_ceil(PAGE), if end == self.size { end.div_ceil(PAGE) } else { end / PAGE });
        if first < last {
            self.clear_inside_page(offset, first * PAGE);
            self.clear_inside_page(last * PAGE, end);
            let mut behind = self.pages.split_off(&first);
            self.pages.append(&mut behind.split_off(&last));
        } else {
            let border = offset.next_multiple_of(PAGE).min(end);
            self.clear_inside_page(offset, border);
            self.clear_inside_page(border, end);
        }
        kept - self.kept()
    }

    /// Returns the number of pages with a part of the range, which must not be empty.
    pub(super) fn kept_in(&self, offset: u64, length: u64) -> u64 {
        self.pages.range(index_of(offset)..=index_of(offset + length - 1)).count() as u64
    }

    /// Returns the pages of a range, which must begin at a page and not be empty, by their distance from its start.
    pub(super) fn copies_of(&self, offset: u64, length: u64) -> Vec<(u64, Page)> {
        let (first, last) = (index_of(offset), index_of(offset + length - 1));
        self.pages.range(first..=last).map(|(index, page)| (index - first, page.clone())).collect()
    }

    /// Replaces a range, which must begin at a page and not be empty, by `pages` and holes between, and extends the
    /// size to its end. In the last page nothing may follow the range, or the range ends with that page.
    pub(super) fn replace(&mut self, offset: u64, length: u64, pages: Vec<(u64, Page)>) {
        let (first, last) = (index_of(offset), index_of(offset + length - 1));
        let mut behind = self.pages.split_off(&first);
        self.pages.append(&mut behind.split_off(&(last + 1)));
        self.pages.extend(pages.into_iter().map(|(distance, page)| (first + distance, page)));
        self.clear_inside_page(offset + length, (last + 1) * PAGE);
        self.size = self.size.max(offset + length);
    }

    /// Returns the next data or hole at or after `offset`, which must be inside the size; the end is a hole.
    pub(super) fn seek(&self, offset: u64, what: Seek) -> Option<u64> {
        let mut following = self.pages.range(index_of(offset)..).map(|(&index, _)| index);
        match what {
            Seek::Data => following.next().map(|index| (index * PAGE).max(offset)),
            Seek::Hole => {
                let mut hole = index_of(offset);
                while following.next() == Some(hole) {
                    hole += 1;
                }
                Some((hole * PAGE).max(offset).min(self.size))
            }
        }
    }

    /// Restores the kept content.
    pub(super) fn undo(&mut self, undo: Undo) {
        for (index, page) in undo.pages {
            match page {
                Some(page) => self.pages.insert(index, page),
                None => self.pages.remove(&index),
            };
        }
        self.size = undo.size.unwrap_or(self.size);
    }

    /// Zeroes `from..to`, which must be in one page.
    fn clear_inside_page(&mut self, from: u64, to: u64) {
        if from < to
            && let Some(page) = self.pages.get_mut(&index_of(from))
        {
            let inside = (from % PAGE) as usize;
            page[inside..inside + (to - from) as usize].fill(0);
        }
    }
}

/// The content of pages before they were written, and the size then.
#[derive(Debug, Default)]
pub(super) struct Undo {
    size: Option<u64>,
    pages: BTreeMap<u64, Option<Page>>,
}

impl Undo {
    /// Keeps the content of the range, unless it was kept before.
    pub(super) fn keep(&mut self, pages: &Pages, offset: u64, length: u64) {
        self.size.get_or_insert(pages.size);
        for index in index_of(offset)..=index_of(offset + length - 1) {
            self.pages.entry(index).or_insert_with(|| pages.pages.get(&index).cloned());
        }
    }
}

fn index_of(offset: u64) -> u64 {
    offset / PAGE
}

/// Returns a page with `piece` at `inside` and zeros around it.
fn page_with(inside: usize, piece: &[u8]) -> Page {
    let mut page = Box::new([0; PAGE_BYTES]);
    page[inside..inside + piece.len()].copy_from_slice(piece);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(pages: &Pages) -> Vec<u8> {
        let mut into = BytesMut::new();
        pages.read(0, pages.size() as usize, &mut into);
        into.to_vec()
    }

    #[test]
    fn a_write_at_2_pow_40_costs_one_page() {
        let mut pages = Pages::default();
        assert_eq!(pages.write(1 << 40, b"x", || true), 1);
        assert_eq!((pages.size(), pages.kept()), ((1 << 40) + 1, 1));
    }

    #[test]
    fn a_read_joins_pages_and_holes() {
        let mut pages = Pages::default();
        pages.write(PAGE - 1, b"ab", || true);
        pages.write(3 * PAGE, b"c", || true);
        let mut wanted = vec![0; 3 * PAGE_BYTES + 1];
        wanted[PAGE_BYTES - 1] = b'a';
        wanted[PAGE_BYTES] = b'b';
        wanted[3 * PAGE_BYTES] = b'c';
        assert_eq!(content(&pages), wanted);
        let mut into = BytesMut::from(&b"before"[..]);
        pages.read(PAGE, 2, &mut into);
        pages.read(PAGE, 0, &mut into);
        assert_eq!(&into[..], b"beforeb\0");
    }

    #[test]
    fn truncated_data_never_reappear() {
        let mut pages = Pages::default();
        pages.write(0, &[7; 2 * PAGE_BYTES], || true);
        assert_eq!(pages.truncate(10), 1);
        assert_eq!(pages.truncate(100), 0);
        assert_eq!(content(&pages), [vec![7; 10], vec![0; 90]].concat());
    }

    #[test]
    fn a_write_stops_where_no_page_is_granted() {
        let mut pages = Pages::default();
        let mut left = 1;
        let written = pages.write(PAGE - 4, &[1; 8], || {
            left -= 1;
            left >= 0
        });
        assert_eq!((written, pages.size()), (4, PAGE));
    }

    #[test]
    fn a_hole_reads_as_zeros_and_frees_whole_pages() {
        for (offset, length, freed) in [
            (1, 2, 0),
            (10, PAGE, 0),
            (1, 3 * PAGE, 2),
            (0, 4 * PAGE, 4),
            (PAGE, 3 * PAGE, 3),
            (3 * PAGE + 1, 9, 0),
        ] {
            let mut pages = Pages::default();
            pages.write(0, &[7; 4 * PAGE_BYTES], || true);
            assert_eq!(pages.deallocate(offset, length), freed, "{offset}+{length}");
            let mut wanted = vec![7; 4 * PAGE_BYTES];
            wanted[offset as usize..(offset + length) as usize].fill(0);
            assert_eq!(content(&pages), wanted, "{offset}+{length}");
        }
    }

    #[test]
    fn seek_finds_the_borders_between_data_and_holes() {
        let mut pages = Pages::default();
        pages.write(PAGE, &[1; 2 * PAGE_BYTES], || true);
        pages.truncate(5 * PAGE);
        assert_eq!(pages.seek(0, Seek::Data), Some(PAGE));
        assert_eq!(pages.seek(PAGE + 5, Seek::Data), Some(PAGE + 5));
        assert_eq!(pages.seek(3 * PAGE, Seek::Data), None);
        assert_eq!(pages.seek(0, Seek::Hole), Some(0));
        assert_eq!(pages.seek(PAGE, Seek::Hole), Some(3 * PAGE));
        pages.write(5 * PAGE - 1, b"x", || true);
        assert_eq!(pages.seek(4 * PAGE + 1, Seek::Hole), Some(5 * PAGE));
    }
}
