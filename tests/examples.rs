//! Every example as a process of its own, and the first of them over a SIGKILL.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use ghostlight::storage::FolderLock;
use ghostlight::{Offline, RunFilter, RunInfo, Status};
use tempfile::TempDir;

/// The program of an example, built by the cargo and with the profile of this test.
fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap().to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--examples", "--manifest-path"]);
        build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the examples do not build");
        profile.join("examples")
    });
    folder.join(name)
}

fn run(name: &str, folder: &TempDir) -> Output {
    Command::new(example(name)).current_dir(folder.path()).output().unwrap()
}

/// Standard output of an example that succeeds in an empty folder.
fn printed(name: &str) -> String {
    let folder = TempDir::new().unwrap();
    let output = run(name, &folder);
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What an example writes before it is killed: when it has written `last` so many times.
fn killed_after(name: &str, folder: &TempDir, last: &str, times: usize) -> String {
    let mut child = Command::new(example(name))
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut streams: [Box<dyn Read>; 2] =
        [Box::new(child.stderr.take().unwrap()), Box::new(child.stdout.take().unwrap())];
    let stream = &mut streams[usize::from(name != "hello")];
    let mut written = Vec::new();
    let (mut byte, mut seen) = ([0], 0);
    while seen < times && stream.read(&mut byte).unwrap() == 1 {
        written.push(byte[0]);
        seen += usize::from(written.ends_with(last.as_bytes()));
    }
    child.kill().unwrap();
    stream.read_to_end(&mut written).unwrap();
    assert!(!child.wait().unwrap().success(), "it ended before it was killed");
    String::from_utf8(written).unwrap()
}

#[test]
fn hello_goes_on_where_it_was_killed() {
    let folder = TempDir::new().unwrap();
    // The fourth step begins once the results of the first three are durable.
    let first = killed_after("hello", &folder, "step 4 ... ", 1);
    for step in 1..=3 {
        assert_eq!(first.matches(&format!("step {step} ... done")).count(), 1, "{first}");
    }
    let second = run("hello", &folder);
    let second = String::from_utf8(second.stderr).unwrap();
    for step in 1..=3 {
        assert!(!second.contains(&format!("step {step}")), "step {step} ran twice: {second}");
    }
    assert!(second.ends_with("step 5 ... done\nstep 6 ... done\nsum: 91\n"), "{second}");

    let third = run("hello", &folder);
    assert_eq!(String::from_utf8(third.stderr).unwrap(), "sum: 91\n", "it had ended before");
}

#[test]
fn a_start_that_fails_says_why_in_words() {
    let folder = TempDir::new().unwrap();
    killed_after("hello", &folder, "step 1 ... ", 1);
    // The run that is left in there is of a type that this program does not have.
    std::fs::rename(folder.path().join("hello-data"), folder.path().join("fan-out-data")).unwrap();
    let output = run("fan_out", &folder);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "Error: agent type \"Squares\" is not registered, and the store has live runs \
        or owed deliveries that need it (1, for instance run \"first\"); register it, or call \
        `park_unregistered()` to leave them alone; registered are: Counter, Program, Survey\n";
    assert_eq!(said, expected);
}

/// The texts whose runs have completed, in the folder of an example that is not running.
async fn counted(folder: &Path) -> BTreeSet<String> {
    let offline = Offline::open(FolderLock::acquire(folder).unwrap()).await.unwrap();
    let survey = "Program:main/Survey:survey".parse().unwrap();
    let filter = RunFilter { status: vec![Status::Completed], ..RunFilter::default() };
    let page = offline.list(&survey, &filter, None, 100).await.unwrap();
    offline.close().await.unwrap();
    let text = |run: &RunInfo| run.input_preview.as_ref().unwrap().as_str().unwrap().to_owned();
    page.runs.iter().map(text).collect()
}

#[tokio::test]
async fn fan_out_counts_what_is_left() {
    let folder = TempDir::new().unwrap();
    // Four at a time: the fifth begins once one of the others has ended, durably.
    let first = killed_after("fan_out", &folder, "words\n", 5);
    let counted = counted(&folder.path().join("fan-out-data")).await;
    assert!(!counted.is_empty(), "{first}");
    let second = run("fan_out", &folder);
    let second = String::from_utf8(second.stdout).unwrap();
    assert!(second.ends_with("total: 210\n"), "{second}");

    let mut again = 0;
    for n in 1..=20 {
        let text = vec!["word"; n].join(" ");
        let line = format!("{text:?} has {n} words\n");
        let times = [&first, &second].map(|output| output.matches(&line).count());
        match times {
            [1, 0] => {}
            [0 | 1, 1] => assert!(!counted.contains(&text), "{line} was counted: {second}"),
            _ => panic!("{times:?} times {line} in {first} and {second}"),
        }
        again += usize::from(times == [1, 1]);
    }
    // Those that were being counted: their steps had not ended.
    assert!(again <= 4, "{again} were counted again: {first} and {second}");
}

#[test]
fn import_prints_its_frames_and_its_outcome() {
    let printed = printed("import");
    assert!(printed.starts_with("columns: [\"id\",\"name\"]\n"), "{printed}");
    for line in [
        "\"kind\":\"started\",\"runId\":\"import-7\"",
        "\"kind\":\"finished\",\"runId\":\"import-7\"",
        "\nImported { rows: 4 }\n",
        "\nNotCompleted(run was cancelled: enough)\n",
    ] {
        assert!(printed.contains(line), "{line} is missing in {printed}");
    }
    let numbers: Vec<_> =
        printed.lines().filter_map(|line| line.split("\"sequence\":").nth(1)).collect();
    for (at, number) in numbers.iter().enumerate() {
        assert!(number.starts_with(&format!("{at},")), "frame {at}: {printed}");
    }
}

#[test]
fn race_has_one_winner_and_leaves_memory() {
    let expected = "price: 9\nruns in memory during the sleep: 0\n9 a piece, on attempt 1\n";
    assert_eq!(printed("race"), expected);
}

#[test]
fn finish_hook_is_called_until_it_succeeds() {
    let printed = printed("finish_hook");
    assert!(printed.contains("whoever awaits the run does not wait for the hook: hello ada\n"));
    assert!(printed.contains("Host:lobby: greet-ada has ended, but my hook fails\n"));
    assert!(printed.ends_with("Host:lobby: greet-ada returned \"hello ada\"\n"), "{printed}");
}

#[test]
fn testing_crashes_and_counts() {
    let expected = "alone: receipt for the charge of 500\n\
        after the crash: receipt for the charge of 500\n\
        the card was charged 1 time\n";
    assert_eq!(printed("testing"), expected);
}
