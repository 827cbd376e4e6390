//! Connections of a command to the servers that its URLs name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use client::Client;
use client::config::{Caches, Caller, Config, Version};
use client::engine::Engine;
use client::errno::Errno;
use client::error::{Error, OpError};
use client::fs::FileSystem;
use client::hand_over::Identity;
use client::results::Object;
use client::url::{self, Options, Url};
use net::answer_host_calls;
use net::connect::{caller, config, versions};
pub use net::connect::{machine_name, random_u64};
use net::transport::{Route, SystemClock, run_transport};
use protocol::nfs4::types::Status;
use rustix::process::geteuid;
use store::error_text;
use tokio::task::JoinHandle;

use super::lock_record::LockRecord;
use super::quote::shell_quoted;

/// The failure of a command: its operation, the URL or path, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    message: String,
    errno: Option<Errno>,
}

impl Failure {
    /// Creates a failure without an error number.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), errno: None }
    }

    /// Returns whether the object was missing.
    pub fn is_missing(&self) -> bool {
        self.errno == Some(Errno::ENOENT)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The servers that a command has connected to.
#[derive(Default)]
pub struct Session {
    /// By host and options.
    servers: RefCell<HashMap<String, Server>>,
}

struct Server {
    client: Client,
    caller: Caller,
    tasks: Vec<JoinHandle<()>>,
    /// Answers calls of the server.
    listener: JoinHandle<()>,
    lock_record: Option<LockRecord>,
}

/// An object of a server, which may be missing: a directory that exists, and a path below it.
#[derive(Clone)]
pub struct Location {
    pub fs: FileSystem,
    /// Path below the root of `fs`, without a slash at the beginning.
    pub path: Vec<u8>,
    /// The URL or path that the user gave.
    pub url: Url,
}

impl Session {
    /// Connects to the URL's server, unless that was done before, and finds the nearest directory above the URL's path.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the client.
    pub async fn locate(&self, url: &Url) -> Result<Location, Failure> {
        let (client, caller) = self.connect(url).await?;
        let names: Vec<&[u8]> =
            url.path().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        // The directory above the last name; if a name is missing or a symbolic link, one further above. The path itself comes
        // last: in version 3 nothing may be above an export.
        let above = (0..names.len()).rev().chain([names.len()]);
        let mut failure = None;
        for count in above {
            let path = names[..count].join(&b'/');
            match FileSystem::mount(client.clone(), caller.clone(), &path).await {
                Ok((fs, None)) => {
                    return Ok(Location { fs, path: names[count..].join(&b'/'), url: url.clone() });
                }
                Ok((_, Some(_))) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.map_or_else(
            || Failure::new(format!("cannot access {}: Not a directory", shown(url))),
            |error| failed("access", url, &error.cause),
        ))
    }

    /// Connects to the URL's server, unless that was done before, without caches: a command reads and writes each byte once, and
    /// looks up names that it has just changed itself. Caches would save it no request, and would hold its data once more:
    ///
    /// - A big file takes a READ or a WRITE for each MiB, 16 of a file in flight (8 for `cat`), and one COMMIT.
    /// - Small files, names and directories take compounds, or calls that are in flight together.
    /// - Handles of directories are remembered by path (`client::tree`), so that a deep path takes one chain of LOOKUPs.
    ///
    /// `enfys/tests/serve/round_trips.rs` has the counts.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the client.
    pub async fn connect(&self, url: &Url) -> Result<(Client, Caller), Failure> {
        self.connect_with(url, Caches::none()).await
    }

    /// As [`Self::connect`], with caches.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn connect_with(&self, url: &Url, caches: Caches) -> Result<(Client, Caller), Failure> {
        self.connect_as(url, caches, None).await
    }

    /// As [`Self::connect_with`]; with an identity, as the client of another process that has it.
    ///
    /// # Errors
    /// As [`Self::connect_with`], or the server does not know that client any more.
    pub async fn connect_as(
        &self,
        url: &Url,
        caches: Caches,
        identity: Option<&Identity>,
    ) -> Result<(Client, Caller), Failure> {
        let key = url.with_path(b"/").map_err(|error| Failure::new(error.to_string()))?.to_string();
        if let Some(server) = self.servers.borrow().get(&key) {
            return Ok((server.client.clone(), server.caller.clone()));
        }
        let caller = caller(&url.options);
        let route = route(url)?;
        let mut outcome = Err(OpError::Unsupported("this version of NFS"));
        let wanted = url.options.version;
        let versions = identity.map_or_else(|| versions(url), |of| vec![version_of(of, wanted)]);
        for version in versions {
            let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), random_u64() as u32));
            let transport = tokio::task::spawn_local(run_transport(Arc::clone(&engine), route.clone()));
            let mut config = Config { version, caches: caches.clone(), ..config(url) };
            if let Some(identity) = identity {
                config.owner = Bytes::from(identity.owner.clone());
                config.host_name = Bytes::from(identity.host_name.clone());
                config.verifier = identity.verifier;
                config.continues = identity.client_id;
            }
            match Client::connect(Arc::clone(&engine), config).await {
                Ok(client) => {
                    outcome = Ok((client, transport));
                    break;
                }
                Err(error) => {
                    engine.shut_down();
                    let is_other_version = matches!(error, OpError::Unsupported(_));
                    outcome = Err(error);
                    if !is_other_version {
                        break;
                    }
                }
            }
        }
        let (client, transport) = outcome.map_err(|error| match error {
            OpError::Status(Status::STALE_CLIENTID) if identity.is_some() => {
                Failure::new("the server has restarted, and does not know the client yet: try again")
            }
            error => failed("connect to", url, &error),
        })?;
        let keeper = tokio::task::spawn_local({
            let client = client.clone();
            async move { client.run().await }
        });
        let listener = tokio::task::spawn_local(answer_host_calls(client.clone(), route.addresses));
        let tasks = vec![keeper, transport];
        let server =
            Server { client: client.clone(), caller: caller.clone(), tasks, listener, lock_record: None };
        self.servers.borrow_mut().insert(key, server);
        Ok((client, caller))
    }

    /// Frees locks that killed clients of this machine have at the server, and records those of this one.
    pub fn record_locks(&self, client: &Client) {
        let mut servers = self.servers.borrow_mut();
        if let Some(server) = servers.values_mut().find(|server| server.client.is_same(client)) {
            server.lock_record = LockRecord::start(client);
        }
    }

    /// Ends without a word to the servers about the state that clients have there, which is another process's.
    pub async fn detach(self) {
        for server in self.servers.into_inner().into_values() {
            if let Some(record) = server.lock_record {
                record.hand_over().await;
            }
            server.client.detach().await;
            server.listener.abort();
            let _ = server.listener.await;
            for task in server.tasks {
                let _ = task.await;
            }
        }
    }

    /// Leaves all servers.
    pub async fn close(self) {
        for server in self.servers.into_inner().into_values() {
            // A server that does not answer forgets the client after its lease.
            let is_left = server.client.close().await.is_ok();
            if let Some(record) = server.lock_record.filter(|_| is_left) {
                record.end().await;
            }
            server.listener.abort();
            let _ = server.listener.await;
            for task in server.tasks {
                let _ = task.await;
            }
        }
    }
}

