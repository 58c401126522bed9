//! Who may have a launch: one shim, or nobody.

use std::fs;

use ghostlight_cli::launch::{self, Recovered, SpawnError, give_up, recover};

use crate::support::{Place, blocking, bounded, finish, spawn};

#[tokio::test]
async fn a_shim_that_comes_late_does_not_run_the_command() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        assert!(give_up(&dir).expect("give up"));
        assert!(give_up(&dir).expect("give up again"));
        let spec = place.script(r#"touch "$1""#, &[&place.path("ran")]);
        let error = spawn(&dir, &spec).await.expect_err("the launch is void");
        assert!(matches!(error, SpawnError::Lost), "{error}");
        assert!(!place.path("ran").exists());
        assert!(matches!(recover(&dir).expect("recover"), Recovered::NeverRan));
    })
    .await;
}

#[tokio::test]
async fn giving_up_comes_late_once_the_command_runs() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let shim = spawn(&dir, &place.command("true", &[])).await.expect("spawn");
        assert!(!give_up(&dir).expect("give up"));
        shim.ended().await.expect("end");
        assert!(!give_up(&dir).expect("give up"));
        assert!(matches!(recover(&dir).expect("recover"), Recovered::Ended(_)));
    })
    .await;
}

#[tokio::test]
async fn shim_and_void_never_both_win() {
    bounded(async {
        let (mut run, mut void) = (0, 0);
        for round in 0..60 {
            let place = Place::new();
            let dir = place.launch("launch");
            let spec = place.script(r#"echo ran >> "$1""#, &[&place.path("ran")]);
            let shim = {
                let (dir, spec) = (dir.clone(), spec.clone());
                tokio::task::spawn_blocking(move || launch::spawn(&dir, &spec))
            };
            let given_up = {
                let dir = dir.clone();
                // Spread over the time that a shim takes to its claim.
                blocking(move || {
                    (0..round * 40).for_each(|_| drop(fs::metadata("/")));
                    give_up(&dir)
                })
                .await
                .expect("give up")
            };
            match shim.await.expect("no panic") {
                Ok(shim) => {
                    assert!(!given_up);
                    shim.ended().await.expect("end");
                    run += 1;
                }
                Err(SpawnError::Lost) => {
                    assert!(given_up);
                    void += 1;
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(place.path("ran").exists(), !given_up);
        }
        assert_eq!(run + void, 60);
        assert!(void > 0, "some launch was given up");
    })
    .await;
}

#[tokio::test]
async fn of_two_shims_one_wins() {
    bounded(async {
        for round in 0..20 {
            let place = Place::new();
            let dir = place.launch("launch");
            let spec = place.script(r#"echo ran >> "$1""#, &[&place.path("ran")]);
            let (first, second) = tokio::join!(spawn(&dir, &spec), spawn(&dir, &spec));
            let (won, lost) = match (first, second) {
                (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
                other => panic!("round {round}: {other:?}"),
            };
            assert!(matches!(lost, SpawnError::Lost), "{lost}");
            finish(&dir).await;
            won.ended().await.expect("end");
            assert_eq!(fs::read(place.path("ran")).expect("marker"), b"ran\n");

            let late = spawn(&dir, &spec).await.expect_err("the launch is over");
            assert!(matches!(late, SpawnError::Lost), "{late}");
            assert_eq!(fs::read(place.path("ran")).expect("marker"), b"ran\n");
            assert!(matches!(recover(&dir).expect("recover"), Recovered::Ended(_)));
        }
    })
    .await;
}
