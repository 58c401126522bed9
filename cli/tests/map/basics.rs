use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Place, only_run};

#[test]
fn every_input_is_run_once_and_reported_from_the_store_later() {
    let place = Place::new();
    let args = ["map", "a", "b", "b", "--", "sh", "-c", "echo {} >> log; echo out {}"];
    for before in ["", "completed before"] {
        let ended = place.run(args);
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert_eq!(ended.sorted(), ["out a", "out b", "out b"]);
        assert!(ended.stderr.contains(before), "{}", ended.stderr);
    }
    assert_eq!(place.lines("log"), ["a", "b", "b"]);
    assert_eq!(place.launch_files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn output_is_passed_on_byte_for_byte() {
    let place = Place::new();
    let script = r"printf 'no newline\n\377\376\000end'";
    let ended = place.run(["map", "x", "--", "sh", "-c", script]);
    assert_eq!(ended.stdout, b"no newline\n\xff\xfe\x00end");
    let json = place.run(["map", "--json", "x", "--", "sh", "-c", script]);
    let text = String::from_utf8(json.stdout).unwrap();
    assert!(text.contains(r#""stream":"stdout","text":"no newline\n""#), "{text}");
    assert!(text.contains(r#""base64":"//4AZW5k""#), "{text}");
}

#[test]
fn inputs_need_not_be_text() {
    let place = Place::new();
    let input = OsStr::from_bytes(b"f\xff");
    std::fs::write(place.path("").join(input), b"12345").unwrap();
    let args = [OsStr::new("map"), input, OsStr::new("--"), OsStr::new("cat"), OsStr::new("{}")];
    let ended = place.run(args);
    assert_eq!((ended.code(), ended.stdout.as_slice()), (Some(0), b"12345".as_slice()));
    let json = place.run([&[OsStr::new("map"), OsStr::new("--json")], &args[1..]].concat());
    let json: Vec<Value> = String::from_utf8(json.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for kind in ["started", "ended"] {
        let line = json.iter().find(|line| line["type"] == kind).unwrap();
        assert_eq!((&line["input"], &line["inputBase64"]), (&"f\u{fffd}".into(), &"Zv8=".into()));
    }
    let id = only_run(&place);
    for args in [&["runs", "--json"][..], &["show", "--json", &id]] {
        let row: Value = serde_json::from_slice(&place.run(args).stdout).unwrap();
        assert_eq!(
            (&row["inputPreview"], &row["inputBase64"]),
            (&"f\u{fffd}".into(), &"Zv8=".into())
        );
        assert_eq!(row["display"], Value::Null, "{row}");
    }
    let long = "x".repeat(201);
    let map = ["map", "--json", &long, "--", "echo", "{}"];
    let json = String::from_utf8(place.run(map).stdout).unwrap();
    assert_eq!(json.matches("inputBase64").count(), 2, "{json}");
}

#[test]
fn failures_are_named_and_the_others_go_on() {
    let place = Place::new();
    let ended =
        place.run(["map", "0", "3", "9", "--", "sh", "-c", "[ {} = 9 ] && kill -9 $$; exit {}"]);
    assert_eq!(ended.code(), Some(1));
    for expected in ["3: exited with code 3", "9: killed by signal 9", "1  completed", "2  failed"]
    {
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
    }
    let ended = place.run(["map", "a", "b", "--", "no-such-command", "{}"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("  a: command not found: no-such-command\n"), "{}", ended.stderr);
}

#[test]
fn failed_inputs_are_tried_again_when_asked() {
    let place = Place::new();
    let script = "echo {} >> log; [ -e good ]";
    assert_eq!(place.run(["map", "a", "--", "sh", "-c", script]).code(), Some(1));
    assert_eq!(place.run(["map", "a", "--", "sh", "-c", script]).code(), Some(1));
    assert_eq!(place.lines("log"), ["a"], "a failure is an end like any other");
    std::fs::write(place.path("good"), "").unwrap();
    let ended = place.run(["map", "--retry-failed", "a", "--", "sh", "-c", script]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.run(["map", "a", "--", "sh", "-c", script]).code(), Some(0));
    assert_eq!(place.lines("log"), ["a", "a"]);
}

#[test]
fn commands_know_their_run() {
    let place = Place::new();
    let ended = place.run([
        "map",
        "x",
        "--",
        "sh",
        "-c",
        "echo $GHOSTLIGHT_RUN_ID $GHOSTLIGHT_ATTEMPT; pwd",
    ]);
    let out = String::from_utf8(ended.stdout).unwrap();
    let mut lines = out.lines();
    let (id, attempt) = lines.next().unwrap().split_once(' ').unwrap();
    assert!(id.ends_with("~0") && id.len() == 34, "{id}");
    assert_eq!(attempt, "1");
    let cwd = std::fs::canonicalize(place.path("")).unwrap();
    assert_eq!(lines.next(), cwd.to_str());
}

#[test]
fn lists_are_read_from_standard_input() {
    let place = Place::new();
    let mut map = place.ghostlight(["map", "--", "echo", "{}"]);
    let mut child =
        map.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\n\n b \nlast").unwrap();
    let output = child.wait_with_output().unwrap();
    let mut lines: Vec<&[u8]> = output.stdout.split(|b| *b == b'\n').collect();
    lines.sort_unstable();
    assert_eq!(lines, [b"".as_slice(), b" b ", b"a", b"last"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("1  blank line skipped\n"), "{stderr}");
    let empty = place.run(["map", "--", "echo", "{}"]);
    assert_eq!(empty.code(), Some(0), "an empty list is no error: {}", empty.stderr);
}

#[test]
fn usage_and_environment_errors_write_nothing() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    let long = "n".repeat(257);
    let cases: [(&[&str], &str); 17] = [
        (&["map", "a", "b"], "there is no command"),
        (&["map", "--batch", "x"], "there is no batch \"x\""),
        (&["map", "--files", "nowhere", "--", "cat", "{}"], "nowhere"),
        (&["map", "--files", ".", "a", "--", "cat", "{}"], "not from both"),
        (&["map", "-0", "a", "--", "cat", "{}"], "-0"),
        (&["map", "--jobs", "0", "a", "--", "cat"], "'--jobs <N>': write a whole number from 1"),
        (&["map", "--jobs", "-1", "a", "--", "cat"], "'--jobs <N>': write a whole number from 1"),
        (&["map", "--max-attempts", "x", "a", "--", "cat"], "write a whole number from 1"),
        (&["map", "--bogus", "a", "--", "cat"], "unexpected argument '--bogus'"),
        (&["map", "--listen", "192.0.2.1:1", "a", "--", "cat"], "cannot listen on 192.0.2.1:1"),
        (&["map", "--listen", "8080", "a", "--", "cat"], "such as 127.0.0.1:8080"),
        (&["map", "--batch", "", "a", "--", "cat"], "'--batch <NAME>': a name must not be empty"),
        (&["map", "a", "--", "", "{}"], "the command is an empty word"),
        (&["tail", "x", "--after", "-1"], "'--after <N>': write a whole number"),
        (&["map", "--data", "file", "a", "--", "cat"], "it is a file"),
        (&["map", "--batch", "..", "a", "--", "cat"], "not a name"),
        (&["map", "--batch", &long, "a", "--", "cat"], "256"),
    ];
    for (args, expected) in cases {
        let ended = place.run(args);
        assert_eq!(ended.code(), Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("tip:"), "{args:?}: {}", ended.stderr);
    }
    let mut misspelt = place.ghostlight(["map", "a", "--", "cat"]);
    let misspelt = misspelt.env("GHOSTLIGHT_LOG", "ghostlight=loud").output().unwrap();
    assert_eq!(misspelt.status.code(), Some(2));
    let text = String::from_utf8(misspelt.stderr).unwrap();
    assert!(text.contains("GHOSTLIGHT_LOG=\"ghostlight=loud\" is not understood"), "{text}");
    assert!(!place.path(".ghostlight").exists());
}

#[test]
fn inputs_that_cannot_be_put_aside_leave_none_of_them() {
    let place = Place::new();
    let mut map = place.ghostlight(["map", "--detach", "--batch", "b", "--", "echo", "{}"]);
    let mut map = place.spawn(map.stdin(Stdio::piped()));
    map.stdin().write_all(b"a\0b\n").unwrap();
    let ended = map.wait();
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("a NUL byte"), "{}", ended.stderr);
    assert_eq!(place.count_below("spool"), 0);
    assert!(!place.path(".ghostlight/store").exists(), "nothing was started");
}

#[test]
fn another_command_under_the_same_batch_is_refused() {
    let place = Place::new();
    assert_eq!(place.run(["map", "--batch", "b", "a", "--", "echo", "{}"]).code(), Some(0));
    let ended = place.run(["map", "--batch", "b", "a", "--", "echo", "other", "{}"]);
    assert_eq!(ended.code(), Some(2));
    assert!(ended.stderr.contains("another command"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty(), "nothing is reported for another command");
}

#[test]
fn a_refused_command_records_nothing() {
    let place = Place::new();
    let batch = |inputs: &[&str], command: &[&str]| {
        let words = ["map", "--jobs", "1", "--batch", "z"].iter().chain(inputs).chain(command);
        place.run(words.copied())
    };
    let one = ["--", "echo", "one", "{}"];
    assert_eq!(batch(&["1"], &one).code(), Some(0));
    let two = ["--", "sh", "-c", "echo two {} >> log"];
    // With an input that the batch has, and without one; aside, and at once.
    for inputs in [&["7", "8", "1", "9"][..], &["7", "8"], &["--detach", "7", "8"]] {
        let refused = batch(inputs, &two);
        assert_eq!(refused.code(), Some(2), "{inputs:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("another command"), "{}", refused.stderr);
        assert!(refused.stderr.contains("echo one {}"), "{}", refused.stderr);
    }
    assert!(!place.path(".ghostlight/spool").exists(), "nothing is put aside");
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let mut elsewhere = place.ghostlight(["map", "--batch", "z", "--data", "../.ghostlight", "5"]);
    let refused = elsewhere.args(one).current_dir(place.path("elsewhere")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another working directory"));
    assert_eq!(String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap().lines().count(), 1);
    let again = batch(&["1", "2"], &one);
    assert_eq!((again.code(), again.sorted()), (Some(0), vec!["one 1".into(), "one 2".into()]));
    assert!(place.lines("log").is_empty(), "no refused command was ever executed");
    // A batch that has no runs is bound to nothing.
    assert_eq!(place.run(["clear"]).code(), Some(0));
    assert_eq!(batch(&["7"], &two).code(), Some(0));
    assert_eq!(place.lines("log"), ["two 7"]);
}

#[test]
fn files_are_found_and_hidden_ones_left_out() {
    let place = Place::new();
    for (file, text) in [("d/a", "1"), ("d/e/b", "2"), ("d/.hidden", "3"), ("c/x", "4")] {
        let path = place.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::write(place.path("c/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55")
        .unwrap();
    std::os::unix::fs::symlink("nowhere", place.path("d/broken")).unwrap();
    let ended = place.run(["map", "--files", ".", "--", "cat", "{}"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1  broken link skipped\n"), "{}", ended.stderr);
    let mut out = ended.stdout;
    out.sort_unstable();
    assert_eq!(out, b"12");
}

#[test]
fn a_command_that_truncates_its_output_is_told_of() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "echo first; dd bs=1 count=1 < gate > /dev/null 2>&1; echo x > /dev/stdout";
    let args = ["map", "i", "--", "sh", "-c", script];
    let mut map = place.start(args);
    assert_eq!(map.read_lines(1), ["first"]);
    gate.open(1);
    let ended = map.wait();
    assert_eq!((ended.code(), ended.stdout.as_slice()), (Some(0), &b"x\n"[..]));
    let note = "truncated its own stdout";
    assert_eq!(ended.stderr.matches(note).count(), 1, "{}", ended.stderr);
    let again = place.run(args);
    assert_eq!(again.stdout, b"first\nx\n");
    assert_eq!(again.stderr.matches(note).count(), 1, "recorded, once: {}", again.stderr);
    let json = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    let run: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    let tail = place.run(["tail", run["runId"].as_str().unwrap()]);
    assert_eq!(tail.stdout, b"first\nx\n");
    assert_eq!(tail.stderr.matches(note).count(), 1, "{}", tail.stderr);
}

#[test]
fn a_batch_that_is_not_there_is_told_from_one_that_was_not_detached() {
    let place = Place::new();
    for batch in ["night", "a/b"] {
        assert_eq!(place.run(["map", "--batch", batch, "x", "--", "echo", "{}"]).code(), Some(0));
    }
    let unknown = place.run(["map", "--batch", "nobatch"]);
    assert_eq!(unknown.code(), Some(2));
    assert!(unknown.stderr.contains("there are: a/b, night"), "{}", unknown.stderr);
    let known = place.run(["map", "--batch", "night"]);
    assert_eq!(known.code(), Some(2));
    assert!(known.stderr.contains("was not detached"), "{}", known.stderr);
}

#[test]
fn a_command_that_does_not_see_its_input_is_told_of_once() {
    let place = Place::new();
    let ended = place.run(["map", "a", "b", "--", "true"]);
    assert_eq!(ended.code(), Some(0));
    assert_eq!(ended.stderr.matches("no {} in the command").count(), 1, "{}", ended.stderr);
    let ended = place.run(["map", "a", "--", "echo", "{}"]);
    assert!(!ended.stderr.contains("no {}"), "{}", ended.stderr);
}
