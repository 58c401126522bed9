//! What happens to the processes that a command leaves behind.

use std::fs;

use ghostlight_cli::launch::CommandEnd;

use crate::support::{Place, Process, bounded, follow, numbers, spawn};

#[tokio::test]
async fn the_rest_of_the_group_is_killed_and_what_left_it_is_left_alone() {
    bounded(async {
        let place = Place::new();
        let gate = place.gate("gate");
        let dir = place.launch("launch");
        let script = r#"
            sleep 1000 & echo $!
            sh -c 'sleep 1000 & echo $!; exec sleep 1000' &
            setsid sh -c 'echo $$; exec sleep 1000' &
            read x < "$1"
            exit 5
        "#;
        let shim = spawn(&dir, &place.script(script, &[&gate.path])).await.expect("spawn");
        let mut follower = follow(&dir);
        let pids = numbers(&mut follower, 3).await;
        let (in_group, escaped): (Vec<_>, Vec<_>) = pids
            .into_iter()
            .map(|pid| (group_of(pid), Process::of(pid)))
            .partition(|(group, _)| *group == shim.claim().process_group);
        assert_eq!((in_group.len(), escaped.len()), (2, 1));

        gate.open();
        // Neither the end of the output nor that of the shim waits for what left the group.
        assert_eq!(follower.next().await.expect("follow"), None);
        assert_eq!(follower.status().expect("status").end, CommandEnd::Exited { code: 5 });
        assert!(in_group.iter().all(|(_, process)| !process.is_alive()));
        shim.ended().await.expect("end");
        for (_, process) in escaped {
            assert!(process.is_alive());
            process.kill();
            process.gone().await;
        }
    })
    .await;
}

/// Members of the group write until they are killed; the status must not be older than any of it.
#[tokio::test]
async fn the_status_is_written_after_all_output() {
    bounded(async {
        let place = Place::new();
        let gate = place.gate("gate");
        let dir = place.launch("launch");
        let script = r#"
            for i in 1 2 3; do sh -c 'while :; do echo more; done' & done
            read x < "$1"
        "#;
        let mut spec = place.script(script, &[&gate.path]);
        // With syncs a status that comes too early comes much too early.
        spec.sync = true;
        let shim = spawn(&dir, &spec).await.expect("spawn");
        let mut follower = follow(&dir);
        let mut bytes = 0;
        while let Some(line) = follower.next().await.expect("follow") {
            let before = bytes;
            bytes += line.chunk.bytes.len() as u64;
            if before < 10_000 && bytes >= 10_000 {
                gate.open();
            }
        }
        let told = follower.status().expect("status").stdout_bytes;
        assert_eq!(bytes, told);
        shim.ended().await.expect("end");
        assert_eq!(fs::metadata(dir.path().join("stdout")).expect("file").len(), told);
    })
    .await;
}

/// Orphans come to the shim, which must not take their ends for the command's.
#[tokio::test]
async fn orphans_are_reaped_while_the_command_runs() {
    bounded(async {
        let place = Place::new();
        let gate = place.gate("gate");
        let dir = place.launch("launch");
        let script = r#"
            sh -c 'sh -c "echo \$\$; read x < $0; exit 3" & exit 4' "$2"
            read x < "$1"
            exit 7
        "#;
        let orphans = place.gate("orphans");
        let spec = place.script(script, &[&gate.path, &orphans.path]);
        let shim = spawn(&dir, &spec).await.expect("spawn");
        let mut follower = follow(&dir);
        let orphan = numbers(&mut follower, 1).await[0];
        // Nothing tells of either of these but the process table.
        while parent_of(orphan) != Some(shim.claim().pid) {
            tokio::task::yield_now().await;
        }
        orphans.open();
        while parent_of(orphan).is_some() {
            tokio::task::yield_now().await;
        }
        gate.open();
        assert_eq!(follower.next().await.expect("follow"), None);
        assert_eq!(follower.status().expect("status").end, CommandEnd::Exited { code: 7 });
        shim.ended().await.expect("end");
    })
    .await;
}

/// The process's parent; `None` once it is gone and reaped.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn group_of(pid: i32) -> i32 {
    let pid = rustix::process::Pid::from_raw(pid).expect("pid");
    rustix::process::getpgid(Some(pid)).expect("alive").as_raw_pid()
}

const HELPER: &str = "GHOSTLIGHT_TEST_LEAVE_GROUP";

/// Not a test but the command of the one below: this test binary.
#[test]
fn helper_leaves_its_group() {
    use rustix::process::{getppid, setpgid};

    if std::env::var_os(HELPER).is_some() {
        setpgid(None, getppid()).expect("the shim's group");
    }
}

#[tokio::test]
async fn the_end_of_a_command_that_has_left_its_group_is_told() {
    bounded(async {
        let place = Place::new();
        let this = std::env::current_exe().expect("this binary");
        let (set, this) = (format!("{HELPER}=1"), this.to_str().expect("text"));
        let args = [&set, this, "--exact", "group::helper_leaves_its_group"];
        let (_, status) = crate::support::run(&place, &place.command("env", &args)).await;
        assert_eq!(status.end, CommandEnd::Exited { code: 0 });
    })
    .await;
}
