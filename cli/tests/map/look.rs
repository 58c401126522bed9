use std::io::Write;
use std::process::Stdio;

use crate::support::{Place, only_run, sorted};

const WAIT: &str = "echo {} 1; echo {} 2 >&2; dd bs=1 count=1 < gate > /dev/null 2>&1; echo {} 3";

#[test]
fn tails_cross_a_kill_without_gap_or_repeat() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script =
        "for i in 1 2 3 4 5 6; do echo {} $i; dd bs=1 count=1 < gate > /dev/null 2>&1; done";
    let args = ["map", "x", "--", "sh", "-c", script];
    let mut map = place.start(args);
    map.read_lines(1);
    let id = only_run(&place);
    // Begun at different moments: live, without an owner, with the next one.
    let mut tails = vec![place.start(["tail", &id])];
    assert_eq!(tails[0].read_lines(1), ["x 1"]);
    gate.open(1);
    map.read_lines(1);
    map.sigkill();
    tails.push(place.start(["tail", &id]));
    assert_eq!(tails[1].read_lines(2), ["x 1", "x 2"]);
    gate.open(2);
    let mut map = place.start(args);
    map.read_lines(4);
    tails.push(place.start(["tail", &id]));
    gate.open(3);
    assert_eq!(map.wait().code(), Some(0));
    tails.push(place.start(["tail", &id]));
    let expected: Vec<String> = (1..=6).map(|i| format!("x {i}")).collect();
    for (nth, (tail, read)) in tails.into_iter().zip([1, 2, 0, 0]).enumerate() {
        let ended = tail.wait();
        let lines: Vec<String> =
            String::from_utf8_lossy(&ended.stdout).lines().map(str::to_owned).collect();
        assert_eq!(lines, expected[read..], "tail {nth}: {}", ended.stderr);
        assert_eq!(ended.code(), Some(0), "tail {nth}: {}", ended.stderr);
    }
    let rest = place.run(["tail", &id, "--after", "4"]);
    assert_eq!(sorted(&String::from_utf8(rest.stdout).unwrap()), ["x 5", "x 6"]);
}

