use core::net::IpAddr;

/// The clients that the calling thread serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thread {
    /// Several clients: the thread must not block.
    #[default]
    Shared,
    /// Only the caller, as far as is known: the thread may block briefly, if handing the work to another thread
    /// and back would take the caller longer.
    Exclusive,
}

/// The origin of a request, for backends that share their threads among clients. It grants no permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Peer {
    /// The client's host: all addresses of one IPv6 /64 network count as one; `None` for the server's own work.
    pub address: Option<IpAddr>,
    /// The number of its connection.
    pub connection: u64,
}
