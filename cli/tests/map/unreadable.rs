//! A store that cannot be read, or not by this version: every command says so, and changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use crate::support::{Place, only_run};

/// As the store has them.
const SEGMENT_BYTES: usize = 4 << 20;
const FORMAT_KEY: &[u8] = b"\0format";

type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// What all files below a folder hold, but for those whose path `is_left_out`, and for the log of a
/// background program: what that has said is no part of the runs.
fn contents(folder: PathBuf, is_left_out: impl Fn(&str) -> bool) -> Contents {
    let (mut contents, mut folders) = (BTreeMap::new(), vec![folder]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("map.log") || is_left_out(path.to_str().unwrap()) {
                continue;
            }
            if path.is_dir() {
                contents.insert(path.clone(), Vec::new());
                folders.push(path);
            } else {
                contents.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    contents
}

fn assert_same(command: &str, before: &Contents, now: &Contents) {
    let differs = |path: &&PathBuf| before.get(*path) != now.get(*path);
    let different: Vec<_> = before.keys().chain(now.keys()).filter(differs).collect();
    assert!(different.is_empty(), "{command} has changed {different:#?}");
}

/// Runs every command on a folder with one ended run: each is refused.
fn all_refuse(place: &Place, run: &str, why: &str, check: impl Fn(&str)) {
    let commands: [&[&str]; 8] = [
        &["map", "a", "--", "echo", "{}"],
        &["map", "a", "--", "echo", "of another batch", "{}"],
        &["map", "--detach", "a", "--", "echo", "{}"],
        &["runs"],
        &["show", run],
        &["tail", run],
        &["cancel", run],
        &["clear"],
    ];
    for command in commands {
        let ended = place.run(command);
        assert_eq!(ended.code(), Some(2), "{command:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{command:?}");
        assert!(ended.stderr.contains(why), "{command:?}: {}", ended.stderr);
        check(&command.join(" "));
    }
}

#[test]
fn a_damaged_store_is_left_as_it_is() {
    let place = Place::new();
    assert_eq!(place.run(["map", "a", "--", "echo", "{}"]).code(), Some(0));
    let run = only_run(&place);
    let log = File::options().write(true).open(place.path(".ghostlight/store/db")).unwrap();
    log.write_all_at(&[0xa5; 4096], 0).unwrap();
    let now = || contents(place.path(".ghostlight"), |_| false);
    let before = now();
    all_refuse(&place, &run, "keep a copy of the folder", |command| {
        assert_same(command, &before, &now());
    });
}

#[test]
fn a_store_of_a_newer_version_is_left_as_it_is() {
    let place = Place::new();
    assert_eq!(place.run(["map", "a", "--", "echo", "{}"]).code(), Some(0));
    let run = only_run(&place);
    let listed = || String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    let runs = listed();
    let set_format = |format: u32| {
        let store = place.path(".ghostlight/store");
        let db = sled::Config::new().path(&store).segment_size(SEGMENT_BYTES).open().unwrap();
        db.insert(FORMAT_KEY, &format.to_be_bytes()).unwrap();
        db.flush().unwrap();
        drop(db);
        // Its threads let go of the file a moment later.
        flock(File::open(store.join("db")).unwrap(), FlockOperation::LockExclusive).unwrap();
    };
    set_format(2);
    // The engine itself writes as it opens, before it can be asked for the version.
    let now = || contents(place.path(".ghostlight"), |path| path.contains("/store/"));
    let before = now();
    all_refuse(&place, &run, "was written by a newer version", |command| {
        assert_same(command, &before, &now());
    });
    set_format(1);
    assert_eq!(listed(), runs);
}
