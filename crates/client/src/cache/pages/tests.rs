use proptest::prelude::*;

use super::*;
use crate::cache::limiter::{Budget, Limiter, User};

const FILE: FileId = FileId(1);
const SIZE: usize = 4096;

fn user() -> User {
    Limiter::new(Budget::new(0)).user()
}

fn permit(user: &User, kind: Kind, len: usize) -> Permit {
    user.try_reserve(kind, charge(len)).unwrap()
}

/// Fetches `range` at once.
fn fetch(cache: &mut PageCache, user: &User, range: Range<u64>, kind: Kind, byte: u8) {
    let len = (range.end - range.start) as usize;
    let id = cache.start_fetch(FILE, range.clone()).unwrap();
    cache.end_fetch(FILE, id, range.start, vec![byte; len].into(), permit(user, kind, len));
}

fn write(cache: &mut PageCache, user: &User, offset: u64, data: &[u8]) {
    cache.write(FILE, offset, Bytes::copy_from_slice(data), permit(user, Kind::Dirty, data.len()));
}

#[test]
fn read_returns_slices_of_the_received_buffer_and_holes() {
    let (mut cache, user) = (PageCache::default(), user());
    let buffer = Bytes::from(vec![7; 8192]);
    let id = cache.start_fetch(FILE, 4096..12288).unwrap();
    cache.end_fetch(FILE, id, 4096, buffer.clone(), permit(&user, Kind::Clean, 8192));
    let pieces = cache.read(FILE, 0..16384);
    assert_eq!(pieces[0], Piece::Hole(0..4096));
    assert_eq!(pieces[2], Piece::Hole(12288..16384));
    let Piece::Data { offset: 4096, data } = &pieces[1] else { panic!("{pieces:?}") };
    assert_eq!((data.as_ptr(), data.len()), (buffer.as_ptr(), 8192), "not copied");
}

#[test]
fn second_reader_waits_for_the_same_request() {
    let mut cache = PageCache::default();
    let id = cache.start_fetch(FILE, 0..8192).unwrap();
    let coming = |range| Piece::Coming { range, fetch: id };
    assert_eq!(cache.read(FILE, 4096..12288), [coming(4096..8192), Piece::Hole(8192..12288)]);
    assert_eq!(cache.start_fetch(FILE, 4096..12288), None);
    cache.fail_fetch(FILE, id, 0);
    assert_eq!(cache.read(FILE, 0..8192), [Piece::Hole(0..8192)]);
    assert!(cache.is_empty() || cache.extents(FILE) == 0);
}

#[test]
fn short_reply_leaves_a_hole() {
    let (mut cache, user) = (PageCache::default(), user());
    let id = cache.start_fetch(FILE, 0..100).unwrap();
    cache.end_fetch(FILE, id, 0, vec![1; 60].into(), permit(&user, Kind::Clean, 60));
    assert_eq!(cache.read(FILE, 0..100)[1], Piece::Hole(60..100));
}

#[test]
fn data_of_a_read_that_overlapped_a_write_are_not_cached() {
    let (mut cache, user) = (PageCache::default(), user());
    let id = cache.start_fetch(FILE, 0..100).unwrap();
    write(&mut cache, &user, 10, &[2; 10]);
    let answer = Bytes::from(vec![1; 100]);
    cache.end_fetch(FILE, id, 0, answer.clone(), permit(&user, Kind::Clean, 100));
    assert_eq!(cache.read(FILE, 0..10), [Piece::Hole(0..10)]);
    let seen: Vec<u8> = cache.overlay(FILE, 0, &answer).concat();
    assert_eq!(seen, [vec![1; 10], vec![2; 10], vec![1; 80]].concat());
}

#[test]
fn write_replaces_only_its_bytes() {
    let (mut cache, user) = (PageCache::default(), user());
    fetch(&mut cache, &user, 0..100, Kind::Clean, 1);
    write(&mut cache, &user, 40, &[2; 20]);
    let seen: Vec<u8> = cache.slices(FILE, 0..100).concat();
    assert_eq!(seen, [vec![1; 40], vec![2; 20], vec![1; 40]].concat());
    cache.invalidate(FILE);
    assert_eq!(
        cache.read(FILE, 0..100)[0],
        Piece::Hole(0..40),
        "clean data are dropped, dirty data are kept"
    );
    assert_eq!(cache.slices(FILE, 0..100).concat(), [2; 20]);
}

