//! SIGKILL of the program, and of the shim.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ghostlight_cli::launch::{
    self, CommandEnd, Conclusion, LaunchDir, Recovered, conclude, kill_leftover, recover,
};

use crate::support::{Output, Place, Process, blocking, bounded, follow, numbers, spawn};

const HELPER_DIR: &str = "GHOSTLIGHT_TEST_LAUNCH_DIR";
const HELPER_GATE: &str = "GHOSTLIGHT_TEST_GATE";

const TALKER: &str = r#"
    for i in 1 2 3 4 5; do echo "out $i"; echo "err $i" >&2; read x < "$1"; done
    printf 'no newline'
    exit 6
"#;

/// Not a test but the program that is killed: this test binary, started by the test below.
#[test]
fn helper_launches_and_waits() {
    let (Some(dir), Some(gate)) = (env::var_os(HELPER_DIR), env::var_os(HELPER_GATE)) else {
        return;
    };
    let place = Place::new();
    let dir = LaunchDir::plan(&PathBuf::from(dir)).expect("plan");
    dir.create().expect("create");
    let shim = launch::spawn(&dir, &place.script(TALKER, &[&PathBuf::from(gate)])).expect("spawn");
    std::io::stderr().write_all(b"launched\n").expect("tell");
    // Until the end of the test that started this.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("wait");
    drop(shim);
}

#[tokio::test]
async fn a_killed_program_is_followed_by_one_that_gets_every_byte() {
    bounded(async {
        let place = Place::new();
        let gate = place.gate("gate");
        let mut program = Command::new(env::current_exe().expect("this binary"))
            .args(["--exact", "crash::helper_launches_and_waits", "--nocapture"])
            .env(HELPER_DIR, place.path("launch"))
            .env(HELPER_GATE, &gate.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("helper");
        let mut told = BufReader::new(program.stderr.take().expect("pipe"));
        blocking(move || {
            let mut line = String::new();
            while line != "launched\n" {
                line.clear();
                assert!(told.read_line(&mut line).expect("read") > 0, "the helper has failed");
            }
        })
        .await;
        gate.open();
        program.kill().expect("kill");
        program.wait().expect("reap");

        let dir = LaunchDir::plan(&place.path("launch")).expect("plan");
        let Recovered::Alive(shim) = recover(&dir).expect("recover") else {
            panic!("the command lives on");
        };
        assert!(shim.in_reach());
        let mut follower = follow(&dir);
        let mut output = Output::default();
        while let Some(line) = follower.next().await.expect("follow") {
            output.push(&line);
            // It has come to the next gate, all but the first, which is open.
            if line.chunk.bytes.starts_with(b"err") && line.chunk.bytes != b"err 1\n" {
                gate.open();
            }
        }
        let lines = |name: &str| (1..=5).map(|i| format!("{name} {i}\n")).collect::<String>();
        assert_eq!(output.text(), (&*(lines("out") + "no newline"), &*lines("err")));
        let Conclusion::Ended(status) = conclude(&dir, shim).await.expect("conclude") else {
            panic!("the command has ended");
        };
        assert_eq!(status.end, CommandEnd::Exited { code: 6 });
    })
    .await;
}

#[tokio::test]
async fn a_killed_shim_takes_its_command_along_and_the_rest_is_killed_later() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let script = r#"sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & wait"#;
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let mut follower = follow(&dir);
        let pids = numbers(&mut follower, 2).await;
        let [in_group, escaped] = [Process::of(pids[0]), Process::of(pids[1])];
        let command = Process::of(shim.claim().process_group);

        Process::of(shim.claim().pid).kill();
        command.gone().await;
        let Conclusion::Vanished(claim) = conclude(&dir, shim).await.expect("conclude") else {
            panic!("no status was written");
        };
        follower.stop_at_end();
        assert_eq!(follower.next().await.expect("follow"), None);

        assert!(in_group.is_alive());
        let killed = {
            let claim = claim.clone();
            blocking(move || kill_leftover(&claim)).await.expect("kill")
        };
        assert_eq!(killed, 1);
        assert!(!in_group.is_alive(), "dead before the call returned");
        assert!(escaped.is_alive(), "what left the session is left alone");
        escaped.kill();
        assert_eq!(blocking(move || kill_leftover(&claim)).await.expect("kill"), 0);
        assert!(matches!(recover(&dir).expect("recover"), Recovered::Vanished(Some(_))));
    })
    .await;
}

/// A session and group of the claim's numbers that are not the claim's: their leader is another
/// process than the shim.
#[tokio::test]
async fn processes_that_only_have_the_right_numbers_are_left_alone() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let shim = spawn(&dir, &place.command("sleep", &["1000"])).await.expect("spawn");
        let command = Process::of(shim.claim().process_group);
        let right = shim.claim().clone();

        for wrong in [
            launch::ShimClaim { start_time: right.start_time - 1, ..right.clone() },
            launch::ShimClaim { start_time: right.start_time + 1, ..right.clone() },
            launch::ShimClaim { pid: right.pid + 100_000, ..right.clone() },
            launch::ShimClaim { boot_id: "another".to_owned(), ..right.clone() },
            launch::ShimClaim { pid_namespace: 1, ..right.clone() },
        ] {
            let claim = wrong.clone();
            assert_eq!(blocking(move || kill_leftover(&claim)).await.expect("look"), 0);
            assert!(command.is_alive(), "{wrong:?}");
        }
        assert_eq!(blocking(move || kill_leftover(&right)).await.expect("kill"), 1);
        command.gone().await;
        shim.ended().await.expect("end");
    })
    .await;
}
