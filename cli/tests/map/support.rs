//! A folder of its own for each test, the program as a real process, and gates that commands wait at.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with its data folder in this place, and this place as its working directory.
    pub(crate) fn ghostlight<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ghostlight"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run<I, S>(&self, args: I) -> Ended
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let output = self.ghostlight(args).output().unwrap();
        Ended {
            status: output.status,
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts the program; its output is read by the test.
    pub(crate) fn start<I, S>(&self, args: I) -> Running
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.spawn(&mut self.ghostlight(args))
    }

    pub(crate) fn spawn(&self, command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running { child, stdout: Some(stdout), stderr, noted: String::new() }
    }

    /// A gate at which commands wait: `sh -c 'dd bs=1 count=1 < gate'`.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // Open at both ends, so that nobody waits for the other side to open.
        Gate { file: OpenOptions::new().read(true).write(true).open(path).unwrap() }
    }

    /// The lines of a file that commands append to.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// How many files and folders there are at a path in the data folder, itself and all below it.
    pub(crate) fn count_below(&self, name: &str) -> usize {
        let (mut count, mut paths) = (0, vec![self.path(".ghostlight").join(name)]);
        while let Some(path) = paths.pop().filter(|path| path.exists()) {
            count += 1;
            for entry in std::fs::read_dir(path).into_iter().flatten() {
                paths.push(entry.unwrap().path());
            }
        }
        count
    }

    /// The launch folders that are there, and what is in them.
    pub(crate) fn launch_files(&self) -> Vec<PathBuf> {
        let entries = |folder: PathBuf| {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path())
        };
        let mut launches: Vec<PathBuf> =
            entries(self.path(".ghostlight/launches")).flat_map(entries).collect();
        let files: Vec<PathBuf> = launches.iter().cloned().flat_map(entries).collect();
        launches.extend(files);
        launches
    }
}

/// Says that it has begun, waits at the gate, and says that it ends.
pub(crate) const WAIT: &str =
    "echo {} >> log; echo begin {}; dd bs=1 count=1 < gate > /dev/null 2>&1; echo end {}";

pub(crate) fn both(words: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> =
        words.iter().flat_map(|w| [format!("begin {w}"), format!("end {w}")]).collect();
    lines.sort();
    lines
}

pub(crate) fn begins(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("begin {word}")).collect()
}

/// The id of the only run.
pub(crate) fn only_run(place: &Place) -> String {
    let listed = place.run(["runs", "--json"]);
    assert_eq!(listed.code(), Some(0), "{}", listed.stderr);
    let line = String::from_utf8(listed.stdout).unwrap();
    let value: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
    value["runId"].as_str().unwrap().to_owned()
}

/// How often the command of a run had to be started again, by both forms of `show`.
pub(crate) fn restarts(place: &Place, run_id: &str) -> u64 {
    let json = place.run(["show", "--json", run_id]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let restarts = value["restarts"].as_u64().unwrap();
    let shown = String::from_utf8(place.run(["show", run_id]).stdout).unwrap();
    assert!(shown.contains(&format!("restarts           {restarts}\n")), "{shown}");
    assert!(!shown.contains("attempt") && !shown.contains("milestones"), "{shown}");
    restarts
}

pub(crate) struct Gate {
    file: File,
}

impl Gate {
    pub(crate) fn open(&mut self, count: usize) {
        self.file.write_all(&vec![b'x'; count]).unwrap();
    }

    /// Waits for a line from the other side.
    pub(crate) fn read_one(&mut self) {
        let mut line = [0; 2];
        self.file.read_exact(&mut line).unwrap();
    }
}

pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn sorted(&self) -> Vec<String> {
        sorted(&String::from_utf8_lossy(&self.stdout))
    }
}

pub(crate) fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

pub(crate) struct Running {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: BufReader<ChildStderr>,
    noted: String,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, where that is a pipe.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Reads so many lines of the program's output.
    pub(crate) fn read_lines(&mut self, count: usize) -> Vec<String> {
        let stdout = self.stdout.as_mut().unwrap();
        let mut lines = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the output ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        lines.sort();
        lines
    }

    /// Reads a line of what the program says to its user.
    pub(crate) fn read_note(&mut self) {
        assert!(self.stderr.read_line(&mut self.noted).unwrap() > 0);
    }

    /// Reads what the program says to its user up to a line with this text.
    pub(crate) fn read_note_with(&mut self, text: &str) {
        let from = self.noted.len();
        while !self.noted[from..].contains(text) {
            assert!(self.stderr.read_line(&mut self.noted).unwrap() > 0, "{}", self.noted);
        }
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        let is_ignored = ignored & (1 << (signal.as_raw() - 1)) != 0;
        assert!(
            !is_ignored,
            "run the tests where {signal:?} is not ignored: not in the background"
        );
        self.signal_ignored(signal);
    }

    pub(crate) fn signal_ignored(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills the program alone, and waits until it is gone.
    pub(crate) fn sigkill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end without reading the output; returns the exit status.
    pub(crate) fn wait_unread(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let mut stdout = Vec::new();
        if let Some(out) = &mut self.stdout {
            out.read_to_end(&mut stdout).unwrap();
        }
        let mut stderr = std::mem::take(&mut self.noted);
        self.stderr.read_to_string(&mut stderr).unwrap();
        Ended { status: self.child.wait().unwrap(), stdout, stderr }
    }
}
