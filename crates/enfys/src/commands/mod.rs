//! The commands other than those of the server. Each file named after a command has its options and runs it; the others have shared
//! code.

pub mod bench;
pub mod cat;
pub mod chmod;
pub mod chown;
pub mod cp;
pub mod df;
pub mod du;
pub mod find;
pub mod ln;
pub mod ls;
pub mod mkdir;
pub mod mount;
pub mod mv;
pub mod proxy;
pub mod rm;
pub mod stat;
pub mod sync;
pub mod touch;
pub mod watch;

mod attributes;
mod change;
mod columns;
mod copy;
mod human;
mod list;
mod lock_record;
mod lookup;
mod mode;
mod names;
mod output;
mod owner;
mod pattern;
mod progress;
mod quote;
mod session;
mod space;
mod stat_format;
mod time;
mod tree;
mod umask;
mod walk;
