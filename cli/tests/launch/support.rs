//! What the tests have in common: a temporary folder, commands that wait at a gate, and ways to
//! wait for processes that are bounded and never sleep.

use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghostlight_cli::launch::{
    self, LaunchDir, Offsets, OutputFollower, OutputWatcher, ShimHandle, SpawnError, Spec, Status,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

/// How long a test may take at most, on a machine with much else to do.
const BOUND: Duration = Duration::from_secs(60);

/// Fails the test if it takes too long.
pub(crate) async fn bounded<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, test).await.expect("in time")
}

pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place { folder: tempfile::tempdir().expect("temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new launch folder.
    pub(crate) fn launch(&self, name: &str) -> LaunchDir {
        let dir = LaunchDir::plan(&self.path(name)).expect("plan");
        dir.create().expect("create");
        dir
    }

    /// A launch of a shell script, whose `$1`, `$2` … are `args`.
    pub(crate) fn script(&self, script: &str, args: &[&Path]) -> Spec {
        let mut spec = self.command("sh", &["-c", script, "sh"]);
        spec.args.extend(args.iter().map(|arg| arg.as_os_str().to_owned()));
        spec
    }

    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Spec {
        Spec {
            shim: env!("CARGO_BIN_EXE_ghostlight").into(),
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            cwd: self.folder.path().to_owned(),
            run_id: "run-1".to_owned(),
            attempt: 1,
            sync: false,
            open_files: None,
        }
    }

    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("fifo");
        // Both ends: so opening never blocks, here or in the script, and what was written waits
        // for whoever reads it.
        let ends = OpenOptions::new().read(true).write(true).open(&path).expect("gate");
        Gate { path, ends }
    }
}

/// A pipe with a name: a script waits at it with `read x < "$1"`.
pub(crate) struct Gate {
    pub(crate) path: PathBuf,
    ends: File,
}

impl Gate {
    /// Lets a script pass once, now or when it comes.
    pub(crate) fn open(&self) {
        (&self.ends).write_all(b"go\n").expect("open the gate");
    }
}

pub(crate) async fn spawn(dir: &LaunchDir, spec: &Spec) -> Result<ShimHandle, SpawnError> {
    let (dir, spec) = (dir.clone(), spec.clone());
    blocking(move || launch::spawn(&dir, &spec)).await
}

/// What a launch wrote, byte for byte.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Output {
    pub(crate) fn text(&self) -> (&str, &str) {
        (
            std::str::from_utf8(&self.stdout).expect("text"),
            std::str::from_utf8(&self.stderr).expect("text"),
        )
    }

    pub(crate) fn push(&mut self, line: &ghostlight_cli::lines::OutputLine) {
        use ghostlight_cli::lines::Stream;

        match line.chunk.stream {
            Stream::Stdout => self.stdout.extend_from_slice(&line.chunk.bytes),
            Stream::Stderr => self.stderr.extend_from_slice(&line.chunk.bytes),
        }
    }
}

/// Follows a launch to its end.
pub(crate) async fn finish(dir: &LaunchDir) -> (Output, Status) {
    let mut follower =
        OutputFollower::open(dir, Offsets::default(), &OutputWatcher::new()).expect("follow");
    let mut output = Output::default();
    while let Some(line) = follower.next().await.expect("follow") {
        output.push(&line);
    }
    (output, follower.status().expect("status").clone())
}

/// Spawns, follows to the end, and waits until the shim is gone.
pub(crate) async fn run(place: &Place, spec: &Spec) -> (Output, Status) {
    let dir = place.launch("launch");
    let shim = spawn(&dir, spec).await.expect("spawn");
    let seen = finish(&dir).await;
    shim.ended().await.expect("end");
    assert_eq!(fs::read(dir.path().join("shim.log")).expect("log"), b"", "the shim had no trouble");
    seen
}

/// A process that cannot be mistaken for another one.
pub(crate) struct Process {
    fd: OwnedFd,
}

impl Process {
    /// Takes a process that is known to be alive.
    pub(crate) fn of(pid: i32) -> Self {
        let pid = Pid::from_raw(pid).expect("pid");
        Process { fd: pidfd_open(pid, PidfdFlags::empty()).expect("alive") }
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.fd, signal).expect("signal");
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.poll(Duration::ZERO)
    }

    /// Waits until the process has ended.
    pub(crate) async fn gone(self) {
        let gone = blocking(move || !self.poll(BOUND)).await;
        assert!(gone, "the process is still there");
    }

    fn poll(&self, time: Duration) -> bool {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)).expect("poll") == 0
    }
}

/// Reads lines of the output until there are `count`, and returns them as numbers.
pub(crate) async fn numbers(follower: &mut OutputFollower, count: usize) -> Vec<i32> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let line = follower.next().await.expect("follow").expect("more output");
        let text = String::from_utf8(line.chunk.bytes).expect("text");
        numbers.push(text.trim().parse().expect("a number"));
    }
    numbers
}

pub(crate) fn follow(dir: &LaunchDir) -> OutputFollower {
    OutputFollower::open(dir, Offsets::default(), &OutputWatcher::new()).expect("follow")
}
