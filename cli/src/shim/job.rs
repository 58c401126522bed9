use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::PathBuf;

/// The shim's name in process listings, and half of how it knows itself.
const NAME: &str = "ghostlight-shim";

/// The other half. To be changed with the words after it.
const MARKER: &str = "--launch-1";

const SYNC: &str = "sync";
const NO_SYNC: &str = "no-sync";

/// What a shim is told, as the words of its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) dir: PathBuf,
    pub(crate) sync: bool,
    pub(crate) cwd: PathBuf,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

impl Job {
    /// The words, beginning with the program's name (`argv[0]`).
    pub(crate) fn into_words(self) -> impl Iterator<Item = OsString> {
        let sync = if self.sync { SYNC } else { NO_SYNC };
        [NAME.into(), MARKER.into(), self.dir.into(), sync.into(), self.cwd.into(), self.program]
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
            dir.is_absolute().then_some(Job { dir, sync, cwd, program, args })
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
        for sync in [false, true] {
            let job = Job {
                dir: "/a b".into(),
                sync,
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
        assert_eq!(parse(&["ghostlight", MARKER, "/d", SYNC, "/", "true"]), None);
        assert_eq!(parse(&[NAME]), None);
        assert_eq!(parse(&[NAME, "map"]), None);
        assert_eq!(parse(&[NAME, MARKER, "/d", SYNC, "/"]), Some(Err(())));
        assert_eq!(parse(&[NAME, MARKER, "/d", "maybe", "/", "true"]), Some(Err(())));
        assert_eq!(parse(&[NAME, MARKER, "d", SYNC, "/", "true"]), Some(Err(())));
    }
}
