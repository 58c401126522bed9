//! The process that is ended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use ghostlight_storage::{Committer, CommitterOptions, Durability, Error, SledStore};

use crate::workload;

const FOLDER: &str = "GHOSTLIGHT_CRASH_FOLDER";
const WRITERS: &str = "GHOSTLIGHT_CRASH_WRITERS";
const DURABILITY: &str = "GHOSTLIGHT_CRASH_DURABILITY";

/// Not a test of its own: what the parent starts as the child.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let writers: u8 = std::env::var(WRITERS).unwrap().parse().unwrap();
    let durability = match std::env::var(DURABILITY).unwrap().as_str() {
        "PowerLoss" => Durability::PowerLoss,
        _ => Durability::ProcessCrash,
    };
    let store = SledStore::open(PathBuf::from(folder), durability).unwrap();
    say(format_args!("opened"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let (committer, handle) = Committer::start(store, CommitterOptions::default());
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let committer = committer.clone();
                tokio::spawn(workload::write(committer, writer, |writer, n| {
                    say(format_args!("{writer} {n}"));
                }))
            })
            .collect();
        // They write until the store fails.
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(task.await.unwrap());
        }
        ends.push(handle.shutdown().await);
        for end in ends {
            let Err(Error::Poisoned { why }) = &end else { panic!("{end:?}") };
            assert!(why.to_lowercase().contains("no space"), "{why}");
        }
        say(format_args!("failed"));
    });
}

/// One line in one write, so that the parent never reads half of it.
fn say(line: std::fmt::Arguments<'_>) {
    let line = format!("#{line}\n");
    // The parent may have stopped to listen.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// What the child tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Opened,
    /// This writer's batch of this number is durable.
    Acknowledged(u8, u64),
    /// The store has failed, every writer was told, and the process ends in order.
    Failed,
}

/// The child as the parent sees it; killed when it is dropped.
pub(crate) struct Writer {
    pub(crate) process: Child,
    pub(crate) lines: Receiver<Line>,
}

impl Writer {
    pub(crate) fn start(folder: &Path, writers: u8, durability: Durability) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .env(WRITERS, writers.to_string())
            .env(DURABILITY, format!("{durability:?}"))
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        // Large enough that the child hardly ever waits for the parent.
        let (sender, lines) = sync_channel(1 << 20);
        std::thread::spawn(move || {
            for line in output.lines() {
                // The test harness says things of its own, and the first line follows them.
                let line = line.unwrap();
                let Some((_, line)) = line.split_once('#') else { continue };
                let line = match line.split_once(' ') {
                    Some((writer, n)) => {
                        Line::Acknowledged(writer.parse().unwrap(), n.parse().unwrap())
                    }
                    None if line == "failed" => Line::Failed,
                    None => Line::Opened,
                };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// Ends it at once; whatever it has said and was not received yet.
    pub(crate) fn kill(mut self) -> Vec<Line> {
        self.process.kill().unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the child ended by itself: {status}");
        // Until the end of the pipe.
        self.lines.iter().collect()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
