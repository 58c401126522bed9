//! Nothing is left behind: a process of its own, because it counts what the process has.

#[path = "../launch/support.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

use std::fs;

use ghostlight_cli::launch::{CommandEnd, LaunchDir, Offsets, OutputFollower, OutputWatcher};
use support::{Place, bounded, finish, spawn};
use tokio::task::JoinSet;

const LAUNCHES: usize = 200;

/// The processes that are children of this one: pid and state.
fn children() -> Vec<(i32, char)> {
    let own = std::process::id().to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").expect("proc") {
        let name = entry.expect("entry").file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that is gone meanwhile is none.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some((_, rest)) = stat.rsplit_once(')') {
            let mut fields = rest.split_ascii_whitespace();
            let state = fields.next().and_then(|state| state.chars().next());
            if fields.next() == Some(&own) {
                children.push((pid, state.expect("a state")));
            }
        }
    }
    children
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// Waits until there is no child and no more than so many descriptors. What is awaited happens in
/// other tasks, which this lets run; nothing tells of it.
async fn clean(descriptors_before: usize) {
    while !children().is_empty() || descriptors() > descriptors_before {
        tokio::task::yield_now().await;
    }
}

/// One test, because two would count one another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind() {
    bounded(async {
        let place = Place::new();
        // The first launch opens what stays open.
        let first = place.launch("first");
        spawn(&first, &place.command("true", &[]))
            .await
            .expect("spawn")
            .ended()
            .await
            .expect("end");
        let before = descriptors();
        assert_eq!(children(), []);
        failures(&place, &first).await;
        clean(before).await;
        many_launches_at_once(&place).await;
        clean(before).await;
    })
    .await;
}

async fn many_launches_at_once(place: &Place) {
    let gate = place.gate("gate");
    let watcher = OutputWatcher::new();
    let mut launches = JoinSet::new();
    let (here, mut all_here) = tokio::sync::mpsc::channel(LAUNCHES);
    for number in 0..LAUNCHES {
        let dir = place.launch(&format!("launch-{number}"));
        let script = r#"exec 3< "$1"; echo here; read x <&3; echo "$GHOSTLIGHT_RUN_ID""#;
        let mut spec = place.script(script, &[&gate.path]);
        spec.run_id = number.to_string();
        let (watcher, here) = (watcher.clone(), here.clone());
        launches.spawn(async move {
            let shim = spawn(&dir, &spec).await.expect("spawn");
            let mut follower =
                OutputFollower::open(&dir, Offsets::default(), &watcher).expect("follow");
            let line = follower.next().await.expect("follow").expect("a line");
            assert_eq!(line.chunk.bytes, b"here\n");
            here.send(()).await.expect("counted");
            let line = follower.next().await.expect("follow").expect("a line");
            assert_eq!(line.chunk.bytes, format!("{number}\n").as_bytes());
            assert_eq!(follower.next().await.expect("follow"), None);
            let end = &follower.status().expect("status").end;
            assert_eq!(*end, CommandEnd::Exited { code: 0 });
            if number % 2 == 0 {
                shim.ended().await.expect("end");
            }
            // The other half is dropped while it may still be there.
            dir.remove().expect("remove");
        });
    }
    drop((here, watcher));
    for _ in 0..LAUNCHES {
        all_here.recv().await.expect("all launches begin");
    }
    // All of them run; now all of them see the gate closed.
    drop(gate);
    while let Some(launch) = launches.join_next().await {
        launch.expect("no panic");
    }
}

async fn failures(place: &Place, over: &LaunchDir) {
    let dir = place.launch("not-found");
    // Dropped at once: it is reaped all the same.
    drop(spawn(&dir, &place.command("no-such-command", &[])).await.expect("spawn"));
    finish(&dir).await;
    let mut spec = place.command("true", &[]);
    assert!(spawn(over, &spec).await.is_err(), "the launch is over");
    spec.shim = "/bin/true".into();
    let dir = place.launch("no-shim");
    assert!(spawn(&dir, &spec).await.is_err(), "no shim");
}
