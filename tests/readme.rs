//! The README and the lists of examples say what is there.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap()
}

/// The contents of the first block of code in a language.
fn block<'a>(text: &'a str, language: &str) -> &'a str {
    let start = text.split_once(&format!("\n```{language}\n")).unwrap().1;
    &start[..start.find("```").unwrap()]
}

#[test]
fn the_program_is_the_first_example() {
    let (readme, example) = (read("README.md"), read("examples/hello.rs"));
    let program = &example[example.find("\nuse ").unwrap() + 1..];
    assert_eq!(block(&readme, "rust"), program);
    let lines = |text: &str| text.lines().filter(|line| !line.is_empty()).count();
    assert!(lines(program) <= 30, "{} lines of code", lines(program));
    assert!(program.lines().count() <= 45);
}

#[test]
fn the_first_screen_is_one_topic_and_then_the_two_commands() {
    let readme = read("README.md");
    let commands =
        "\n```sh\ncargo run --release -- map --files . -- sha256sum {}\ncargo test\n```\n";
    let parts =
        ["\n```console\n$ target/debug/hello", "\n```sh\ncargo new ", "\n```rust\n", commands];
    let places = parts.map(|part| readme.find(part).expect(part));
    assert!(places.is_sorted(), "{places:?}");
    assert!(places[3] < readme.find("\n## ").unwrap());
    let setup = block(&readme, "sh").lines().count();
    assert!(setup <= 3, "{setup} commands from `cargo new` to the first run");
}

#[test]
fn six_lines_say_what_there_is_each_with_one_example() {
    let readme = read("README.md");
    let section = readme.split_once("\n## What you get\n\n").unwrap().1;
    let lines: Vec<&str> = section.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for line in lines {
        let link = line.strip_suffix(".rs)").and_then(|line| line.rsplit_once("](")).unwrap().1;
        assert!(link.starts_with("examples/") || link.starts_with("sim/examples/"), "{line}");
        assert_eq!(line.matches("](").count(), 1, "{line}");
    }
}

#[test]
fn links_lead_somewhere() {
    for file in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md"] {
        let text = read(file);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("https://") {
                continue;
            }
            let target = Path::new(ROOT).join(file).with_file_name(link);
            assert!(target.exists(), "{file} links to {link}");
        }
    }
}

#[test]
fn the_code_map_names_files_that_exist() {
    let text = read("ARCHITECTURE.md");
    let map = text.split_once("## Code map").unwrap().1.split_once("## Invariants").unwrap().0;
    let mut folder = String::new();
    for line in map.lines() {
        if let Some(title) = line.strip_prefix("### `") {
            folder = title.split('/').next().unwrap().to_owned();
        }
        for name in line.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")) {
            let places = [format!("{folder}/src/{name}"), name.to_owned()];
            let found = places.iter().any(|place| Path::new(ROOT).join(place).exists());
            assert!(found, "{folder}: {name}");
        }
    }
}

#[test]
fn every_example_is_listed() {
    let (list, readme) = (read("examples/README.md"), read("README.md"));
    for entry in std::fs::read_dir(Path::new(ROOT).join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".rs") {
            assert!(list.contains(&format!("({name})")), "{name}");
            assert!(readme.contains(&format!("(examples/{name})")), "{name}");
        }
    }
}
