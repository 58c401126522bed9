use ghostlight::testing;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_launch_that_cannot_be_watched_is_tried_for_ever() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("launches"), "in the way").unwrap();
    let command = Command {
        data: data.path().to_owned(),
        sync: false,
        attempts_max: 3,
        watcher: OutputWatcher::polling(),
        launches: Arc::default(),
    };
    let input = CommandInput {
        command: vec![Text::Text("true".to_owned())],
        input: Text::Text("x".to_owned()),
        cwd: Text::Text("/".to_owned()),
        refused: None,
    };
    let run = testing::run(&command, input);
    let ended = tokio::time::timeout(Duration::from_secs(24 * 3600), run).await;
    assert!(ended.is_err(), "our own trouble is no failure of the command: {ended:?}");
}
