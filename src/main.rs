//! The bytepath binary.
fn main() {}
