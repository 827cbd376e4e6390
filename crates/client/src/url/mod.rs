//! `nfs://` URLs and the mount options of nfs(5): text to values and back. Nothing is looked up.
//!
//! `nfs://HOST[:PORT]/PATH[?OPTION[=VALUE]&…]`. HOST is a name, an IPv4 address, or an IPv6 address in brackets, with a scope after
//! `%` or `%25` (RFC 6874). Names and values may be percent-encoded; the decoded path is raw bytes.
//!
//! **The path** begins at the root of the server: for version 3 it is the exported path and the rest, for version 4 the path
//! in the pseudo file system. As in libnfs, `nfs://host/a` and `nfs://host//a` name the same object. RFC 2224 has the first
//! relative to the public file handle, which servers hardly use any more.
//!
//! **The port** may also be `port=` or libnfs's `nfsport=`. **Options** have the names of nfs(5), in the URL or as a
//! comma-separated list. The last one of a kind applies.

mod error;
mod host;
mod options;
mod percent;
mod values;

use std::fmt;
use std::str::FromStr;

pub use error::UrlError;
pub use host::Host;
pub use options::{Options, SLOTS_MAX, V3_CALLS_MAX};
pub use values::{LocalLock, LookupCache, ReaddirPlus, Recovery, Security, Transport, Version};

/// Maximum number of bytes of a URL.
pub const URL_MAX: usize = 64 << 10;

const SCHEME: &str = "nfs://";

/// A server, a path on it, and options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    host: Host,
    path: Vec<u8>,
    /// The options, including the port.
    pub options: Options,
}

impl Url {
    /// Creates a URL. One slash is put before the path if there is none; of several at the beginning one stays.
    ///
    /// # Errors
    /// The path has a zero byte.
    pub fn new(host: Host, path: &[u8], options: Options) -> Result<Self, UrlError> {
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let path = [b"/", &path[start..]].concat();
        if path.contains(&0) {
            return Err(UrlError::new("a path has no zero byte (%00)"));
        }
        Ok(Self { host, path, options })
    }

    /// Parses a URL, or `HOST:/PATH` as mount.nfs(8) takes it, whose path is raw bytes without percent-encoding.
    ///
    /// # Errors
    /// One sentence about the error.
    pub fn from_mount_source(source: &[u8]) -> Result<Self, UrlError> {
        if source.starts_with(SCHEME.as_bytes()) {
            let text = str::from_utf8(source);
            return text.map_err(|_| UrlError::new("a URL has ASCII characters only"))?.parse();
        }
        let wrong = || {
            let shown = String::from_utf8_lossy(source);
            UrlError::new(format!("expected nfs://HOST/PATH or HOST:/PATH, found `{shown}`"))
        };
        let colon = source.windows(2).position(|pair| pair == b":/").ok_or_else(wrong)?;
        let host = str::from_utf8(&source[..colon]).map_err(|_| wrong())?.parse()?;
        Self::new(host, &source[colon + 1..], Options::default())
    }

    /// Returns the server.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the decoded path, which begins with exactly one slash.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns a URL of the same server and options with another path, as [`Url::new`] takes it.
    ///
    /// # Errors
    /// The path has a zero byte.
    pub fn with_path(&self, path: &[u8]) -> Result<Self, UrlError> {
        Self::new(self.host.clone(), path, self.options.clone())
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_MAX {
            return Err(UrlError::new(format!(
                "a URL has at most {URL_MAX} bytes, this one has {}",
                text.len()
            )));
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(UrlError::new(format!("expected nfs://HOST/PATH, found `{text}`")));
        };
        if rest.contains('#') {
            return Err(UrlError::new(
                "`#` begins a fragment, which NFS does not have: write %23 for the character",
            ));
        }
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let (authority, path) = place.find('/').map_or((place, "/"), |slash| place.split_at(slash));
        let (host, port) = host::split_port(authority)?;
        let mut options = Options::default();
        for option in query.into_iter().flat_map(|query| query.split('&')).filter(|option| !option.is_empty())
        {
            options.apply_encoded(option)?;
        }
        match (port, options.port) {
            (Some(port), Some(other)) if port != other => {
                return Err(UrlError::new(format!("two ports: :{port} and port={other}")));
            }
            (Some(port), _) => options.port = Some(port),
            (None, _) => {}
        }
        Self::new(host, &percent::decode_path(path)?, options)
    }
}

impl fmt::Display for Url {
    /// Prints the canonical form, which parses to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.host)?;
        if let Some(port) = self.options.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&percent::encode_path(&self.path))?;
        let options = Options { port: None, ..self.options.clone() };
        for (index, option) in options.words().iter().enumerate() {
            write!(f, "{}{option}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
