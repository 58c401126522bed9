//! What `/proc` tells about processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Error;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const PID_NAMESPACE: &str = "/proc/self/ns/pid";

/// Reads the id of the running boot: another one after every start of the machine.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn boot_id() -> Result<String, Error> {
    match fs::read_to_string(BOOT_ID) {
        Ok(id) => Ok(id.trim_end().to_owned()),
        Err(error) => Err(Error::io("read", Path::new(BOOT_ID), error)),
    }
}

/// Reads which numbering of processes this program sees.
pub(crate) fn pid_namespace() -> Result<u64, Error> {
    match fs::metadata(PID_NAMESPACE) {
        Ok(metadata) => Ok(metadata.ino()),
        Err(error) => Err(Error::io("read", Path::new(PID_NAMESPACE), error)),
    }
}

/// One process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// In clock ticks since the boot. With the pid it names a process for good.
    pub(crate) start_time: u64,
    /// Whether it has ended, and only waits to be reaped.
    pub(crate) zombie: bool,
}

impl ProcessStat {
    /// Reads one process; `None` if there is none of that number that this user may see.
    pub(crate) fn read(pid: i32) -> Result<Option<Self>, Error> {
        let path = format!("/proc/{pid}/stat");
        match fs::read(&path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            // A process that goes away between open and read gives ESRCH.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
                _ => Err(Error::io("read", Path::new(&path), error)),
            },
        }
    }

    /// Reads all processes that can be seen. One that ends meanwhile may be missing.
    pub(crate) fn all() -> Result<Vec<Self>, Error> {
        let proc = Path::new("/proc");
        let failed = |error| Error::io("read", proc, error);
        let mut processes = Vec::new();
        for entry in fs::read_dir(proc).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                processes.extend(Self::read(pid)?);
            }
        }
        Ok(processes)
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The name, in parentheses, may hold anything, parentheses and spaces included.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let text = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
        Some(ProcessStat {
            pid: leading_number(stat)?,
            // A process whose first thread has ended looks like one while others go on.
            zombie: matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

fn leading_number(bytes: &[u8]) -> Option<i32> {
    let end = bytes.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_and_state_is_read() {
        let mut stat = b"42 (a) Z (\xff) S 7 40 39 0 -1 4194560".to_vec();
        stat.extend_from_slice(b" 1 2 3 4 5 6 7 8 20 0 1 0 98765 0 0");
        let expected = ProcessStat {
            pid: 42,
            parent: 7,
            group: 40,
            session: 39,
            start_time: 98_765,
            zombie: false,
        };
        assert_eq!(ProcessStat::parse(&stat), Some(expected));
        let state = |state: &str, threads: u32| {
            let stat = format!("42 (a) {state} 7 40 39 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 9");
            ProcessStat::parse(stat.as_bytes()).map(|stat| stat.zombie)
        };
        assert_eq!(state("S", 1), Some(false));
        assert_eq!(state("Z", 1), Some(true));
        assert_eq!(state("Z", 2), Some(false), "other threads go on");
        assert_eq!(ProcessStat::parse(b"42 (a) S 7"), None);
        assert_eq!(ProcessStat::parse(b""), None);
    }

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id() as i32;
        let own = ProcessStat::read(pid).expect("proc").expect("alive");
        assert_eq!(own.pid, pid);
        assert!(ProcessStat::all().expect("proc").iter().any(|other| other.pid == pid));
        assert_eq!(ProcessStat::read(i32::MAX).expect("proc"), None);
    }
}
