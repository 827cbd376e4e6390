//! The generator against Enfys over an empty file system in memory: it creates its files there first.

use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bench::load::{self, LoadPlan, Xids};
use bench::operation::Operation;
use bench::peers::Peer;
use bench::results::Shape;
use net::{Limits, Listeners};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash, Versions};
use vfs::{MemFs, MemOptions};

#[test]
fn every_operation_succeeds_on_files_made_over_nfs() {
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend: Arc::new(MemFs::new(&MemOptions { max_bytes: 1 << 30, ..MemOptions::default() })),
        options: ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() },
        fsid: (1, 1),
        counts: Arc::default(),
    };
    let mut settings = Settings::new(HandleKey([7; 16]), 1, [9; 16], b"bench-test".to_vec());
    settings.versions = Versions::IMPLEMENTED;
    let enfys = Arc::new(Server::new(settings, ExportTable::new(vec![export]).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listeners = Listeners { tcp: vec![listener], udp: Vec::new() };
    let running = net::serve(enfys, listeners, Limits { cores: 1, ..Limits::default() }, None, None).unwrap();
    let xids = Rc::new(Xids::starting_at(1));
    for operation in Operation::ALL.iter().filter(|operation| Peer::EnfysMemory.serves(**operation)) {
        for (connections, depth) in [(1, 1), (2, 16)] {
            let plan = LoadPlan {
                server: address,
                mount: address,
                export: "/export".into(),
                operation: *operation,
                shape: Shape { connections, depth },
                warm_up: Duration::from_millis(5),
                window: Duration::from_millis(20),
                server_pid: None,
                xids: Rc::clone(&xids),
            };
            let measured =
                load::run(&plan).unwrap_or_else(|error| panic!("{operation} {connections}×{depth}: {error}"));
            assert!(measured.operations > 0);
        }
    }
    running.shut_down();
}