#[test]
fn streams_and_frames_are_kept_apart() {
    let place = Place::new();
    let ended = place.run(["map", "x", "--", "sh", "-c", "echo out; echo err >&2; exit 4"]);
    assert_eq!(ended.code(), Some(1));
    let id = only_run(&place);
    let tail = place.run(["tail", &id]);
    assert_eq!((tail.code(), tail.stdout.as_slice()), (Some(1), b"out\n".as_slice()));
    assert!(tail.stderr.contains("err\n") && tail.stderr.contains("exited with code 4"));
    let json = place.run(["tail", "--json", &id]);
    let kinds: Vec<String> = String::from_utf8(json.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|frame| frame["event"]["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["started", "chunk", "chunk", "error"]);
    let show = place.run(["show", "--json", &id[..8]]);
    let value: serde_json::Value = serde_json::from_slice(&show.stdout).unwrap();
    assert_eq!(value["status"], "error");
    assert_eq!(value["error"], "exited with code 4");
}

#[test]
fn cancel_reaches_a_command_with_and_without_an_owner() {
    for owned in [true, false] {
        let place = Place::new();
        let _gate = place.gate("gate");
        let args = ["map", "x", "--", "sh", "-c", WAIT];
        let mut map = place.start(args);
        map.read_lines(1);
        let id = only_run(&place);
        let map = if owned {
            Some(map)
        } else {
            map.sigkill();
            None
        };
        let cancelled = place.run(["cancel", &id, "--reason", "enough"]);
        assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
        let said = String::from_utf8(cancelled.stdout).unwrap();
        assert_eq!(said.contains("next `ghostlight map`"), !owned, "{said}");
        if !owned {
            let listed = String::from_utf8(place.run(["runs"]).stdout).unwrap();
            assert!(listed.contains("cancelling"), "{listed}");
            let shown = String::from_utf8(place.run(["show", &id]).stdout).unwrap();
            assert!(shown.contains("status             cancelling"), "{shown}");
        }
        assert_eq!(place.run(["cancel", &id]).code(), Some(0), "idempotent");
        let ended = match map {
            Some(map) => map.wait(),
            None => place.run(args),
        };
        assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("x: aborted: enough"), "{}", ended.stderr);
        let show = place.run(["show", "--json", &id]);
        let value: serde_json::Value = serde_json::from_slice(&show.stdout).unwrap();
        assert_eq!((&value["status"], &value["error"]), (&"aborted".into(), &"enough".into()));
        let late = place.run(["cancel", &id]);
        let code = late.code();
        let said = String::from_utf8(late.stdout).unwrap();
        assert_eq!((code, said), (Some(0), format!("{id}: has ended before: aborted: enough\n")));
        let shown = String::from_utf8(place.run(["show", &id]).stdout).unwrap();
        assert!(!shown.contains("cancelling"), "{shown}");
        assert!(place.launch_files().is_empty(), "{:?}", place.launch_files());
    }
}

#[test]
fn a_cancel_without_an_owner_loses_no_output() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut done = place.gate("done");
    let script = "trap 'echo stopped; exit 3' TERM; echo 1; dd bs=1 count=1 < gate 2> /dev/null; \
                  echo 2; echo err >&2; printf 3; echo x > done; dd bs=1 count=1 < gate 2> /dev/null";
    let args = ["map", "x", "--", "sh", "-c", script];
    let mut map = place.start(args);
    map.read_lines(1);
    let id = only_run(&place);
    map.sigkill();
    gate.open(1);
    done.read_one();
    for _ in 0..2 {
        let cancelled = place.run(["cancel", &id, "--reason", "enough"]);
        assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    }
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("x: aborted: enough"), "{}", ended.stderr);
    let tail = place.run(["tail", &id]);
    // The gate's byte is passed on by dd.
    assert_eq!(String::from_utf8(tail.stdout).unwrap(), "1\nx2\n3stopped\n");
    assert_eq!(tail.stderr.matches("err\n").count(), 1, "{}", tail.stderr);
    let again = place.run(args);
    assert!(again.stderr.contains("x: aborted: enough"), "{}", again.stderr);
    assert_eq!(place.run(["tail", &id]).stdout, b"1\nx2\n3stopped\n", "nothing is doubled");
    assert!(place.launch_files().is_empty(), "{:?}", place.launch_files());
}

#[test]
fn a_cancel_that_stops_nothing_says_what_it_has_done() {
    let place = Place::new();
    let _gate = place.gate("gate");
    let args = ["map", "x", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    map.read_lines(1);
    let id = only_run(&place);
    map.sigkill();
    let claim = place.launch_files().into_iter().find(|path| path.ends_with("claim")).unwrap();
    let away = claim.with_extension("away");
    std::fs::rename(&claim, &away).unwrap();
    std::fs::write(&claim, "nonsense").unwrap();
    let cancelled = place.run(["cancel", &id]);
    assert_eq!(cancelled.code(), Some(2));
    for said in ["the cancel is recorded", "its command is not stopped yet", "corrupt"] {
        assert!(cancelled.stderr.contains(said), "{}", cancelled.stderr);
    }
    let listed = String::from_utf8(place.run(["runs"]).stdout).unwrap();
    assert!(listed.contains("cancelling"), "{listed}");
    std::fs::rename(&away, &claim).unwrap();
    assert_eq!(place.run(["cancel", &id]).code(), Some(0));
    assert!(place.run(args).stderr.contains("x: aborted"));
}

#[test]
fn a_cancelled_run_starts_no_command() {
    let place = Place::new();
    // The launch is planned and cannot be made; its command was never started.
    std::fs::create_dir(place.path(".ghostlight")).unwrap();
    std::fs::write(place.path(".ghostlight/launches"), "in the way").unwrap();
    let args = ["map", "x", "--", "sh", "-c", "echo {} >> log"];
    let mut map = place.ghostlight(args);
    let mut map = place.spawn(map.env("GHOSTLIGHT_LOG", "warn"));
    map.read_note();
    map.sigkill();
    std::fs::remove_file(place.path(".ghostlight/launches")).unwrap();
    let id = only_run(&place);
    let cancelled = place.run(["cancel", &id]);
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("x: aborted"), "{}", ended.stderr);
    assert!(!place.path(".ghostlight/launches").exists(), "nothing was launched");
}

