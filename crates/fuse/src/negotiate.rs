//! INIT: the negotiation between the kernel and the file system.

use std::io;
use std::num::NonZeroUsize;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, opcode};
use crate::channel::Channel;
use crate::descriptors::DESCRIPTORS_MAX;
use crate::device::Received;
use crate::flags::Capabilities;
use crate::request::split_header;

#[cfg(test)]
mod tests;

/// Maximum number of workers: a hand-over passes all of their descriptors in one message.
pub const WORKERS_MAX: usize = DESCRIPTORS_MAX;
/// Largest `max_write` in bytes that a session accepts.
pub const MAX_WRITE_MAX: u32 = 16 << 20;
/// Minimum `max_write` in bytes, a page.
pub const MAX_WRITE_MIN: u32 = 4096;
/// Space in a buffer before the data of a WRITE; also enough for the names of any request.
const HEADER_SPACE: usize = 4096;

/// Options that a file system requests for a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// Wanted capabilities; the kernel may have fewer.
    pub capabilities: Capabilities,
    /// Maximum number of bytes of one WRITE, and of one READ: from [`MAX_WRITE_MIN`] to [`MAX_WRITE_MAX`]. The kernel's own limit
    /// is 1 MiB, unless `fs.fuse.max_pages_limit` is raised.
    pub max_write: u32,
    /// Maximum number of bytes that the kernel reads ahead. The kernel's own limit is 128 KiB: see
    /// [`mount::set_read_ahead`](crate::mount::set_read_ahead).
    pub max_readahead: u32,
    /// Maximum number of background requests (read-ahead, releases) under way.
    pub max_background: u16,
    /// Granularity of times in nanoseconds, a power of ten up to 10⁹.
    pub time_granularity_ns: u32,
    /// Number of threads that read requests, at most [`WORKERS_MAX`].
    pub workers: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            capabilities: Capabilities::ASYNC_READ
                | Capabilities::POSIX_LOCKS
                | Capabilities::FLOCK_LOCKS
                | Capabilities::ATOMIC_O_TRUNC
                | Capabilities::BIG_WRITES
                | Capabilities::MAX_PAGES
                | Capabilities::DO_READDIRPLUS
                | Capabilities::READDIRPLUS_AUTO
                | Capabilities::PARALLEL_DIROPS
                | Capabilities::AUTO_INVAL_DATA
                | Capabilities::SETXATTR_EXT
                | Capabilities::HAS_EXPIRE_ONLY
                | Capabilities::DIRECT_IO_ALLOW_MMAP
                | Capabilities::HAS_RESEND,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            time_granularity_ns: 1,
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// The result of the negotiation with the kernel. Another process that continues the mount needs it, since the kernel does not negotiate again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Minor version of the protocol.
    pub minor: u32,
    /// Capabilities that are on.
    pub capabilities: Capabilities,
    /// Maximum number of bytes of one WRITE.
    pub max_write: u32,
    /// Maximum number of bytes of read-ahead that were requested.
    pub max_readahead: u32,
}

impl State {
    /// Checks a description that came from elsewhere.
    pub(crate) fn validate(&self) -> io::Result<()> {
        let is_valid = (abi::MINOR_MIN..=abi::MINOR).contains(&self.minor)
            && (MAX_WRITE_MIN..=MAX_WRITE_MAX).contains(&self.max_write);
        if is_valid { Ok(()) } else { Err(invalid("the description of the session is from another version")) }
    }

    /// Returns the bytes of a buffer for any request.
    pub(crate) fn buffer_size(&self) -> usize {
        self.max_write as usize + HEADER_SPACE
    }
}

pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Answers INIT.
pub(crate) fn negotiate(channel: &Channel, config: &Config) -> io::Result<State> {
    let mut buffer = vec![0; abi::MIN_READ_BUFFER];
    loop {
        let length = match channel.device().receive(&mut buffer)? {
            Received::Request(length) => length,
            Received::Interrupted => continue,
            Received::Ended => {
                let text = "the file system was unmounted before it started";
                return Err(io::Error::new(io::ErrorKind::NotConnected, text));
            }
        };
        let (header, arguments) = split_header(Bytes::copy_from_slice(&buffer[..length]))
            .map_err(|error| invalid(error.to_string()))?;
        if header.opcode != opcode::INIT {
            return Err(invalid(format!("the kernel's first request is {} instead of INIT", header.opcode)));
        }
        let (reply, state) = answer_init(&arguments, config)?;
        channel.write(header.unique, Ok(&[reply.as_bytes()]))?;
        if let Some(state) = state {
            return Ok(state);
        }
    }
}

/// Returns the reply to INIT, and the state unless the kernel has to ask again with this crate's version.
fn answer_init(arguments: &[u8], config: &Config) -> io::Result<(abi::InitOut, Option<State>)> {
    let (init, _) = abi::InitCompatIn::read_from_prefix(arguments)
        .map_err(|_| invalid("INIT is shorter than its arguments"))?;
    let mut reply = abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..abi::InitOut::default() };
    if init.major > abi::MAJOR {
        return Ok((reply, None));
    }
    if init.major < abi::MAJOR || init.minor < abi::MINOR_MIN {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "the kernel has FUSE {}.{}; {}.{} (Linux 5.4) or newer is needed",
                init.major,
                init.minor,
                abi::MAJOR,
                abi::MINOR_MIN
            ),
        ));
    }
    let mut offered = u64::from(init.flags);
    if offered & Capabilities::INIT_EXT.bits() != 0 {
        let (high, _) = u32::read_from_prefix(&arguments[abi::INIT_FLAGS2_OFFSET..])
            .map_err(|_| invalid("INIT is shorter than its flags"))?;
        offered |= u64::from(high) << 32;
    }
    let wanted = config.capabilities | Capabilities::INIT_EXT;
    let capabilities = wanted & Capabilities::from_bits_truncate(offered);
    let state = State {
        minor: init.minor.min(abi::MINOR),
        capabilities,
        max_write: config.max_write,
        max_readahead: init.max_readahead.min(config.max_readahead),
    };
    // The low and the high word.
    reply.flags = capabilities.bits() as u32;
    reply.flags2 = (capabilities.bits() >> 32) as u32;
    reply.max_readahead = state.max_readahead;
    reply.max_background = config.max_background;
    // As the kernel does by default: three quarters.
    reply.congestion_threshold = config.max_background - config.max_background / 4;
    reply.max_write = state.max_write;
    reply.time_gran = config.time_granularity_ns;
    let pages = state.max_write.div_ceil(u32::try_from(rustix::param::page_size()).unwrap_or(MAX_WRITE_MIN));
    reply.max_pages = u16::try_from(pages).unwrap_or(u16::MAX);
    Ok((reply, Some(state)))
}
