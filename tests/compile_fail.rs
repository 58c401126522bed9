//! What the compiler says of common mistakes.
//!
//! A program in `compile_fail/` must not compile, and the compiler must say every text of its `//~`
//! lines; one without any must compile. They are compiled against the library that the tests use:
//! a harness that builds its own copy of all dependencies would take minutes.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The library, as cargo has built it for the examples.
fn library() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--examples", "--message-format=json"]).current_dir(ROOT);
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let artifacts = String::from_utf8(output.stdout).unwrap();
    artifacts
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|artifact| {
            artifact["target"]["name"] == "ghostlight" && artifact["target"]["kind"][0] == "lib"
        })
        .flat_map(|artifact| artifact["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.extension().is_some_and(|extension| extension == "rlib"))
        .expect("cargo names the library that it has built")
}

/// What the compiler says of a program; `None` if it compiles.
fn compile(program: &Path, library: &Path, out: &Path) -> Option<String> {
    // A library is beside its dependencies, or in the folder above them.
    let folder = library.parent().unwrap();
    let output = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--out-dir"])
        .arg(out)
        .arg(format!("-Ldependency={}", folder.display()))
        .arg(format!("-Ldependency={}", folder.join("deps").display()))
        .arg(format!("--extern=ghostlight={}", library.display()))
        .arg(program)
        .output()
        .unwrap();
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

#[test]
fn mistakes_are_explained() {
    let (library, out) = (library(), tempfile::tempdir().unwrap());
    let mut explained = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("tests/compile_fail")).unwrap() {
        let program = entry.unwrap().path();
        let source = std::fs::read_to_string(&program).unwrap();
        let texts: Vec<_> = source.lines().filter_map(|line| line.strip_prefix("//~ ")).collect();
        let said = compile(&program, &library, out.path());
        assert_eq!(said.is_none(), texts.is_empty(), "{}: {said:?}", program.display());
        let said = said.unwrap_or_default();
        for text in &texts {
            assert!(said.contains(text), "{} is not told {text:?}: {said}", program.display());
        }
        explained += usize::from(!texts.is_empty());
    }
    assert!(explained >= 7, "only {explained} programs were found");
}
