//! The compile-time texts of the API.
//!
//! They are the compiler's, so that they are compared on the toolchain alone that this repository
//! states. To accept new ones: `TRYBUILD=overwrite cargo test --test compile_fail`.

use std::process::Command;

#[test]
fn mistakes_are_explained() {
    let output = Command::new("rustc").arg("--version").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    let stated = env!("CARGO_PKG_RUST_VERSION");
    if !version.starts_with(&format!("rustc {stated}.")) {
        eprintln!("left out: the texts are those of Rust {stated}, and this is {version}");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
