//! Reports about results: a table for the terminal, a comparison, and a self-contained HTML page.
//!
//! Rounds of one case become one [`Group`]; every output is a small function of groups. [`figure`] has the data of a plot,
//! `svg` draws it, [`html`] puts it on a page.

mod compare;
mod details;
pub mod figure;
mod groups;
pub mod html;
mod numbers;
#[cfg(feature = "png")]
pub mod png;
mod svg;
mod table;

pub use self::compare::{Comparison, compare};
pub use self::groups::{Group, group};
pub(crate) use self::numbers::short;
pub use self::svg::draw;
pub(crate) use self::table::new_table;
pub use self::table::write_table;