impl Location {
    /// Returns the object at the path.
    ///
    /// # Errors
    /// It is missing, or the caller may not look it up.
    pub async fn object(&self, operation: &str, follow: bool) -> Result<Object, Failure> {
        self.fs.resolve(&self.path, follow).await.map_err(|cause| self.refused(operation, &cause))
    }

    /// Returns the directory that holds the path's last name, and that name.
    ///
    /// # Errors
    /// There is no such directory, or the path is the root of the server.
    pub async fn parent(&self, operation: &str) -> Result<(Object, Vec<u8>), Failure> {
        let path = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        if path.is_empty() {
            return Err(Failure::new(format!(
                "cannot {operation} {}: it is the root of an export",
                shown(&self.url)
            )));
        }
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let parent = self.fs.resolve(parent, true).await.map_err(|cause| self.refused(operation, &cause))?;
        Ok((parent, name.to_vec()))
    }

    /// Returns the location of an entry of this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        let separator: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        let path = [&self.path, separator, name].concat();
        Self { fs: self.fs.clone(), path, url: below(&self.url, name) }
    }

    /// Returns the location of the directory that holds the path's last name.
    pub fn above(&self) -> Self {
        let parent = |path: &[u8]| {
            let path = path.strip_suffix(b"/").unwrap_or(path);
            path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)].to_vec()
        };
        let url = self.url.with_path(&parent(self.url.path())).unwrap_or_else(|_| self.url.clone());
        Self { fs: self.fs.clone(), path: parent(&self.path), url }
    }

    /// Returns whether both are on one server, by the same name.
    pub fn is_same_server(&self, other: &Self) -> bool {
        let server = |url: &Url| url.with_path(b"/").map(|url| url.to_string());
        server(&self.url) == server(&other.url)
    }

    /// Returns the last name of the URL's path; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.url.path().split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default()
    }
    /// Returns the failure of an operation of the library on this URL.
    pub fn failed(&self, operation: &str, error: &Error) -> Failure {
        failed(operation, &self.url, &error.cause)
    }

    /// Returns the failure of an operation on this URL.
    pub fn refused(&self, operation: &str, cause: &OpError) -> Failure {
        failed(operation, &self.url, cause)
    }
}

