//! Recovery at the edge: what is read from real folders.

use std::fs;

use ghostlight_cli::launch::{
    Cancelled, Error, LaunchDir, Recovered, ShimHandle, cancel, conclude, recover,
};

use crate::support::{Gate, Place, bounded, follow, spawn};

/// A launch whose command waits at a gate.
async fn waiting(place: &Place) -> (LaunchDir, ShimHandle, Gate) {
    let gate = place.gate("gate");
    let dir = place.launch("launch");
    let spec = place.script(r#"echo up; read x < "$1""#, &[&gate.path]);
    let shim = spawn(&dir, &spec).await.expect("spawn");
    follow(&dir).next().await.expect("follow").expect("the command runs");
    (dir, shim, gate)
}

/// Changes a word of the claim, as another machine or container would have written it.
fn change_claim(dir: &LaunchDir, from: &str, to: &str) {
    let path = dir.path().join("claim");
    let claim = fs::read_to_string(&path).expect("claim");
    assert!(claim.contains(from), "{claim}");
    fs::remove_file(&path).expect("claim");
    fs::write(&path, claim.replace(from, to)).expect("claim");
}

#[tokio::test]
async fn a_launch_nobody_claimed_never_ran() {
    let place = Place::new();
    let dir = place.launch("launch");
    assert!(matches!(recover(&dir).expect("recover"), Recovered::NeverRan));
    assert!(matches!(recover(&dir).expect("recover"), Recovered::NeverRan));
    // One that was planned, but whose folder was not made before the crash.
    let dir = LaunchDir::plan(&place.path("planned")).expect("plan");
    assert!(matches!(recover(&dir).expect("recover"), Recovered::NeverRan));
}

#[tokio::test]
async fn a_command_whose_claim_was_removed_is_waited_for() {
    bounded(async {
        let place = Place::new();
        let (dir, shim, gate) = waiting(&place).await;
        fs::remove_file(dir.path().join("claim")).expect("claim");
        for _ in 0..2 {
            let recovered = recover(&dir);
            assert!(matches!(recovered, Err(Error::Kept { .. })), "{recovered:?}");
        }
        gate.open();
        shim.ended().await.expect("end");
        assert!(matches!(recover(&dir).expect("recover"), Recovered::Ended(_)));
    })
    .await;
}

#[tokio::test]
async fn another_boot_means_vanished_unless_there_is_a_status() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let old = LaunchDir::known(dir.path(), "00000000-0000-0000-0000-000000000000");
        assert!(matches!(recover(&old).expect("recover"), Recovered::Vanished(None)));
        assert!(!dir.path().join("claim").exists(), "nothing is claimed for a boot that is over");
        let mut follower = follow(&old);
        follower.stop_at_end();
        assert_eq!(follower.next().await.expect("follow"), None, "and nothing was written");

        let shim = spawn(&dir, &place.command("true", &[])).await.expect("spawn");
        shim.ended().await.expect("end");
        assert!(matches!(recover(&old).expect("recover"), Recovered::Ended(_)));

        // What a power cut may leave of a status that was not synced.
        fs::write(dir.path().join("status"), "").expect("status");
        assert!(matches!(recover(&old).expect("recover"), Recovered::Vanished(None)));
        assert!(matches!(recover(&dir), Err(Error::Corrupt { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_claim_of_another_boot_is_vanished_even_with_the_lock_held() {
    bounded(async {
        let place = Place::new();
        let (dir, shim, gate) = waiting(&place).await;
        change_claim(&dir, dir.boot_id(), "another-boot");
        assert!(matches!(recover(&dir).expect("recover"), Recovered::Vanished(None)));
        gate.open();
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn a_shim_in_another_namespace_is_waited_for_and_never_signalled() {
    bounded(async {
        let place = Place::new();
        let (dir, shim, gate) = waiting(&place).await;
        let namespace = format!(r#""pidNamespace":{}"#, shim.claim().pid_namespace);
        change_claim(&dir, &namespace, r#""pidNamespace":1"#);
        let Recovered::Alive(far) = recover(&dir).expect("recover") else {
            panic!("the lock is held");
        };
        assert!(!far.in_reach());
        let cancelled = cancel(&dir, std::time::Duration::ZERO).await.expect("cancel");
        assert!(matches!(cancelled, Cancelled::OutOfReach));
        let (end, ()) = tokio::join!(conclude(&dir, far), async { gate.open() });
        assert!(matches!(end, Ok(launch_end) if ended_well(&launch_end)));
        shim.ended().await.expect("end");
    })
    .await;
}

/// The lock says that the launch lives, but the process of the claim's number is another one.
#[tokio::test]
async fn a_process_with_another_start_time_is_not_the_shim() {
    bounded(async {
        let place = Place::new();
        let (dir, shim, gate) = waiting(&place).await;
        let start = format!(r#""startTime":{}"#, shim.claim().start_time);
        change_claim(&dir, &start, r#""startTime":1"#);
        let Recovered::Alive(unknown) = recover(&dir).expect("recover") else {
            panic!("the lock is held");
        };
        assert!(!unknown.in_reach());
        tokio::time::pause();
        let error =
            cancel(&dir, std::time::Duration::ZERO).await.expect_err("nothing is signalled");
        assert!(matches!(error, Error::Unreached { .. }), "{error}");
        tokio::time::resume();
        gate.open();
        let end = conclude(&dir, unknown).await.expect("conclude");
        assert!(ended_well(&end));
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn corrupt_files_decide_nothing() {
    let place = Place::new();
    let dir = place.launch("launch");
    for claim in ["", "shim", r#"{"version":1,"claim":{"shim":{"pid":1}}}"#] {
        fs::write(dir.path().join("claim"), claim).expect("claim");
        assert!(matches!(recover(&dir), Err(Error::Corrupt { .. })), "{claim}");
    }
    fs::write(dir.path().join("claim"), r#"{"version":9}"#).expect("claim");
    let error = recover(&dir).expect_err("a newer version");
    assert!(matches!(error, Error::Version { version: 9, .. }));
    assert!(error.to_string().contains("claim has version 9"), "{error}");
    assert!(!error.is_retryable());
}

/// A copy of the data folder, made while commands live, is of other runs.
#[tokio::test]
async fn a_copy_leaves_the_processes_of_the_original_alone() {
    bounded(async {
        let place = Place::new();
        let (dir, shim, gate) = waiting(&place).await;
        let copied = place.path("copy");
        let copy = std::process::Command::new("cp").arg("-a").args([dir.path(), &copied]).status();
        assert!(copy.expect("cp").success());
        let copy = LaunchDir::known(copied, dir.boot_id());
        let recovered = recover(&copy).expect("recover");
        assert!(matches!(recovered, Recovered::Vanished(None)), "{recovered:?}");
        let cancelled = cancel(&copy, std::time::Duration::ZERO).await.expect("cancel");
        assert!(matches!(cancelled, Cancelled::Vanished), "{cancelled:?}");
        copy.remove().expect("remove");

        // Another path of the same folder is no copy.
        let moved = LaunchDir::known(place.path("moved"), dir.boot_id());
        fs::rename(dir.path(), moved.path()).expect("move");
        let Recovered::Alive(same) = recover(&moved).expect("recover") else {
            panic!("the command lives");
        };
        assert!(same.in_reach());
        gate.open();
        assert!(ended_well(&conclude(&moved, same).await.expect("conclude")));
        shim.ended().await.expect("end");
    })
    .await;
}

fn ended_well(end: &ghostlight_cli::launch::Conclusion) -> bool {
    use ghostlight_cli::launch::Conclusion;

    matches!(end, Conclusion::Ended(status) if status.end.is_success())
}

#[tokio::test]
async fn a_folder_is_not_removed_while_its_command_lives() {
    bounded(async {
        let place = Place::new();
        let (dir, shim, gate) = waiting(&place).await;
        // Whatever else the claim says.
        for (from, to) in [
            ("claim", "claim"),
            (dir.boot_id(), "another-boot"),
            (&format!(r#""pidNamespace":{}"#, shim.claim().pid_namespace), r#""pidNamespace":1"#),
        ] {
            change_claim(&dir, from, to);
            assert!(matches!(dir.remove(), Err(Error::Kept { .. })), "{to}");
            assert!(!dir.is_over().expect("look"), "{to}");
        }
        gate.open();
        shim.ended().await.expect("end");
        assert!(dir.is_over().expect("look"));
        dir.remove().expect("remove");
        assert_eq!(fs::read_dir(place.path("")).expect("folder").count(), 1, "the gate");
    })
    .await;
}
