//! Cancelling: TERM, then KILL, to the right processes only.

use std::time::Duration;

use ghostlight_cli::launch::{Cancelled, CommandEnd, Error, LaunchDir, cancel};
use rustix::process::Signal;

use crate::support::{Place, Process, bounded, finish, follow, numbers, spawn};

const LONG: Duration = Duration::from_secs(50);

async fn cancelled(dir: &LaunchDir, grace: Duration) -> CommandEnd {
    match cancel(dir, grace).await.expect("cancel") {
        Cancelled::Ended(status) => status.end,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_command_may_end_by_itself_in_the_grace_time() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        // The whole group gets the signal, so that a shell's child does not hold it up.
        let script = "trap 'echo 0; exit 8' TERM; sleep 1000 & echo $!; wait; wait";
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let child = Process::of(numbers(&mut follow(&dir), 1).await[0]);
        assert_eq!(cancelled(&dir, LONG).await, CommandEnd::Exited { code: 8 });
        child.gone().await;
        let (output, _) = finish(&dir).await;
        assert!(output.text().0.ends_with("\n0\n"), "what it still wrote is kept");
        // Once more: it stays ended.
        assert_eq!(cancelled(&dir, LONG).await, CommandEnd::Exited { code: 8 });
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_does_not_listen_is_killed() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let script = "trap '' TERM; sleep 1000 & echo $!; wait; wait";
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let child = Process::of(numbers(&mut follow(&dir), 1).await[0]);
        let end = cancelled(&dir, Duration::from_millis(50)).await;
        assert_eq!(end, CommandEnd::Signaled { signal: 9, core_dumped: false });
        child.gone().await;
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn without_a_grace_time_it_is_killed_at_once() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let script = "trap 'exit 8' TERM; echo 1; while :; do :; done";
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        numbers(&mut follow(&dir), 1).await;
        let end = cancelled(&dir, Duration::ZERO).await;
        assert_eq!(end, CommandEnd::Signaled { signal: 9, core_dumped: false });
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_was_never_launched_never_will_be() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let seen = cancel(&dir, LONG).await.expect("cancel");
        assert!(matches!(seen, Cancelled::NeverRan), "{seen:?}");
        assert!(spawn(&dir, &place.command("true", &[])).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn cancelling_a_vanished_launch_kills_what_is_left() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let script = "sleep 1000 & echo $!; wait";
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let left = Process::of(numbers(&mut follow(&dir), 1).await[0]);
        Process::of(shim.claim().pid).kill();
        let seen = cancel(&dir, LONG).await.expect("cancel");
        assert!(matches!(seen, Cancelled::Vanished), "{seen:?}");
        assert!(!left.is_alive());
    })
    .await;
}

/// Only the shim can tell how its command ended.
#[tokio::test]
async fn a_shim_that_is_stopped_is_not_waited_for_without_bound() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let shim =
            spawn(&dir, &place.script("echo $$; exec sleep 1000", &[])).await.expect("spawn");
        let command = Process::of(numbers(&mut follow(&dir), 1).await[0]);
        let keeper = Process::of(shim.claim().pid);
        keeper.signal(Signal::STOP);
        command.kill();
        command.gone().await;
        tokio::time::pause();
        for grace in [Duration::ZERO, LONG] {
            let error = cancel(&dir, grace).await.expect_err("the shim is there");
            assert!(
                matches!(error, Error::ShimStuck { pid } if pid == shim.claim().pid),
                "{error}"
            );
            assert!(error.is_retryable());
        }
        tokio::time::resume();
        keeper.signal(Signal::CONT);
        let end = cancelled(&dir, LONG).await;
        assert_eq!(end, CommandEnd::Signaled { signal: 9, core_dumped: false });
        shim.ended().await.expect("end");
    })
    .await;
}
