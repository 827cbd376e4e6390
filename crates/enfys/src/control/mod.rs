//! Control of a running server over a local socket: `enfys status`, `evict`, `recall`, `grace end`.
//!
//! A request is one line of JSON, the response another one; then the connection ends. The socket has mode 0600, and the peer must
//! be the server's user or root. Lengths, times and the number of connections are bounded.

pub mod client;
mod print;
mod protocol;
mod server;

pub use crate::control_socket::IN_STATE_DIR;
pub use server::ControlServer;
