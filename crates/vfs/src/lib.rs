//! What a file system offers to the protocol servers, and one that lives in memory.