#[test]
fn clear_removes_ended_runs_and_their_ids_for_good() {
    let place = Place::new();
    let args = ["map", "x", "--", "sh", "-c", "echo {} >> log"];
    assert_eq!(place.run(args).code(), Some(0));
    let id = only_run(&place);
    let cleared = place.run(["clear", "--older-than", "1h"]);
    assert_eq!(cleared.stdout, b"0 runs were removed\n");
    assert_eq!(place.run(["clear", "--status", "completed"]).stdout, b"1 run was removed\n");
    assert!(place.run(["runs"]).stdout.is_empty());
    assert_eq!(place.run(["show", &id]).code(), Some(2));
    // The input is there again, under the next id.
    assert_eq!(place.run(args).code(), Some(0));
    assert_eq!(only_run(&place), format!("{}~1", id.trim_end_matches("~0")));
    assert_eq!(place.lines("log"), ["x", "x"]);
}

#[test]
fn clear_leaves_live_runs_alone() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut map = place.start(["map", "x", "--", "sh", "-c", WAIT]);
    map.read_lines(1);
    assert_eq!(place.run(["clear"]).stdout, b"0 runs were removed\n");
    let refused = place.run(["clear", "--status", "running"]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("ghostlight cancel"), "{}", refused.stderr);
    gate.open(1);
    assert_eq!(map.wait().code(), Some(0));
}

#[test]
fn what_is_not_there_is_an_error() {
    let place = Place::new();
    for command in ["show", "tail", "cancel"] {
        let ended = place.run([command, "nothing"]);
        assert_eq!(ended.code(), Some(2), "{command}: {}", ended.stderr);
        assert!(ended.stderr.contains("there are no runs in"), "{command}: {}", ended.stderr);
    }
    assert!(!place.path(".ghostlight").exists(), "looking makes no folder");
    assert_eq!(place.run(["map", "x", "--", "true"]).code(), Some(0));
    assert_eq!(place.run(["map", "--batch", "other", "x", "--", "true"]).code(), Some(0));
    for command in ["show", "tail", "cancel"] {
        let unknown = place.run([command, "nothing"]);
        assert_eq!(unknown.code(), Some(2));
        assert!(unknown.stderr.contains("there is no run \"nothing\""), "{}", unknown.stderr);
    }
    let id = String::from_utf8(place.run(["runs", "--batch", "other", "--json"]).stdout).unwrap();
    let value: serde_json::Value = serde_json::from_str(&id).unwrap();
    let id = value["runId"].as_str().unwrap();
    let ambiguous = place.run(["show", id]);
    assert_eq!(ambiguous.code(), Some(2));
    let text = &ambiguous.stderr;
    assert!(
        text.contains("--batch") && text.contains(&format!("Batch:other/Command:{id}")),
        "{text}"
    );
    assert!(!text.contains("write more"), "the id is whole: {text}");
    for words in [&["runs"][..], &["clear"], &["show", id], &["tail", id], &["cancel", id]] {
        let unknown = place.run([words, &["--batch", "nobatch"]].concat());
        assert_eq!(unknown.code(), Some(2), "{words:?}");
        let text = &unknown.stderr;
        assert!(text.contains("there is no batch \"nobatch\"; there are: "), "{words:?}: {text}");
    }
    assert_eq!(place.run(["show", "--batch", "other", id]).code(), Some(0));
    assert_eq!(place.run(["show", &format!("Batch:other/Command:{id}")]).code(), Some(0));
}