/// Returns the failure of an operation on a URL.
pub fn failed(operation: &str, url: &Url, cause: &OpError) -> Failure {
    let errno = cause.errno();
    let why = match cause {
        OpError::Status(_) => errno.text().to_owned(),
        other => other.to_string(),
    };
    let hint = match errno {
        Errno::EACCES | Errno::EPERM if matches!(cause, OpError::Status(_)) => {
            let uid = url.options.uid.unwrap_or_else(|| geteuid().as_raw());
            format!(" (the server sees user {uid}, or nobody if it squashes)")
        }
        Errno::EROFS => " (the export is read-only)".to_owned(),
        _ => String::new(),
    };
    Failure { message: format!("cannot {operation} {}: {why}{hint}", shown(url)), errno: Some(errno) }
}

/// Returns a URL without options, quoted for a shell where it needs it.
pub fn shown(url: &Url) -> String {
    shell_quoted(text(url).as_bytes())
}

/// Returns a URL without options.
pub fn text(url: &Url) -> String {
    let options = Options { port: url.options.port, ..Options::default() };
    let bare = Url::new(url.host().clone(), url.path(), options);
    bare.map_or_else(|_| url.to_string(), |bare| bare.to_string())
}

/// Returns the URL of a path below another.
pub fn below(url: &Url, path: &[u8]) -> Url {
    let parent = url.path().strip_suffix(b"/").unwrap_or(url.path());
    let path = if path.is_empty() { url.path().to_vec() } else { [parent, b"/", path].concat() };
    // Names of servers have no zero bytes.
    url.with_path(&path).unwrap_or_else(|_| url.clone())
}

/// Parses a URL of the command line.
///
/// # Errors
/// One sentence.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error: url::UrlError| error.to_string())?;
    // Servers may have objects of these names or refuse them; no server resolves them as in a path.
    if url.path().split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b"..")) {
        return Err("a URL's path cannot contain `.` or `..`".to_owned());
    }
    Ok(url)
}

/// Returns the version of a client that this process continues. Version 2 is used only if it was asked for.
fn version_of(identity: &Identity, wanted: Option<url::Version>) -> Option<Version> {
    match (identity.minor, wanted) {
        (None, Some(url::Version::V2)) => Some(Version::V2),
        (minor, _) => Version::ALL.into_iter().find(|version| version.minor() == minor),
    }
}

/// Returns the way to a URL's server. May query name services.
fn route(url: &Url) -> Result<Route, Failure> {
    net::connect::route(url).map_err(|error| {
        Failure::new(format!("cannot connect to {}: no address: {}", url.host(), error_text(&error)))
    })
}
