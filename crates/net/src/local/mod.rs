//! A directory of this machine as one side of a copy ([`client::copy`]).

mod io;
mod tree;

pub use io::LocalFile;
pub use tree::{LocalTree, TreeError};
