//! The `enfys` binary: flags and printing only.
fn main() {}
