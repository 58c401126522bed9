//! What a process costs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

const EACH: Duration = Duration::from_secs(10);

/// The figures of one process and its folder.
pub(crate) struct Figures {
    folder: PathBuf,
    began: Instant,
    printed: Instant,
}

impl Figures {
    pub(crate) fn begin(folder: &Path) -> Self {
        let now = Instant::now();
        Self { folder: folder.to_owned(), began: now, printed: now }
    }

    pub(crate) fn print_now_and_then(&mut self, ended: u64) {
        if self.printed.elapsed() >= EACH {
            self.print(ended);
        }
    }

    pub(crate) fn print(&mut self, ended: u64) {
        self.printed = Instant::now();
        println!(
            "{:6.0} s, {ended} ended, {} KiB of memory, {} KiB on disk",
            self.began.elapsed().as_secs_f64(),
            anonymous_kib(),
            disk_kib(&self.folder),
        );
    }
}

/// The resident memory that is no file's.
fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn disk_kib(path: &Path) -> u64 {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        // Snapshots come and go.
        Err(_) => return 0,
    };
    if !metadata.is_dir() {
        return metadata.len() >> 10;
    }
    std::fs::read_dir(path).unwrap().map(|entry| disk_kib(&entry.unwrap().path())).sum()
}
