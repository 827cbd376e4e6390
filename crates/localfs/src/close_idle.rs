//! Closes descriptors of files that no request uses at the moment, if the volume has too many or the process has
//! none left.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::descriptors::{MIN_OBJECTS, User};
use crate::object::{Object, OpenFile, Reach};
use crate::volume::Volume;

/// Part of the files that opens may pin whose descriptors are closed at once when there are too many.
const BATCH: usize = 16;

impl Volume {
    /// Wraps an open descriptor of this volume.
    pub(crate) fn file_of(&self, fd: OwnedFd, reach: Reach) -> OpenFile {
        OpenFile::new(fd, reach, self.descriptors.count())
    }

    /// Returns the number of objects that may be dirty before writes go to the device at once.
    pub(crate) fn max_dirty(&self) -> usize {
        self.max_objects.min(self.descriptors.share()).max(MIN_OBJECTS) / 2
    }

    /// Closes descriptors of idle pinned files if these are more than half of the volume's share.
    pub(crate) fn bound_pinned(&self) {
        let allowed = self.descriptors.max_pinned();
        let pinned = self.objects.pinned();
        if pinned <= allowed.max(self.pinned_in_use.load(Ordering::Relaxed)) {
            return;
        }
        let wanted = pinned - allowed + allowed / BATCH;
        let closed = self.close_some(wanted, |object| object.is_pinned() && self.close_pinned(object));
        // If many cannot be closed, the next search waits until there are more.
        let in_use = if closed < wanted { self.objects.pinned() + allowed.div_ceil(BATCH) } else { 0 };
        self.pinned_in_use.store(in_use, Ordering::Relaxed);
    }

    /// Visits the cached objects from the end of the last search, until `close` has closed `wanted`. Returns the
    /// number closed.
    fn close_some(&self, wanted: usize, close: impl Fn(&Arc<Object>) -> bool) -> usize {
        let mut all: Vec<_> = self.objects.iter().collect();
        if all.is_empty() {
            return 0;
        }
        let begin = self.closed_last.load(Ordering::Relaxed) % all.len();
        all.rotate_left(begin);
        let (mut closed, mut seen) = (0, 0);
        for object in all {
            if closed >= wanted {
                break;
            }
            seen += 1;
            closed += usize::from(close(&object));
        }
        // Objects after the closed ones have moved up.
        self.closed_last.store(begin + seen - closed, Ordering::Relaxed);
        closed
    }

    /// Closes the descriptor of a pinned file, if its handle finds it again.
    fn close_pinned(&self, object: &Arc<Object>) -> bool {
        self.counts_links && object.can_be_found_again() && self.objects.close_pinned(object)
    }
}

impl User for Volume {
    fn take_share(&self) {
        self.objects.set_capacity(self.max_objects.min(self.descriptors.share()).max(MIN_OBJECTS));
    }

    fn close_streams(&self) {
        self.streams.clear();
    }

    fn open_files(&self) -> usize {
        self.objects.len()
    }

