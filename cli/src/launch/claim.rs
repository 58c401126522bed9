use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory::CLAIM;
use super::{Error, ProcessStat, pid_namespace};

const VERSION: u32 = 1;

/// Whom a launch belongs to. Made once, by whoever comes first, and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Claim {
    /// A shim: the command has been executed, or will be.
    Shim(ShimClaim),
    /// Nobody: the command has not been executed and never will be, in this launch.
    Void,
}

/// Names a shim and its command's process group, beyond doubt as long as the machine runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShimClaim {
    /// The boot in which the numbers below mean something.
    pub boot_id: String,
    /// The pid namespace in which they do (its inode).
    pub pid_namespace: u64,
    /// The shim's process id. It is also the id of its session.
    pub pid: i32,
    /// When the shim started, in clock ticks since the boot.
    pub start_time: u64,
    /// The command's process group. It is also the command's process id.
    pub process_group: i32,
    /// The launch folder that the shim has open: a claim that is found in another one was copied,
    /// and its processes belong to the original.
    pub folder: FolderId,
}

/// Names a folder, whatever its path, as long as the machine runs. A copy has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderId {
    /// The device of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl FolderId {
    /// Reads which folder is at a path; `None` if there is none.
    pub(super) fn at(path: &Path) -> Result<Option<Self>, Error> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(Some(Self { device: found.dev(), inode: found.ino() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("look at", path, error)),
        }
    }
}

impl ShimClaim {
    /// Whether a process of the command's number is the command, and has not ended: the shim alone
    /// reaps the command, so no other child of the shim has its number.
    pub(super) fn is_command(&self, stat: &ProcessStat) -> bool {
        stat.parent == self.pid && stat.session == self.pid && !stat.zombie
    }
}

#[derive(Serialize, Deserialize)]
struct ClaimFile {
    version: u32,
    claim: Claim,
}

impl Claim {
    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(&ClaimFile { version: VERSION, claim: self.clone() })?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let file: ClaimFile = decode_versioned(bytes, path, VERSION)?;
        if let Claim::Shim(shim) = &file.claim {
            // A group of 1 or less would make a signal reach every process there is.
            if shim.pid <= 1 || shim.process_group <= 1 {
                let reason = "a process id that no shim can have".to_owned();
                return Err(Error::Corrupt { path: path.to_owned(), reason });
            }
        }
        Ok(file.claim)
    }

    /// Makes this the launch's claim, in the folder `dir`; returns whether it was the first.
    ///
    /// Link either makes the whole file appear or fails, so a claim is never seen half written.
    /// It is not synced: it only matters in the boot it was made in.
    pub(crate) fn link(&self, dir: impl rustix::fd::AsFd) -> io::Result<bool> {
        // A number alone may be that of a process in another container over the same folder.
        let namespace = pid_namespace().map_err(io::Error::other)?;
        let draft = format!("{CLAIM}.{namespace}.{}", std::process::id());
        match unlinkat(&dir, draft.as_str(), AtFlags::empty()) {
            // Unlinked rather than truncated: a draft of the same name may be a claim by now.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&dir, draft.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        std::fs::File::from(file).write_all(&self.encode()?)?;
        let linked = linkat(&dir, draft.as_str(), &dir, CLAIM, AtFlags::empty());
        unlinkat(&dir, draft.as_str(), AtFlags::empty())?;
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn link_in(&self, dir: &Path) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.link(openat(CWD, dir, flags, Mode::empty())?)
    }
}

/// Decodes a small JSON file that begins with its version.
pub(super) fn decode_versioned<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
    path: &Path,
    known: u32,
) -> Result<T, Error> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }

    let corrupt = |error: serde_json::Error| Error::Corrupt {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let Versioned { version } = serde_json::from_slice(bytes).map_err(corrupt)?;
    if version != known {
        return Err(Error::Version { path: path.to_owned(), version });
    }
    serde_json::from_slice(bytes).map_err(corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> Result<Claim, Error> {
        Claim::decode(text.as_bytes(), Path::new("claim"))
    }

    #[test]
    fn the_file_is_fixed() {
        let shim = ShimClaim {
            boot_id: "b".to_owned(),
            pid_namespace: 4_026_531_836,
            pid: 41,
            start_time: 7,
            process_group: 42,
            folder: FolderId { device: 5, inode: 6 },
        };
        let text = concat!(
            r#"{"version":1,"claim":{"shim":{"bootId":"b","pidNamespace":4026531836,"#,
            r#""pid":41,"startTime":7,"processGroup":42,"folder":{"device":5,"inode":6}}}}"#,
            "\n"
        );
        let claim = Claim::Shim(shim);
        assert_eq!(claim.encode().expect("encode"), text.as_bytes());
        assert_eq!(decode(text).expect("decode"), claim);
        assert_eq!(decode(r#"{"version":1,"claim":"void"}"#).expect("decode"), Claim::Void);
    }

    #[test]
    fn bad_files_are_typed_errors() {
        assert!(matches!(decode(""), Err(Error::Corrupt { .. })));
        assert!(matches!(decode(r#"{"version":2,"claim":7}"#), Err(Error::Version { .. })));
        assert!(matches!(decode(r#"{"version":1,"claim":"mine"}"#), Err(Error::Corrupt { .. })));
        for (pid, group) in [(0, 9), (1, 9), (-3, 9), (9, 0), (9, 1), (9, -1)] {
            let text = format!(
                r#"{{"version":1,"claim":{{"shim":{{"bootId":"b","pidNamespace":1,"pid":{pid},"startTime":1,"processGroup":{group}}}}}}}"#
            );
            assert!(matches!(decode(&text), Err(Error::Corrupt { .. })), "{text}");
        }
    }

    /// As of a process in another pid namespace, which is about to link it.
    #[test]
    fn another_ones_draft_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let draft = dir.path().join(format!("{CLAIM}.{}", std::process::id()));
        std::fs::write(&draft, "another one's").expect("draft");
        assert!(Claim::Void.link_in(dir.path()).expect("link"));
        assert_eq!(std::fs::read(&draft).expect("draft"), b"another one's");
    }

    #[test]
    fn the_first_claim_stays() {
        let dir = tempfile::tempdir().expect("temporary folder");
        assert!(Claim::Void.link_in(dir.path()).expect("link"));
        let late = ShimClaim {
            boot_id: String::new(),
            pid_namespace: 1,
            pid: 2,
            start_time: 3,
            process_group: 4,
            folder: FolderId { device: 5, inode: 6 },
        };
        assert!(!Claim::Shim(late).link_in(dir.path()).expect("link"));
        let bytes = std::fs::read(dir.path().join(CLAIM)).expect("claim");
        assert_eq!(Claim::decode(&bytes, dir.path()).expect("decode"), Claim::Void);
        assert_eq!(std::fs::read_dir(dir.path()).expect("folder").count(), 1, "no draft is left");
    }
}
