//! The generator and the floor against each other: every reply is checked, so that a run without error shows both.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use bench::error::LoadError;
use bench::floor::{self, Durability, FloorOptions, LargeRead};
use bench::layout;
use bench::load::{self, LoadPlan, Xids};
use bench::operation::Operation;
use bench::peers::Peer;
use bench::results::Shape;

/// Starts a floor on a port of its own; its thread ends with the test process.
fn start_floor(export: &Path, large_read: LargeRead) -> SocketAddr {
    start_floor_with(export, FloorOptions { large_read, durability: Durability::None })
}

fn start_floor_with(export: &Path, options: FloorOptions) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let export = export.to_owned();
    thread::spawn(move || floor::serve(&export, listener, options).unwrap());
    address
}

fn plan(server: SocketAddr, operation: Operation, connections: u32, depth: u32) -> LoadPlan {
    LoadPlan {
        server,
        mount: server,
        export: "/export".into(),
        operation,
        shape: Shape { connections, depth },
        warm_up: Duration::from_millis(5),
        window: Duration::from_millis(40),
        server_pid: None,
        xids: Rc::new(Xids::starting_at(1)),
    }
}

#[test]
fn every_reply_of_the_floor_passes_the_checks() {
    let export = tempfile::tempdir().unwrap();
    layout::prepare(export.path()).unwrap();
    for large_read in [LargeRead::Pread, LargeRead::Sendfile] {
        let server = start_floor(export.path(), large_read);
        for operation in Operation::ALL.iter().filter(|operation| Peer::Floor.serves(**operation)) {
            for (connections, depth) in [(1, 1), (1, 64), (3, 5)] {
                let measured =
                    load::run(&plan(server, *operation, connections, depth)).unwrap_or_else(|error| {
                        panic!("{operation} {connections}x{depth} {large_read:?}: {error}")
                    });
                assert!(measured.operations > 0, "{operation} {connections}x{depth}");
                assert!(measured.p50_us > 0.0 && measured.p50_us <= measured.p99_us);
                assert_eq!(measured.shape, Shape { connections, depth });
            }
        }
    }
    let churn = export.path().join(layout::DIRECTORY).join(layout::CHURN_DIRECTORY);
    assert_eq!(churn.read_dir().unwrap().count(), 0, "every CREATE was followed by its REMOVE");
}

#[test]
fn the_floor_that_waits_for_the_disk_creates_and_removes_as_well() {
    let export = tempfile::tempdir().unwrap();
    layout::prepare(export.path()).unwrap();
    let options = FloorOptions { large_read: LargeRead::Pread, durability: Durability::Batch };
    let server = start_floor_with(export.path(), options);
    for operation in Operation::ALL.iter().filter(|operation| Peer::FloorSync.serves(**operation)) {
        let measured = load::run(&plan(server, *operation, 1, 4)).unwrap();
        assert!(measured.operations > 0);
    }
    let churn = export.path().join(layout::DIRECTORY).join(layout::CHURN_DIRECTORY);
    assert_eq!(churn.read_dir().unwrap().count(), 0);
}

#[test]
fn writes_reach_their_offsets() {
    let export = tempfile::tempdir().unwrap();
    layout::prepare(export.path()).unwrap();
    let server = start_floor(export.path(), LargeRead::Pread);
    load::run(&plan(server, Operation::Write1m, 1, 8)).unwrap();
    let file = std::fs::read(export.path().join(layout::DIRECTORY).join(layout::LARGE_WRITE_FILE)).unwrap();
    // A large WRITE carries the pattern of the file's first MiB, at any offset; connection 0 begins at 1 MiB.
    let mut first = vec![0; 1 << 20];
    layout::fill_pattern(0, &mut first);
    assert_eq!(file.len() as u64, layout::FILE_BYTES);
    assert!(file[1 << 20..2 << 20] == first);
}

#[test]
fn wrong_data_are_an_error_and_not_counted() {
    let export = tempfile::tempdir().unwrap();
    layout::prepare(export.path()).unwrap();
    let path = export.path().join(layout::DIRECTORY).join(layout::READ_FILE);
    let mut content = std::fs::read(&path).unwrap();
    content.iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
    std::fs::write(&path, content).unwrap();
    let server = start_floor(export.path(), LargeRead::Pread);
    for operation in [Operation::Read4k, Operation::Read1m] {
        let error = load::run(&plan(server, operation, 2, 4)).unwrap_err();
        assert!(matches!(&error, LoadError::WrongReply(why) if why.contains("other data")), "{error}");
    }
}

#[test]
fn a_name_that_exists_already_is_an_error() {
    let export = tempfile::tempdir().unwrap();
    layout::prepare(export.path()).unwrap();
    let churn = export.path().join(layout::DIRECTORY).join(layout::CHURN_DIRECTORY);
    std::fs::write(churn.join("file-00-00"), "").unwrap();
    let server = start_floor(export.path(), LargeRead::Pread);
    assert!(load::run(&plan(server, Operation::CreateRemove, 1, 1)).is_err());
}

#[test]
fn a_server_that_closes_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    thread::spawn(move || drop(listener.accept()));
    let error = load::run(&plan(server, Operation::Null, 1, 1)).unwrap_err();
    assert!(matches!(error, LoadError::Connection(..)), "{error}");
}
