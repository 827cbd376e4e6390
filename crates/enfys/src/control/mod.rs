//! Seeing and acting on a server that runs: `enfys status`, `evict`, `recall`, `grace end`, over a socket of this machine.
//!
//! One line of JSON asks, one answers, and the connection ends. The socket is its owner's alone (mode 0600), and who asks
//! must be the server's user or root. Length, time and number of connections are bounded.

pub mod ask;
mod print;
mod protocol;
mod server;
mod socket;

pub use server::ControlServer;
pub use socket::IN_STATE_DIR;
