use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;

use ghostlight::testing;

use super::*;

fn command(data: &std::path::Path) -> Command {
    Command {
        data: data.to_owned(),
        sync: false,
        open_files: None,
        attempts_max: 3,
        watcher: OutputWatcher::polling(),
        launches: Arc::default(),
    }
}

fn input(cwd: &std::path::Path) -> CommandInput {
    CommandInput {
        command: vec![Text::Text("true".to_owned())],
        input: Text::Text("x".to_owned()),
        cwd: Text::from(cwd.as_os_str()),
        refused: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_cannot_be_watched_is_tried_for_ever() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("launches"), "in the way").unwrap();
    let command = command(data.path());
    let run = testing::run(&command, input(data.path()));
    let ended = tokio::time::timeout(Duration::from_secs(24 * 3600), run).await;
    assert!(ended.is_err(), "our own trouble is no failure of the command: {ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shim_that_cannot_be_started_is_tried_for_ever_and_not_too_often() {
    let data = tempfile::tempdir().unwrap();
    let command = command(data.path());
    // The program that would be the shim is this test, which is none: it ends without a word.
    let run = testing::run(&command, input(data.path()));
    let ended = tokio::time::timeout(Duration::from_secs(3600), run).await;
    assert!(ended.is_err(), "the machine's trouble is no failure of the command: {ended:?}");
    let tried = command.launches.tried().load(Relaxed);
    assert!((60..80).contains(&tried), "tried {tried} times in an hour");
}

/// Executes a launch that is there already.
struct Launched {
    command: Command,
    dir: LaunchDir,
}

impl Agent for Launched {
    const TYPE: &'static str = "Launched";
}

impl Child for Launched {
    type Input = CommandInput;
    type Output = LaunchEnd;

    async fn run(&self, cx: &RunContext, input: CommandInput) -> Result<LaunchEnd, RunError> {
        self.command.execute(cx, &self.dir, 0, 1, &input).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_what_is_not_watched_just_then() {
    let data = tempfile::tempdir().unwrap();
    let dir = LaunchDir::plan(&data.path().join("launch")).unwrap();
    dir.create().unwrap();
    std::fs::write(dir.path().join("claim"), "nonsense").unwrap();
    let launched = Launched { command: command(data.path()), dir };
    let launches = Arc::clone(&launched.command.launches);
    let mut run = pin!(testing::run(&launched, input(data.path())));
    // Between two tries that are a minute apart.
    let ended = tokio::time::timeout(Duration::from_secs(570), run.as_mut()).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(launches.count(), 1, "a stop finds it");
    let tried = launches.tried().load(Relaxed);
    tokio::select! {
        ended = run.as_mut() => panic!("{ended:?}"),
        _ = launches.stop_all().join_all() => {}
    }
    assert!(launches.tried().load(Relaxed) > tried, "it notices at once that it is stopped");
}

#[tokio::test(start_paused = true)]
async fn a_launch_of_another_boot_has_vanished_even_without_its_folder() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("launch");
    for stopping in [false, true] {
        let dir = LaunchDir::known(&path, "00000000-0000-0000-0000-000000000000");
        let launched = Launched { command: command(data.path()), dir };
        if stopping {
            launched.command.launches.stop_all().join_all().await;
        }
        let ended = testing::run(&launched, input(data.path())).await;
        assert!(matches!(ended, Ok(LaunchEnd::Vanished)), "it may have run: {ended:?}");
        assert!(!path.exists(), "it is not begun in this boot");
    }
}

#[tokio::test(start_paused = true)]
async fn a_data_folder_that_is_gone_is_waited_for_and_not_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("moved/data");
    let command = command(&data);
    let run = testing::run(&command, input(place.path()));
    let ended = tokio::time::timeout(Duration::from_secs(3600), run).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(!place.path().join("moved").exists());
}
