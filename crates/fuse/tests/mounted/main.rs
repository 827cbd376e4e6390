//! Real mounts, used by real programs. Needs root and `/dev/fuse`.

mod hand_over;
mod interrupts;
mod memory;
mod programs;
mod support;