#[test]
fn a_run_is_not_meant_by_accident() {
    let place = Place::new();
    let _gate = place.gate("gate");
    let mut map = place.start(["map", "--batch", "a/b", "x", "--", "sh", "-c", WAIT]);
    map.read_lines(1);
    let id = only_run(&place);
    for command in ["show", "tail", "cancel"] {
        for blank in ["", "  "] {
            let ended = place.run([command, blank]);
            assert_eq!(ended.code(), Some(2), "{command} {blank:?}: {}", ended.stderr);
        }
    }
    assert_eq!(place.run(["show", &id[..1]]).code(), Some(0), "looking needs no more than that");
    let short = place.run(["cancel", &id[..7]]);
    assert_eq!(short.code(), Some(2));
    assert!(short.stderr.contains("at least its first 8 characters"), "{}", short.stderr);
    // A name with a slash, as it was given and as it is printed.
    for name in ["a/b", "a%2Fb"] {
        let shown = place.run(["show", &format!("Batch:{name}/Command:{id}")]);
        assert_eq!(shown.code(), Some(0), "{}", shown.stderr);
    }
    assert_eq!(place.run(["cancel", &id[..8]]).code(), Some(0));
    assert_eq!(map.wait().code(), Some(1));
}

#[test]
fn a_detached_batch_goes_on_by_itself() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "dd bs=1 count=1 < gate > /dev/null 2>&1; echo {} >> log";
    let args = ["map", "--batch", "night", "--detach", "a", "b", "--", "sh", "-c", script];
    let detached = place.run(args);
    assert_eq!(detached.code(), Some(0), "{}", detached.stderr);
    let said = String::from_utf8_lossy(&detached.stdout).into_owned();
    assert!(said.contains("goes on in the background"), "{said}");
    let refused = place.run(["map", "x", "--", "true"]);
    assert_eq!(refused.code(), Some(2), "the folder has an owner");
    let mut listed = String::new();
    // It dispatches them once it answers.
    while listed.lines().count() < 2 {
        listed = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    }
    let tails: Vec<_> = listed
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|run| place.start(["tail", run["runId"].as_str().unwrap()]))
        .collect();
    gate.open(2);
    for tail in tails {
        assert_eq!(tail.wait().code(), Some(0));
    }
    // Waits for the owner to let go, and reports both from the store.
    let mut resumed = place.run(["map", "--batch", "night"]);
    while resumed.code() == Some(2) {
        assert!(resumed.stderr.contains("is in use by "), "{}", resumed.stderr);
        resumed = place.run(["map", "--batch", "night"]);
    }
    assert_eq!(resumed.code(), Some(0), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("2  completed before"), "{}", resumed.stderr);
    assert_eq!(place.lines("log"), ["a", "b"]);
    // What belongs to no run goes with the last one.
    let left = |name: &str| place.path(".ghostlight").join(name).exists();
    assert!(["spool", "map.log", "batches", "launches"].into_iter().all(left));
    assert_eq!(place.run(["clear"]).stdout, b"2 runs were removed\n");
    for name in ["spool", "map.log", "batches", "launches"] {
        assert!(!left(name), "{name}");
    }
}

