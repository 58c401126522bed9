//! The `ghostlight` program.

fn main() {}
