//! A long line between two network namespaces of this machine.
//!
//! Each namespace has a TUN device; this process carries the packets between them, with delay, jitter, rate, loss,
//! reordering, a bounded queue and outages ([`Settings`]). Both ends are the kernel's real TCP, so its buffers,
//! coalescing and recovery of losses are real. A proxy that ends TCP connections would hide the delay from them.
//!
//! [`scheduler`] decides, without clock or socket; [`carrier`] moves packets; [`namespace`] makes the two ends; `system`
//! has the system calls. [`run`] starts a server in one namespace and a client in the other; [`measure`] measures the
//! link. [`proxied`] is the other kind of link: a relay of TCP connections.

pub mod carrier;
pub mod measure;
pub mod namespace;
pub mod proxied;
pub mod run;
pub mod scheduler;
mod settings;
pub(crate) mod system;

pub use self::run::{Commands, Finished, run};
pub use self::scheduler::Counters;
pub use self::settings::{
    DELAY_MAX, OUTAGES_MAX, Outage, QUEUE_PACKETS_DEFAULT, QUEUE_PACKETS_MAX, Settings,
};
