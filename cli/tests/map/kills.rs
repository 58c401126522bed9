//! The program is killed at random moments, and started again until all is done.
//!
//! `GHOSTLIGHT_SEED` repeats the choices of an earlier test (not the timing). The long form goes over
//! all `.rs` files below a folder, and prints its figures:
//!
//! ```text
//! GHOSTLIGHT_MAP_FOLDER=~/.cargo/registry \
//!     cargo test -p ghostlight-cli --test map every_file -- --nocapture
//! ```

#![expect(clippy::disallowed_methods, reason = "real processes, killed in real time")]
#![expect(clippy::print_stdout, reason = "the seed, and the figures of the long form")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use ghostlight_cli::inputs::run_id;

use crate::support::{Place, Running};

const KILLS: usize = 10;
const FILES: usize = 200;

fn seeded() -> Rng {
    let seed = match std::env::var("GHOSTLIGHT_SEED") {
        Ok(seed) => seed.parse().expect("GHOSTLIGHT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("GHOSTLIGHT_SEED={seed}");
    Rng::with_seed(seed)
}

/// Not to wait for something: the moment is the test's choice.
fn let_pass(rng: &mut Rng, at_most: Duration) {
    std::thread::sleep(at_most.mul_f64(rng.f64()));
}

fn write_files(folder: &Path, rng: &mut Rng) {
    for number in 0..FILES {
        let folder = folder.join((number % 7).to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{number}.rs")), "line\n".repeat(rng.usize(..50)))
            .unwrap();
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    // As their names are, and not as parts of paths.
    files.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    files
}

/// What `wc -l` says of each file, and the sum of it.
fn sum(counts: &[String]) -> u64 {
    counts.iter().map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn every_file_is_counted_once_whatever_is_killed() {
    let mut rng = seeded();
    let place = Place::new();
    let named = std::env::var_os("GHOSTLIGHT_MAP_FOLDER").map(PathBuf::from);
    // Where the files are ours, some commands outlive the start of the next program.
    let script = match &named {
        Some(_) => r#"echo "$1" >> log; exec wc -l "$1""#,
        None => r#"echo "$1" >> log; case $1 in *9.rs) sleep 0.5;; esac; exec wc -l "$1""#,
    };
    let folder = named.unwrap_or_else(|| {
        write_files(&place.path("files"), &mut rng);
        place.path("files")
    });
    let files = rust_files(&folder);
    let list = files.iter().map(|file| [file.as_os_str().as_bytes(), b"\0"].concat());
    std::fs::write(place.path("list"), list.collect::<Vec<_>>().concat()).unwrap();
    let open_list = || Stdio::from(File::open(place.path("list")).unwrap());
    let wc = Command::new("xargs").args(["-0", "wc", "-l"]).stdin(open_list()).output().unwrap();
    let wc = String::from_utf8(wc.stdout).unwrap();
    // Padded, and with totals in between.
    let direct = wc.lines().map(|line| line.trim_start().to_owned());
    let mut direct: Vec<String> = direct.filter(|line| !line.ends_with(" total")).collect();
    direct.sort();

    let map = || {
        let mut map =
            place.ghostlight(["map", "-0", "--jobs", "4", "--", "sh", "-c", script, "sh", "{}"]);
        map.stdin(open_list());
        map
    };
    let began = Instant::now();
    let mut done_at_kill = Vec::new();
    for _ in 0..KILLS {
        let done = place.lines("log").len();
        // After so many lines more, or at any moment from the first of the process.
        if rng.bool() {
            let mut map = place.spawn(&mut map());
            let lines = done + rng.usize(..=files.len() / KILLS);
            map.read_lines(lines.min(files.len()));
            map.sigkill();
        } else {
            let mut map = map().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let_pass(&mut rng, Duration::from_millis(files.len() as u64));
            map.kill().unwrap();
            map.wait().unwrap();
        }
        done_at_kill.push(place.lines("log").len());
    }
    let ended = place.spawn(&mut map()).wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    println!(
        "{} files, {} lines, {:.1?}; commands begun at each kill: {done_at_kill:?}",
        files.len(),
        sum(&direct),
        began.elapsed()
    );

    let counted = ended.sorted();
    assert_eq!(sum(&counted), sum(&direct));
    assert!(counted == direct, "the same sum, of other lines");
    let names: Vec<String> = files.iter().map(|file| file.to_str().unwrap().to_owned()).collect();
    // Both are too long to be printed.
    assert!(place.lines("log") == names, "a command was not started once");
    let runs = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    let runs: Vec<serde_json::Value> =
        runs.lines().map(|run| serde_json::from_str(run).unwrap()).collect();
    let ids: BTreeSet<&str> = runs.iter().map(|run| run["runId"].as_str().unwrap()).collect();
    let expected: Vec<String> = files.iter().map(|file| id(file.as_os_str().to_owned())).collect();
    assert_eq!(runs.len(), files.len());
    assert!(ids == expected.iter().map(String::as_str).collect(), "runs of other inputs");
    for run in &runs {
        assert_eq!((&run["status"], &run["attempt"]), (&"completed".into(), &1.into()), "{run}");
    }
}

fn id(input: OsString) -> String {
    format!("{}~0", run_id(&input, 0))
}

#[test]
fn tails_begun_at_any_moment_print_every_line_once() {
    const INPUTS: usize = 20;
    let mut rng = seeded();
    let place = Place::new();
    let inputs: Vec<String> = (0..INPUTS).map(|number| format!("i{number}")).collect();
    let script = "echo {} >> log; for i in 1 2 3 4 5; do echo {} $i; sleep 0.4; done";
    let words =
        |input: &String| -> Vec<String> { (1..=5).map(|i| format!("{input} {i}")).collect() };
    let args: Vec<&str> = ["map", "--jobs", "20"]
        .into_iter()
        .chain(inputs.iter().map(String::as_str))
        .chain(["--", "sh", "-c", script])
        .collect();
    let mut tails: Vec<(&String, Running)> = Vec::new();
    let mut tail = |rng: &mut Rng| {
        let input = &inputs[rng.usize(..INPUTS)];
        tails.push((input, place.start(["tail", &id(input.into())])));
    };
    let mut map = place.start(&args);
    // All of them are known from here on.
    map.read_lines(INPUTS);
    for _ in 0..4 {
        for _ in 0..3 {
            let_pass(&mut rng, Duration::from_millis(150));
            tail(&mut rng);
        }
        map.sigkill();
        tail(&mut rng);
        let_pass(&mut rng, Duration::from_millis(100));
        map = place.start(&args);
    }
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let mut expected: Vec<String> = inputs.iter().flat_map(words).collect();
    expected.sort();
    assert_eq!(ended.sorted(), expected);
    let mut once = inputs.clone();
    once.sort();
    assert_eq!(place.lines("log"), once, "each command was started once");
    tail(&mut rng);
    for (input, tail) in tails {
        let ended = tail.wait();
        let lines = String::from_utf8(ended.stdout).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines, words(input), "{}", ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    }
}
