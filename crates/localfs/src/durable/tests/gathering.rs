//! Stable writes of one file that are in progress together share syncs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use vfs::{Authority, Stability};

use super::{Case, block_on, case};

const WRITERS: u64 = 8;
const WRITES: u64 = 20;

/// Sends stable writes, each after the answer to the last.
async fn write_stably(case: Arc<Case>, writer: u64) {
    for number in 0..WRITES {
        let (data, offset) = (Bytes::from_static(b"data"), (writer * WRITES + number) * 4);
        let write = case.volume.write(
            &case.context,
            &case.file,
            offset,
            &data,
            Stability::FileSync,
            Authority::Caller,
        );
        write.await.expect("written");
    }
}

#[test]
fn eight_writers_of_one_file_share_their_syncs() {
    block_on(async {
        let case = Arc::new(case().await);
        let before = case.syncs();
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write_stably(Arc::clone(&case), writer))).collect();
        for writer in writers {
            writer.await.expect("task");
        }
        let syncs = (case.syncs() - before) as u64;
        // The best is one for eight writes. Two writers that miss each sync would still need less than a quarter.
        assert!((WRITES..=WRITERS * WRITES / 4).contains(&syncs), "{syncs} syncs");
        assert!(case.volume.gatherings.load(Ordering::Relaxed) > 0);
    });
}

#[test]
fn a_single_writer_never_waits_for_others() {
    block_on(async {
        let case = Arc::new(case().await);
        let before = case.syncs();
        write_stably(Arc::clone(&case), 0).await;
        assert_eq!((case.syncs() - before) as u64, WRITES);
        assert_eq!(case.volume.gatherings.load(Ordering::Relaxed), 0);
    });
}