#[test]
fn data_that_were_dirty_when_the_file_was_invalidated_are_dropped_when_they_are_stable() {
    let (mut cache, user) = (PageCache::default(), user());
    write(&mut cache, &user, 0, &[1; 9000]);
    cache.invalidate(FILE);
    write(&mut cache, &user, 2000, &[2; 5000]);
    cache.convert(FILE, 0..9000, Kind::Uncommitted);
    assert_eq!(cache.slices(FILE, 0..9000).concat(), [vec![1; 2000], vec![2; 5000], vec![1; 2000]].concat());
    cache.convert(FILE, 0..9000, Kind::Clean);
    let data = Bytes::from(vec![2; 5000]);
    let kept = [Piece::Hole(0..2000), Piece::Data { offset: 2000, data }, Piece::Hole(7000..9000)];
    assert_eq!(cache.read(FILE, 0..9000), kept, "others may have written the file after the first data");
    while cache.evict(Kind::Clean, u64::MAX) > 0 {}
    assert!(cache.is_empty());
}

#[test]
fn small_sequential_writes_share_an_extent() {
    let (mut cache, user) = (PageCache::default(), user());
    for index in 0..1000_u64 {
        write(&mut cache, &user, index * 10, &[index as u8; 10]);
    }
    assert_eq!(cache.extents(FILE), 1);
    // A request in progress keeps its bytes.
    let sent = cache.slices(FILE, 0..10_000);
    write(&mut cache, &user, 10_000, &[1; 10]);
    assert_eq!(cache.extents(FILE), 2);
    assert_eq!(sent.concat().len(), 10_000);
}

#[test]
fn evicts_pages_read_once_before_pages_used_often() {
    let (mut cache, user) = (PageCache::default(), user());
    fetch(&mut cache, &user, 0..1000, Kind::Clean, 1);
    for _ in 0..3 {
        cache.read(FILE, 0..1000);
    }
    fetch(&mut cache, &user, 1000..2000, Kind::Clean, 1);
    cache.read(FILE, 1000..2000);
    write(&mut cache, &user, 2000, &[2; 1000]);
    fetch(&mut cache, &user, 3000..4000, Kind::ReadAhead, 1);
    assert_eq!(cache.evict(Kind::Clean, 1), charge(1000));
    assert_eq!(cache.read(FILE, 1000..2000), [Piece::Hole(1000..2000)]);
    assert_eq!(cache.evict(Kind::Clean, u64::MAX), charge(1000));
    assert_eq!(cache.evict(Kind::ReadAhead, u64::MAX), charge(1000));
    assert_eq!(cache.slices(FILE, 0..4000).concat(), [2; 1000]);
}

#[test]
fn reading_turns_read_ahead_into_clean_pages() {
    let (mut cache, user) = (PageCache::default(), user());
    fetch(&mut cache, &user, 0..1000, Kind::ReadAhead, 1);
    cache.read(FILE, 0..10);
    assert_eq!(user.limiter().used().of(Kind::ReadAhead), 0);
    assert_eq!(user.limiter().used().of(Kind::Clean), charge(1000));
}

#[test]
fn rest_of_a_large_buffer_is_copied_when_most_of_it_is_overwritten() {
    let (mut cache, user) = (PageCache::default(), user());
    let buffer = Bytes::from(vec![1; 100_000]);
    let id = cache.start_fetch(FILE, 0..100_000).unwrap();
    cache.end_fetch(FILE, id, 0, buffer, permit(&user, Kind::Clean, 100_000));
    write(&mut cache, &user, 1000, &vec![2; 98_000]);
    for data in [cache.slices(FILE, 0..1000), cache.slices(FILE, 99_000..100_000)] {
        assert!(data[0].is_unique() || data[0].len() == 1000);
    }
    let extents: Vec<usize> = cache.files[&FILE].extents.values().map(|extent| extent.buffer_len).collect();
    assert_eq!(extents, [1000, 98_000, 1000]);
}

#[derive(Clone, Debug)]
enum Op {
    Write(usize, usize, u8),
    /// Dirty data reach the server.
    Flush(usize, usize),
    Fetch(usize, usize),
    /// The server reads for one of the fetches.
    Execute(usize),
    EndFetch(usize),
    ForeignWrite(usize, usize, u8),
    Evict(bool, u64),
    Remove(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, len, index) = (|| 0..SIZE, || 1..SIZE / 4, || 0..8_usize);
    prop_oneof![
        (at(), len(), any::<u8>()).prop_map(|(at, len, byte)| Op::Write(at, len, byte)),
        (at(), len()).prop_map(|(at, len)| Op::Flush(at, len)),
        (at(), len()).prop_map(|(at, len)| Op::Fetch(at, len)),
        index().prop_map(Op::Execute),
        index().prop_map(Op::EndFetch),
        (at(), len(), any::<u8>()).prop_map(|(at, len, byte)| Op::ForeignWrite(at, len, byte)),
        (any::<bool>(), 0..2048_u64).prop_map(|(clean, bytes)| Op::Evict(clean, bytes)),
        (at(), len()).prop_map(|(at, len)| Op::Remove(at, len)),
    ]
}

