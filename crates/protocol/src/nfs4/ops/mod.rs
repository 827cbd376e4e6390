//! Arguments and results of operations: one module per operation or family of operations.

pub mod access;
pub mod backchannel;
pub mod close;
pub mod commit;
pub mod copy;
pub mod create;
pub mod delegation;
pub mod device;
pub mod exchange_id;
pub mod fh;
pub mod getattr;
pub mod layout;
pub mod layout_report;
pub mod link;
pub mod lock;
pub mod lookup;
pub mod open;
pub mod open_state;
pub mod read;
pub mod read_plus;
pub mod readdir;
pub mod readlink;
pub mod remove;
pub mod rename;
pub mod secinfo;
pub mod session;
pub mod setattr;
pub mod setclientid;
pub mod space;
pub mod ssv;
pub mod stateid;
mod table;
pub mod verify;
pub mod write;
pub mod xattr;

pub use table::{
    DELEGATED_OPEN_BYTES_MAX, Needs, Operation, Position, TABLE, WrongSec, executed_once, operation,
};
