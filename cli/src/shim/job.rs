use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::PathBuf;

/// The shim's name in process listings, and half of how it knows itself.
const NAME: &str = "ghostlight-shim";

/// The other half. To be changed with the words after it.
const MARKER: &str = "--launch-2";

const SYNC: &str = "sync";
const NO_SYNC: &str = "no-sync";
/// In place of a limit.
const SAME: &str = "same";

/// What a shim is told, as the words of its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) dir: PathBuf,
    pub(crate) sync: bool,
    /// The command's soft limit of open files, if it is not to be the shim's.
    pub(crate) open_files: Option<u64>,
    pub(crate) cwd: PathBuf,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

impl Job {
    /// The words, beginning with the program's name (`argv[0]`).
    pub(crate) fn into_words(self) -> impl Iterator<Item = OsString> {
        let sync = if self.sync { SYNC } else { NO_SYNC };
        let open_files = self.open_files.map_or(SAME.to_owned(), |limit| limit.to_string()).into();
        let (dir, cwd) = (self.dir.into(), self.cwd.into());
        [NAME.into(), MARKER.into(), dir, sync.into(), open_files, cwd, self.program]
            .into_iter()
            .chain(self.args)
    }

    /// `None` if the words are not a shim's at all; an error if they are but make no sense.
    pub(super) fn from_words(words: impl Iterator<Item = OsString>) -> Option<Result<Self, ()>> {
        let mut words = words.fuse();
        let names = [words.next()?, words.next()?];
        if names.iter().map(OsString::as_os_str).ne([NAME, MARKER].map(OsStr::new)) {
            return None;
        }
        let mut job = || {
            let dir = PathBuf::from(words.next()?);
            let sync = words.next()?;
            let open_files = words.next()?;
            let cwd = PathBuf::from(words.next()?);
            let program = words.next()?;
            let args = iter::from_fn(|| words.next()).collect();
            let sync = if sync == SYNC {
                true
            } else if sync == NO_SYNC {
                false
            } else {
                return None;
            };
            let open_files = match open_files == SAME {
                true => None,
                false => Some(open_files.to_str()?.parse().ok()?),
            };
            dir.is_absolute().then_some(Job { dir, sync, open_files, cwd, program, args })
        };
        Some(job().ok_or(()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn words_come_back() {
        for (sync, open_files) in [(false, None), (true, Some(1024))] {
            let job = Job {
                dir: "/a b".into(),
                sync,
                open_files,
                cwd: "/".into(),
                program: "sh".into(),
                args: vec!["-c".into(), OsString::new(), OsString::from_vec(vec![0xff, b'\n'])],
            };
            assert_eq!(Job::from_words(job.clone().into_words()), Some(Ok(job)));
        }
    }

    #[test]
    fn other_command_lines_are_not_a_shims() {
        let parse = |words: &[&str]| Job::from_words(words.iter().map(OsString::from));
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&["ghostlight", "map"]), None);
        assert_eq!(parse(&["ghostlight", MARKER, "/d", SYNC, SAME, "/", "true"]), None);
        assert_eq!(parse(&[NAME]), None);
        assert_eq!(parse(&[NAME, "map"]), None);
        assert_eq!(parse(&[NAME, MARKER, "/d", SYNC, SAME, "/"]), Some(Err(())));
        assert_eq!(parse(&[NAME, MARKER, "/d", "maybe", SAME, "/", "true"]), Some(Err(())));
        assert_eq!(parse(&[NAME, MARKER, "/d", SYNC, "few", "/", "true"]), Some(Err(())));
        assert_eq!(parse(&[NAME, MARKER, "d", SYNC, SAME, "/", "true"]), Some(Err(())));
    }
}
