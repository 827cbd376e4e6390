//! The behaviour of NFS, MOUNT and portmap: requests in, replies out; no sockets, clocks, files or randomness.