#[test]
fn clear_through_an_owner_leaves_nothing() {
    let place = Place::new();
    let left = || ["batches", "launches", "spool", "map.log"].map(|name| place.count_below(name));
    let old = ["map", "--batch", "old", "--detach", "a", "b", "--", "true"];
    assert_eq!(place.run(old).code(), Some(0));
    while place.run(["map", "--batch", "old"]).code() == Some(2) {}
    assert_eq!(left(), [2, 2, 4, 1], "each folder counts, too");

    // The owner of another batch, which ends when its list does.
    let mut map = place.ghostlight(["map", "--batch", "own", "--", "echo", "{}"]);
    let mut map = place.spawn(map.stdin(Stdio::piped()));
    let mut list = map.stdin();
    list.write_all(b"x\n").unwrap();
    assert_eq!(map.read_lines(1), ["x"]);
    while place.run(["runs", "--batch", "own", "--status", "completed"]).stdout.is_empty() {}
    assert_eq!(place.run(["clear", "--batch", "old"]).stdout, b"2 runs were removed\n");
    assert_eq!(left(), [2, 2, 0, 0], "its own");
    assert_eq!(place.run(["clear"]).stdout, b"1 run was removed\n");
    list.write_all(b"y\n").unwrap();
    assert_eq!(map.read_lines(1), ["y"], "it goes on");
    while place.run(["runs", "--batch", "own", "--status", "completed"]).stdout.is_empty() {}
    assert_eq!(place.run(["clear"]).stdout, b"1 run was removed\n");
    drop(list);
    assert_eq!(map.wait().code(), Some(0));
    assert_eq!(left(), [0, 0, 0, 0]);
}

#[test]
fn a_cleared_id_brings_no_older_end_back() {
    let place = Place::new();
    let script = "echo {} >> log; [ -e good ]";
    assert_eq!(place.run(["map", "x", "--", "sh", "-c", script]).code(), Some(1));
    std::fs::write(place.path("good"), "").unwrap();
    assert_eq!(place.run(["map", "--retry-failed", "x", "--", "sh", "-c", script]).code(), Some(0));
    assert_eq!(place.run(["clear", "--status", "completed"]).stdout, b"1 run was removed\n");
    assert_eq!(place.run(["map", "x", "--", "sh", "-c", script]).code(), Some(0));
    assert_eq!(place.lines("log"), ["x", "x", "x"]);
}

#[test]
fn runs_are_listed_in_the_order_of_their_inputs() {
    let place = Place::new();
    let words: Vec<String> = (0..30).map(|n| format!("input-{n}")).collect();
    let map = ["map", "--no-sync"].into_iter().chain(words.iter().map(String::as_str));
    assert_eq!(place.run(map.chain(["--", "true"])).code(), Some(0));
    let listed = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    let listed: Vec<serde_json::Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let order = |run: &serde_json::Value| run["displayOrder"].as_i64().unwrap();
    for run in &listed {
        assert_eq!(run["inputPreview"], words[order(run) as usize].as_str());
    }
    // Two that are dispatched side by side may be recorded in either order, but not in the same ms.
    let at: Vec<_> = listed.iter().map(|run| (run["startedAt"].as_i64(), order(run))).collect();
    assert!(at.is_sorted(), "{at:?}");
    assert_eq!(at.len(), words.len());
}

#[test]
fn runs_of_all_batches_are_listed_oldest_first() {
    let place = Place::new();
    for (batch, input) in [("z", "1"), ("a", "2"), ("m", "3"), ("z", "4"), ("a", "5")] {
        let args = ["map", "--no-sync", "--batch", batch, input, "--", "echo", "a b", "{}"];
        assert_eq!(place.run(args).code(), Some(0));
    }
    let listed = String::from_utf8(place.run(["runs"]).stdout).unwrap();
    let columns = |line: &str| -> Vec<String> {
        line.split_whitespace().skip(3).map(str::to_owned).collect()
    };
    let rows: Vec<Vec<String>> = listed.lines().map(columns).collect();
    let expected = [["BATCH", "INPUT"], ["z", "1"], ["a", "2"], ["m", "3"], ["z", "4"], ["a", "5"]];
    assert_eq!(rows, expected);
    let one = String::from_utf8(place.run(["runs", "--batch", "z"]).stdout).unwrap();
    assert!(!one.contains("BATCH"), "{one}");
    let id = listed.lines().nth(3).unwrap().split(' ').next().unwrap();
    let shown = String::from_utf8(place.run(["show", id]).stdout).unwrap();
    let cwd = std::fs::canonicalize(place.path("")).unwrap();
    for field in
        ["command            echo a b {}", "input              3", &cwd.display().to_string()]
    {
        assert!(shown.contains(field), "{field}: {shown}");
    }
}
