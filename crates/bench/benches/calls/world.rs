//! A server of a directory on tmpfs, and one client's connection without a network.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use localfs::{Config, LocalFs};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use rpc::message;
use server::{
    Connection, ConnectionId, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now, Server, Settings,
    Squash, Transport,
};
use tempfile::TempDir;
use vfs::{Backend, Timestamp};
use xdr::Writer;

use crate::calls::compound;

/// A file system in memory, so that no disk is measured.
const MEMORY: &str = "/dev/shm";
/// Size in bytes of the file that is read and written.
pub(crate) const FILE_BYTES: usize = 64 << 10;
const EXPORT: ExportId = ExportId(1);
const KEY: HandleKey = HandleKey([7; 16]);

/// The server, its client, and the export.
pub(crate) struct World {
    server: Server,
    connection: Arc<Connection>,
    backend: Arc<LocalFs>,
    _directory: TempDir,
    reply: Writer,
    batches: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in(MEMORY).expect("a directory in memory");
        std::fs::write(directory.path().join("file"), vec![1; FILE_BYTES]).expect("a file");
        let backend = Arc::new(LocalFs::open(&Config::new(directory.path())).expect("a back end"));
        let export = Export {
            id: EXPORT,
            path: "/export".into(),
            backend: Arc::clone(&backend) as Arc<dyn Backend>,
            options: ExportOptions { squash: Squash::None, ..ExportOptions::default() },
            fsid: (1, 1),
            counts: Arc::default(),
        };
        let settings = Settings::new(KEY, 1, [3; 16], b"calls".to_vec());
        let server = Server::new(settings, ExportTable::new(vec![export]).expect("one export"));
        let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, true);
        Self {
            server,
            connection: Arc::new(connection),
            backend,
            _directory: directory,
            reply: Writer::new(),
            batches: 0,
        }
    }

    /// Returns the handle of `name` in the export, or of its root.
    pub(crate) fn handle(&self, name: Option<&str>) -> Vec<u8> {
        let root = self.backend.root();
        let found = name.map(|name| {
            let context = vfs::Context::new(ExportOptions::default().anonymous, Timestamp::default());
            self.backend.lookup(&context, &root, name.as_bytes()).now().expect("the file exists").handle
        });
        KEY.seal(EXPORT, &found.unwrap_or(root)).to_vec()
    }

    /// Begins a batch: all calls until the next batch have one time of day, like calls from one read of a connection.
    pub(crate) fn begin_batch(&mut self) {
        self.batches += 1;
    }

    /// Serves one record; its reply is kept until the next.
    pub(crate) fn serve(&mut self, record: Bytes) {
        self.reply.clear();
        let time = Duration::from_micros(self.batches);
        let wall = Timestamp { seconds: 1 + time.as_secs() as i64, nanoseconds: time.subsec_nanos() };
        let served = pin!(self.server.handle(
            &self.connection,
            Now { monotonic: time, wall },
            record,
            &mut self.reply
        ));
        let Poll::Ready(_) = served.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("a file system in memory does not wait")
        };
    }

    /// Returns whether the last call was accepted and succeeded: NFS statuses of all versions are 0 then.
    pub(crate) fn is_well(&self) -> bool {
        let status = self.reply.inline().get(message::SUCCESS_HEADER_LENGTH..);
        // NULL has no results.
        status.is_some_and(|results| results.iter().take(4).all(|byte| *byte == 0))
    }

    /// Returns the results of one compound.
    pub(crate) fn ask(&mut self, operations: Vec<Op>) -> Vec<OpResult> {
        let asked = format!("{operations:?}");
        self.serve(compound(operations));
        assert!(self.is_well(), "{asked}");
        let reply = Bytes::copy_from_slice(self.reply.inline());
        message::parse_reply::<CompoundResult>(reply).expect("results").results.into_vec()
    }
}
