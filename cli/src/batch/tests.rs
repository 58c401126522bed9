use ghostlight::testing;

use super::*;

fn command(data: &std::path::Path) -> Command {
    Command {
        data: data.to_owned(),
        sync: false,
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
    let tried = command.launches.begun();
    assert!((60..80).contains(&tried), "tried {tried} times in an hour");
}
