use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Error;
use super::claim::decode_versioned;

const VERSION: u32 = 1;

/// How a launch ended: the last thing its shim writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// How the command ended.
    pub end: CommandEnd,
    /// The length of its standard output. What a process that left the command's group may write
    /// later is not part of the launch.
    pub stdout_bytes: u64,
    /// The length of its standard error.
    pub stderr_bytes: u64,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CommandEnd {
    /// It exited.
    Exited {
        /// Its exit code, 0 to 255.
        code: i32,
    },
    /// It was killed by a signal.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// Whether it left a core dump.
        core_dumped: bool,
    },
    /// It could not be executed.
    SpawnFailed {
        /// The system's error number, such as 2 for a command that is not found.
        errno: i32,
        /// The reason in words.
        text: String,
    },
}

impl CommandEnd {
    /// Returns whether the command exited with code 0.
    pub fn is_success(&self) -> bool {
        *self == CommandEnd::Exited { code: 0 }
    }

    /// Returns whether the command was not executed for want of something that may come back, such
    /// as memory, or a program that is being written.
    pub fn is_retryable(&self) -> bool {
        use libc::{EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM, ETXTBSY};

        let CommandEnd::SpawnFailed { errno, .. } = self else {
            return false;
        };
        [EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM, ETXTBSY].contains(errno)
    }
}

#[derive(Serialize, Deserialize)]
struct StatusFile {
    version: u32,
    status: Status,
}

impl Status {
    pub(crate) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(&StatusFile { version: VERSION, status: self.clone() })?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        Ok(decode_versioned::<StatusFile>(bytes, path, VERSION)?.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_fixed() {
        let cases = [
            (CommandEnd::Exited { code: 3 }, r#"{"exited":{"code":3}}"#),
            (
                CommandEnd::Signaled { signal: 9, core_dumped: false },
                r#"{"signaled":{"signal":9,"coreDumped":false}}"#,
            ),
            (
                CommandEnd::SpawnFailed { errno: 2, text: "no".to_owned() },
                r#"{"spawnFailed":{"errno":2,"text":"no"}}"#,
            ),
        ];
        for (end, json) in cases {
            let status = Status { end, stdout_bytes: 1, stderr_bytes: 2 };
            let text = format!(
                r#"{{"version":1,"status":{{"end":{json},"stdoutBytes":1,"stderrBytes":2}}}}"#
            ) + "\n";
            assert_eq!(status.encode().expect("encode"), text.as_bytes());
            assert_eq!(Status::decode(text.as_bytes(), Path::new("s")).expect("decode"), status);
        }
    }

    #[test]
    fn a_shortage_is_told_from_a_command_that_cannot_be_executed() {
        let failed = |errno| CommandEnd::SpawnFailed { errno, text: String::new() };
        for errno in [libc::ENOMEM, libc::EAGAIN, libc::ENFILE, libc::EMFILE, libc::ETXTBSY] {
            assert!(failed(errno).is_retryable(), "{errno}");
        }
        for errno in [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::E2BIG, libc::EPERM] {
            assert!(!failed(errno).is_retryable(), "{errno}");
        }
        assert!(!CommandEnd::Exited { code: libc::ENOMEM }.is_retryable());
    }

    #[test]
    fn a_torn_file_is_a_typed_error() {
        let whole =
            Status { end: CommandEnd::Exited { code: 0 }, stdout_bytes: 1, stderr_bytes: 2 }
                .encode()
                .expect("encode");
        for len in 0..whole.len() - 1 {
            let torn = Status::decode(&whole[..len], Path::new("s"));
            assert!(matches!(torn, Err(Error::Corrupt { .. })), "{len} bytes");
        }
    }
}
