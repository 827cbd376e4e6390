//! A vfs Backend over a directory of the local machine.
