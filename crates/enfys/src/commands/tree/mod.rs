//! The local side of copies.

mod local;
mod path;

#[allow(unused_imports, reason = "the commands that use them come next")]
pub use local::{LocalTree, TreeError};
#[allow(unused_imports, reason = "the commands that use them come next")]
pub use path::{NameError, TreePath};