    fn close_unused(&self, wanted: usize) {
        self.close_some(wanted, |object| {
            if object.is_pinned() { self.close_pinned(object) } else { self.objects.remove_unused(object) }
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use rustix::io::Errno;
    use tempfile::TempDir;
    use vfs::{
        Authority, Context, Credentials, Handle, OpenAccess, Payload, Pin, ReadRequest, Removal, Stability,
        Timestamp,
    };

    use super::*;
    use crate::config::Config;
    use crate::descriptors::Descriptors;
    use crate::name::Name;

    /// A volume with files `0`, `1`, … whose content is their name.
    struct Case {
        directory: TempDir,
        files: usize,
        volume: Arc<Volume>,
        context: Context,
        runtime: tokio::runtime::Runtime,
    }

    impl Case {
        fn new(descriptors: &'static Descriptors, files: usize) -> Self {
            let directory = tempfile::tempdir().expect("temporary directory");
            let top = directory.path().join("export");
            std::fs::create_dir(&top).expect("directory");
            for number in 0..files {
                std::fs::write(top.join(number.to_string()), number.to_string()).expect("write");
            }
            let config = Config {
                state_directory: Some(directory.path().join("state")),
                descriptors: Some(descriptors),
                ..Config::new(top)
            };
            let volume = crate::probe::open(&config).expect("volume");
            let uid = rustix::process::geteuid().as_raw();
            let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
            let context = Context::new(credentials, Timestamp::default());
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
            Self { directory, files, volume, context, runtime }
        }

        fn find(&self, number: usize) -> Handle {
            let name = Name::new(number.to_string().as_bytes()).expect("a name");
            self.volume.find(&self.volume.root, &name).expect("object").handle
        }

        fn find_all(&self) {
            for number in 0..self.files {
                self.find(number);
            }
        }

        fn open(&self, handle: &Handle) -> Arc<dyn Pin> {
            let access = OpenAccess { read: true, write: true };
            let opening = self.volume.open(&self.context, (handle, None), access, Authority::Caller);
            self.runtime.block_on(opening).expect("open").pin
        }

        fn read(&self, handle: &Handle) -> vfs::Result<String> {
            let request =
                ReadRequest { offset: 0, count: 100, authority: Authority::Opened, may_splice: false };
            let mut into = BytesMut::new();
            let read = self.volume.read(&self.context, handle, request, &mut into);
            let bytes = match self.runtime.block_on(read)?.payload {
                Payload::Bytes(bytes) => bytes.to_vec(),
                _ => into.to_vec(),
            };
            Ok(String::from_utf8(bytes).expect("text"))
        }

        fn write(&self, handle: &Handle, data: &'static [u8]) {
            let (data, stability) = (Bytes::from_static(data), Stability::FileSync);
            let written = self.volume.write(&self.context, handle, 0, &data, stability, Authority::Opened);
            self.runtime.block_on(written).expect("write");
        }
    }

    #[test]
    fn opens_beyond_the_budget_keep_files_without_their_descriptors() {
        let descriptors = Descriptors::new(64);
        let case = Case::new(descriptors, 300);
        let opened: Vec<_> = (0..300)
            .map(|number| {
                let handle = case.find(number);
                (handle, case.open(&handle))
            })
            .collect();
        assert!(descriptors.open_now() <= 64, "{descriptors:?}");
        for (number, (handle, _)) in opened.iter().enumerate() {
            assert_eq!(case.read(handle).expect("read"), number.to_string());
        }
        case.write(&opened[7].0, b"new");
        assert_eq!(case.read(&opened[7].0).expect("read"), "new");
        assert!(descriptors.open_now() <= 64, "{descriptors:?}");
        drop(opened);
        assert_eq!(case.volume.objects.pinned(), 0);
        assert!(case.volume.objects.closed_is_empty());
    }

    #[test]
    fn an_open_file_without_a_descriptor_outlives_its_removal() {
        let case = Case::new(Descriptors::new(64), 2);
        let handle = case.find(0);
        let (first, second) = (case.open(&handle), case.open(&handle));
        case.volume.close_unused(usize::MAX);
        assert!(case.volume.objects.peek(&handle).is_none(), "its descriptor is closed");
        let removed = case.volume.remove(&case.context, &case.volume.root.handle, b"0", Removal::File);
        case.runtime.block_on(removed).expect("removed");
        drop(first);
        case.volume.close_unused(usize::MAX);
        assert_eq!(case.read(&handle).expect("an open holds it"), "0");
        drop(second);
        assert_eq!(case.read(&handle).expect_err("gone"), vfs::Error::Stale);
    }

    #[test]
    fn a_closed_file_removed_by_a_local_process_is_stale() {
        let case = Case::new(Descriptors::new(64), 1);
        let handle = case.find(0);
        let pin = case.open(&handle);
        case.volume.close_unused(usize::MAX);
        std::fs::remove_file(case.directory.path().join("export/0")).expect("removed");
        assert_eq!(case.read(&handle).expect_err("gone"), vfs::Error::Stale);
        drop(pin);
        assert!(case.volume.objects.closed_is_empty());
    }

    #[test]
    fn volumes_share_one_budget_and_get_more_when_others_are_dropped() {
        let descriptors = Descriptors::new(200);
        let cases: Vec<_> = (0..5).map(|_| Case::new(descriptors, 100)).collect();
        for case in &cases {
            case.find_all();
        }
        assert!(descriptors.open_now() <= 200, "{descriptors:?}");
        assert!(cases.iter().all(|case| case.volume.objects.len() <= 40));
        let last = cases.into_iter().next_back().expect("five");
        assert_eq!(descriptors.share(), 200);
        last.find_all();
        assert_eq!(last.volume.objects.len(), 101, "and the root");
    }

    #[test]
    fn an_open_that_fails_with_emfile_is_repeated_once() {
        let descriptors = Descriptors::new(64);
        let case = Case::new(descriptors, 30);
        case.find_all();
        let (before, mut calls) = (descriptors.open_now(), 0);
        let opened = descriptors.open(|| {
            calls += 1;
            if calls == 1 { Err(Errno::MFILE) } else { Ok(descriptors.open_now()) }
        });
        assert!(opened.expect("the second call") < before);
        let mut calls = 0;
        let refused = descriptors.open(|| {
            calls += 1;
            Err::<(), _>(Errno::MFILE)
        });
        assert_eq!((refused, calls), (Err(Errno::MFILE), 2));
    }

    #[test]
    fn a_used_up_budget_refuses_opens() {
        let descriptors = Descriptors::new(8);
        let _all: Vec<_> = (0..8).map(|_| descriptors.count()).collect();
        let refused = descriptors.open(|| -> rustix::io::Result<()> { panic!("beyond the budget") });
        assert_eq!(refused, Err(Errno::MFILE));
    }
}
