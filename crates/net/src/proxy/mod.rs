//! A TCP relay that makes a fast path behave like a long link: delay, jitter, a rate, losses and outages.
//!
//! [`Proxy`] accepts connections, connects each to the target, and carries bytes both ways. When each byte leaves is decided by
//! [`Direction`] and [`Lane`], which have no sockets and no clock: time is an argument.
//!
//! The proxy ends TCP on both sides, so that neither end's TCP measures the delay: windows, coalescing and congestion control act
//! as on the fast path. These parts of a long link are models:
//!
//! - **Connection**: the first bytes of a connection wait for one round trip, as behind SYN and SYN-ACK.
//! - **Loss**: a lost segment stalls its connection for a retransmission timeout (200 ms and the round trip), doubled for each
//!   further loss of the same segment. Fast retransmission is not modelled.
//! - **Outage**: nothing leaves either end until the outage is over. TCP's longer back-off is not modelled.
//! - **Rate**: counts payload, shared by all connections of a direction. A full queue stops reading; nothing is dropped.

mod direction;
mod lane;
mod link;
mod relay;
mod run;
mod statistics;
mod timer;

pub use direction::Direction;
pub use lane::{Lane, Step};
pub use link::{Link, Outage};
pub use run::Proxy;
pub use statistics::{DirectionCounts, Statistics};
