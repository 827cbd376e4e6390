//! The process of a mount.

mod by_enfys;
mod by_fuse3;
mod by_fuser;
mod by_polyfuse;
mod raw;

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;
use std::{process, thread};

use crate::Outcome;

/// The time after which a process ends even if the comparison does not end it.
const LIFETIME: Duration = Duration::from_secs(180);

/// A library, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Enfys,
    Fuser,
    /// Mounted by `fusermount3`: it waits for requests with epoll.
    Fuse3,
    /// Mounted by mount(2): each read of the device is a task of tokio's blocking threads.
    Fuse3Blocking,
    Polyfuse,
    /// No library: threads that read cloned descriptors and answer GETATTR only.
    RawRead,
    /// As `RawRead`, but the descriptors do not block, and the threads wait with poll(2).
    RawPoll,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Enfys,
        Self::Fuser,
        Self::Fuse3,
        Self::Fuse3Blocking,
        Self::Polyfuse,
        Self::RawRead,
        Self::RawPoll,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Enfys => "enfys",
            Self::Fuser => "fuser",
            Self::Fuse3 => "fuse3",
            Self::Fuse3Blocking => "fuse3-blocking",
            Self::Polyfuse => "polyfuse",
            Self::RawRead => "raw-read",
            Self::RawPoll => "raw-poll",
        }
    }

    /// Whether it serves READ and WRITE.
    pub fn has_content(self) -> bool {
        !matches!(self, Self::RawRead | Self::RawPoll)
    }

    /// Whether the file system sees INTERRUPT.
    pub fn passes_interrupts(self) -> bool {
        matches!(self, Self::Fuse3 | Self::Polyfuse)
    }
}

/// What the file system does at an INTERRUPT, if the library passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupt {
    /// What happens if the file system does nothing about it.
    Default,
    /// Answers the interrupted request with EINTR.
    Eintr,
}

/// Mounts the file system, and serves it until it is unmounted.
pub fn serve(kind: Kind, on_interrupt: OnInterrupt, directory: &Path) -> Outcome<()> {
    thread::spawn(|| {
        thread::sleep(LIFETIME);
        process::exit(3);
    });
    let eintr = on_interrupt == OnInterrupt::Eintr;
    // As many as `enfys mount` uses on a machine with two to eight cores.
    let workers = thread::available_parallelism()?
        .clamp(NonZeroUsize::MIN.saturating_add(1), const { NonZeroUsize::new(8).unwrap() });
    match kind {
        Kind::Enfys => by_enfys::serve(directory, workers),
        Kind::Fuser => by_fuser::serve(directory, workers),
        Kind::Fuse3 => by_fuse3::serve(directory, workers, eintr, true),
        Kind::Fuse3Blocking => by_fuse3::serve(directory, workers, eintr, false),
        Kind::Polyfuse => by_polyfuse::serve(directory, workers, eintr),
        Kind::RawRead => raw::serve(directory, workers, false),
        Kind::RawPoll => raw::serve(directory, workers, true),
    }
}
