//! Scenarios that belong to no single module.

mod malformed;
mod reload;
