//! Who may have a launch: one shim, or nobody.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use ghostlight_cli::launch::{
    self, LaunchDir, Recovered, ShimHandle, SpawnError, give_up, recover,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tokio::task::JoinHandle;

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

/// A shim that has taken its launch's lock and goes no further: a pipe in the place of its output
/// has no reader.
struct Stalled {
    shim: JoinHandle<Result<ShimHandle, SpawnError>>,
    pipe: File,
}

impl Stalled {
    async fn begin(place: &Place, dir: &LaunchDir) -> Self {
        let path = dir.path().join("stdout");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("fifo");
        let as_path = i32::try_from(OFlags::PATH.bits()).expect("flag");
        let pipe = File::options().read(true).custom_flags(as_path).open(&path).expect("fifo");
        let spec = place.script(r#"echo ran >> "$1""#, &[&place.path("ran")]);
        let lock = dir.path().join("lock");
        let dir = dir.clone();
        let shim = tokio::task::spawn_blocking(move || launch::spawn(&dir, &spec));
        while !lock.exists() {
            tokio::task::yield_now().await;
        }
        Self { shim, pipe }
    }

    /// Lets the shim go on, wherever its folder is by now.
    fn go_on(&self) -> File {
        let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        let no_wait = i32::try_from(OFlags::NONBLOCK.bits()).expect("flag");
        File::options().read(true).custom_flags(no_wait).open(path).expect("a reader")
    }
}

#[tokio::test]
async fn a_shim_whose_folder_is_taken_away_executes_nothing() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let stalled = Stalled::begin(&place, &dir).await;
        fs::rename(dir.path(), place.path("away")).expect("rename");
        let _reader = stalled.go_on();
        let error = stalled.shim.await.expect("no panic").expect_err("its folder is away");
        assert!(matches!(error, SpawnError::Lost), "{error}");
        assert!(!place.path("ran").exists());
    })
    .await;
}

#[tokio::test]
async fn a_shim_that_comes_during_the_removal_executes_nothing() {
    bounded(async {
        for round in 0..3 {
            let place = Place::new();
            let dir = place.launch("launch");
            // They take their time to be deleted.
            for file in 0..10_000 {
                fs::write(dir.path().join(format!("{round}-{file}")), "").expect("file");
            }
            let stalled = Stalled::begin(&place, &dir).await;
            assert!(give_up(&dir).expect("give up"));
            let (removed, claim) = (dir.clone(), dir.path().join("claim"));
            let removal = tokio::task::spawn_blocking(move || removed.remove());
            while claim.exists() {
                tokio::task::yield_now().await;
            }
            let _reader = stalled.go_on();
            stalled.shim.await.expect("no panic").expect_err("the launch was given up");
            // What a late shim makes may be in the way once: then it is tried again.
            if removal.await.expect("no panic").is_err() {
                launch::LaunchDir::known(place.path("removed.launch"), "")
                    .remove()
                    .expect("remove");
            }
            assert!(!place.path("ran").exists());
            assert_eq!(fs::read_dir(place.path("")).expect("folder").count(), 0);
        }
    })
    .await;
}
