//! Tests of single operations.

mod remove;
