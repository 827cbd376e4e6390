//! NFS version 4 against the server of this workspace, in one thread and virtual time.

mod attributes;
mod locks;
mod log;
mod soft;
mod space;
mod v40;
mod world;
