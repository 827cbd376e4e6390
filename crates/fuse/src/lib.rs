//! The Linux FUSE protocol: a mount whose requests can stay unanswered for minutes without occupying a thread, and whose callers can be
//! killed at any time.
//!
//! - [`mount`] creates a mount and returns its descriptor of `/dev/fuse`, as root or by `fusermount3`.
//! - [`Session`] negotiates with the kernel and serves requests on worker threads, each with a cloned descriptor.
//! - [`Filesystem`] has one method for each operation, with a typed request and a [`Reply`] that any thread may send, at any time.
//! - The session answers INTERRUPT (module [`interrupt`](self#interrupts)) and tells a file system which replies are no longer needed.
//! - [`Notifier`] invalidates the kernel's caches.
//! - [`HandOver`] carries a running mount to another process.
//!
//! # Interrupts
//!
//! The kernel sends one INTERRUPT for a request, at the first signal of the thread that waits for it, and does not report which signal. A
//! later SIGKILL sends nothing more, yet the thread cannot die before the reply. So after an INTERRUPT the session looks at the thread's
//! pending signals in `/proc` until the request is answered, and answers EINTR itself when one of them is fatal. Other signals change
//! nothing, as on a local file system; only a blocked lock wait ends with EINTR at any signal, as POSIX demands.

mod abi;
mod channel;
mod descriptors;
mod device;
mod directory;
mod filesystem;
mod flags;
mod hand_over;
mod interrupt;
pub mod mount;
mod negotiate;
mod notify;
mod reply;
mod request;
mod session;
mod signals;
mod sys;
mod types;

pub use directory::{Listing, ListingPlus};
pub use filesystem::Filesystem;
pub use flags::{Capabilities, OpenFlags, WriteFlags};
pub use hand_over::HandOver;
pub use negotiate::{Config, MAX_WRITE_MAX, MAX_WRITE_MIN, State, WORKERS_MAX};
pub use notify::Notifier;
pub use reply::{
    Answer, Copied, Created, Data, GrantedAttributes, NotDelivered, Opened, Reply, Statistics,
    StatxAttributes, XattrReply,
};
pub use request::*;
pub use rustix::io::Errno;
pub use session::{Serving, Session, Stopped};
pub use types::*;
