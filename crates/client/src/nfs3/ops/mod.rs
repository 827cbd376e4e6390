//! Operations of version 3, one file for each group.

mod acl;
mod directory;
mod exclusive;
mod file;
mod filesystem;
mod listing;
mod lock;
mod name;
mod object;
mod open;
