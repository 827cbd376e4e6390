//! A server in memory, for tests and examples of programs that use the client's library.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash, Versions};
use vfs::{MemFs, MemOptions};

use crate::{Limits, Listeners, Running, serve};

/// A server of an empty file system in memory, as `enfys serve --memory` starts one, at a free port of 127.0.0.1. It speaks all
/// versions, and ends with this value.
pub struct MemoryServer {
    port: u16,
    running: Option<Running>,
}

impl MemoryServer {
    /// Starts the server with one core. Root is not squashed.
    ///
    /// # Errors
    /// The system has no port or no thread for it.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let options = ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() };
        let backend = Arc::new(MemFs::new(&MemOptions::default()));
        let (id, path) = (ExportId(1), "/export".into());
        let export = Export { id, path, backend, options, fsid: (1, 0), counts: Arc::default() };
        let exports =
            ExportTable::new(vec![export]).map_err(|error| io::Error::other(format!("{error:?}")))?;
        // Nobody else can reach the files of this process: the key of handles need not be secret.
        let mut settings = Settings::new(HandleKey([1; 16]), 1, [1; 16], b"memory".to_vec());
        settings.versions = Versions::all();
        let listeners = Listeners { tcp: vec![listener], udp: Vec::new() };
        let limits = Limits { cores: 1, ..Limits::default() };
        let running = serve(Arc::new(Server::new(settings, exports)), listeners, limits, None, None)?;
        Ok(Self { port, running: Some(running) })
    }

    /// Returns the URL of its export, with MOUNT and NLM at the same port.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1:{port}/export?mountport={port}&nlmport={port}")
    }
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shut_down();
        }
    }
}
