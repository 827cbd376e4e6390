//! NFS version 3 against the server of this workspace, and against servers with wrong replies, in one thread and virtual time.

mod against_server;
mod caching;
mod inodes;
mod link;
mod lying;
mod model;
mod mounting;
mod repeated;
mod write_behind;