struct Model {
    cache: PageCache,
    user: User,
    server: Vec<u8>,
    /// Bytes that the server does not have yet.
    dirty: Vec<Option<u8>>,
    fetches: Vec<(FetchId, Range<u64>, Option<Bytes>)>,
}

impl Model {
    fn new() -> Self {
        let (server, dirty) = (vec![0; SIZE], vec![None; SIZE]);
        Self { cache: PageCache::default(), user: user(), server, dirty, fetches: Vec::new() }
    }

    fn play(&mut self, op: Op) {
        let range = |at: usize, len: usize| at..(at + len).min(SIZE);
        let wide = |range: &Range<usize>| range.start as u64..range.end as u64;
        match op {
            Op::Write(at, len, byte) => {
                let range = range(at, len);
                self.dirty[range.clone()].fill(Some(byte));
                write(&mut self.cache, &self.user, at as u64, &vec![byte; range.len()]);
            }
            Op::Flush(at, len) => {
                let range = range(at, len);
                for at in range.clone() {
                    if let Some(byte) = self.dirty[at].take() {
                        self.server[at] = byte;
                        self.cache.convert(FILE, at as u64..at as u64 + 1, Kind::Clean);
                    }
                }
            }
            Op::Fetch(at, len) => {
                for piece in self.cache.read(FILE, wide(&range(at, len))) {
                    if let Piece::Hole(hole) = piece {
                        let id =
                            self.cache.start_fetch(FILE, hole.clone()).expect("holes are not being fetched");
                        self.fetches.push((id, hole, None));
                    }
                }
            }
            Op::Execute(index) if !self.fetches.is_empty() => {
                let index = index % self.fetches.len();
                let (_, range, data) = &mut self.fetches[index];
                let bytes = &self.server[range.start as usize..range.end as usize];
                data.get_or_insert_with(|| Bytes::copy_from_slice(bytes));
            }
            Op::EndFetch(index) if !self.fetches.is_empty() => {
                let (id, range, data) = self.fetches.remove(index % self.fetches.len());
                match data {
                    Some(data) => {
                        let permit = permit(&self.user, Kind::ReadAhead, data.len());
                        self.cache.end_fetch(FILE, id, range.start, data, permit);
                    }
                    None => self.cache.fail_fetch(FILE, id, range.start),
                }
            }
            Op::ForeignWrite(at, len, byte) => {
                self.server[range(at, len)].fill(byte);
                self.cache.invalidate(FILE);
            }
            Op::Evict(clean, bytes) => {
                self.cache.evict(if clean { Kind::Clean } else { Kind::ReadAhead }, bytes);
            }
            Op::Remove(at, len) => {
                let range = range(at, len);
                self.dirty[range.clone()].fill(None);
                self.cache.remove(FILE, wide(&range));
            }
            Op::Execute(_) | Op::EndFetch(_) => {}
        }
    }

    fn check(&mut self) {
        let mut at = 0;
        for piece in self.cache.read(FILE, 0..SIZE as u64) {
            let range = match piece {
                Piece::Data { offset, data } => {
                    for (index, byte) in (offset as usize..).zip(&data) {
                        assert_eq!(*byte, self.dirty[index].unwrap_or(self.server[index]), "byte {index}");
                    }
                    offset..offset + data.len() as u64
                }
                Piece::Coming { range, .. } | Piece::Hole(range) => {
                    assert!(self.dirty[range.start as usize..range.end as usize].iter().all(Option::is_none));
                    range
                }
            };
            assert!(range.start == at && range.end > at, "no gaps and no empty pieces");
            at = range.end;
        }
        assert_eq!(at, SIZE as u64);
        for pages in self.cache.files.values() {
            let evictable = pages.extents.values().filter(|extent| extent.is_evictable()).count();
            assert_eq!(pages.evictable, evictable);
        }
        let accounted: u64 = self
            .cache
            .files
            .values()
            .flat_map(|pages| pages.extents.values())
            .map(|extent| extent.permit.bytes())
            .sum();
        assert_eq!(self.user.used(), accounted);
    }
}

proptest! {
    #[test]
    fn reads_return_the_last_written_data(ops in prop::collection::vec(op(), 1..120)) {
        let mut model = Model::new();
        for op in ops {
            model.play(op);
            model.check();
        }
        model.cache.remove(FILE, 0..u64::MAX);
        prop_assert_eq!(model.user.used(), 0);
    }
}
