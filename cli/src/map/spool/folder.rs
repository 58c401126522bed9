//! The files of a spool: `spool.json`, and the inputs (NUL-separated, synced) that it names.
//!
//! Inputs are written under a name that is new, and `spool.json` is renamed into its place after them:
//! a spool is whole, as it was or as it is to be, or not there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ghostlight::prelude::{Deserialize, Serialize};
use ghostlight::storage::{create_folder, sync_folder};

use crate::batch::Text;
use crate::fatal::Fatal;
use crate::inputs::{InputHash, Inputs, RunIds, Source};
use crate::map::feed::{Feed, Item, lost};

const VERSION: u32 = 1;

/// What a spooled batch has to know beside its inputs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpoolFile {
    version: u32,
    pub(super) command: Vec<Text>,
    pub(super) cwd: Text,
    pub(super) jobs: Option<u32>,
    pub(super) max_attempts: u32,
    pub(super) no_sync: bool,
    /// The number of the file of inputs.
    inputs: u64,
    /// Every input has come to its end.
    pub(super) done: bool,
}

impl SpoolFile {
    pub(super) fn new(
        command: Vec<Text>,
        cwd: Text,
        jobs: Option<u32>,
        max_attempts: u32,
        no_sync: bool,
    ) -> Self {
        Self { version: VERSION, command, cwd, jobs, max_attempts, no_sync, inputs: 0, done: false }
    }
}

/// Inputs put aside, and what was there before.
pub(super) struct Put {
    file: SpoolFile,
    before: Option<SpoolFile>,
}

/// Where a batch is spooled. Its methods block.
pub(super) struct SpoolFolder {
    path: PathBuf,
}

impl SpoolFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// What is spooled; `None` if nothing is.
    pub(super) fn read(&self) -> Result<Option<SpoolFile>, Fatal> {
        let path = self.path.join("spool.json");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Fatal::from(error).while_doing(path.display())),
        };
        let file: SpoolFile = serde_json::from_slice(&bytes)
            .map_err(|error| Fatal::from(error).while_doing(path.display()))?;
        if file.version != VERSION {
            let (path, version) = (path.display(), file.version);
            let text = format!("{path} has version {version}, which this program does not know");
            return Err(Fatal::new(text));
        }
        Ok(Some(file))
    }

    /// The file with the inputs.
    pub(super) fn inputs(&self, file: &SpoolFile) -> PathBuf {
        self.path.join(format!("inputs.{}", file.inputs))
    }

    /// Puts inputs aside, beside those of before that are not done. What was there before stays until
    /// it is [kept](Self::keep) or [undone](Self::undo). For whoever holds the lock of the data folder.
    ///
    /// # Errors
    /// An input cannot be had, those of before are of another command or working directory, or the feed
    /// was stopped: nothing has changed then.
    pub(super) fn put(&self, feed: Feed, mut file: SpoolFile) -> Result<Put, Fatal> {
        let before = self.read()?;
        let undone = before.as_ref().filter(|before| !before.done);
        if let Some(undone) = undone
            && (&undone.command, &undone.cwd) != (&file.command, &file.cwd)
        {
            let command: Vec<_> = undone.command.iter().map(Text::display).collect();
            return Err(Fatal::new(format!(
                "the batch has inputs put aside for another command ({} in {}); go on with them by \
                 `ghostlight map --batch NAME`, or give this one another --batch",
                command.join(" "),
                undone.cwd.display()
            )));
        }
        // Those above are there: the data folder was just locked.
        for folder in self.folders().into_iter().rev() {
            create_folder(folder, 0o700)
                .map_err(|e| Fatal::from(e).while_doing(folder.display()))?;
        }
        file.inputs = before.as_ref().map_or(0, |before| before.inputs) + 1;
        let undone = undone.map(|undone| self.inputs(undone));
        let written = self.write_inputs(feed, undone, &self.inputs(&file));
        if written.is_err() {
            self.remove(&file);
        }
        written?;
        self.write(&file)?;
        Ok(Put { file, before })
    }

    /// Records that the inputs have come to their end, unless more were put aside since, or the batch
    /// was cleared. For whoever holds the lock of the data folder.
    pub(super) fn done(&self, file: &SpoolFile) -> Result<(), Fatal> {
        match self.read()? {
            Some(now) if now.inputs == file.inputs => self.write(&SpoolFile { done: true, ..now }),
            _ => Ok(()),
        }
    }

    /// Removes what was there before. Needs no lock.
    pub(super) fn keep(&self, put: Put) {
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("inputs."));
            // Later ones are somebody else's.
            if number.and_then(|n| n.parse().ok()).is_some_and(|n: u64| n < put.file.inputs) {
                // They are in nobody's way, and the next spool tries again.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Takes back what was put aside, unless somebody has put more aside since, or run it; returns
    /// whether it did. For whoever holds the lock of the data folder.
    pub(super) fn undo(&self, put: Put) -> Result<bool, Fatal> {
        if self.read()?.is_none_or(|now| now.inputs != put.file.inputs) {
            return Ok(false);
        }
        match &put.before {
            Some(before) => self.write(before)?,
            None => {
                std::fs::remove_file(self.path.join("spool.json"))?;
                sync_folder(&self.path)?;
            }
        }
        self.remove(&put.file);
        Ok(true)
    }

    /// Removes inputs that nothing refers to, and the folders if nothing else is in them.
    fn remove(&self, file: &SpoolFile) {
        let _ = std::fs::remove_file(self.inputs(file));
        for folder in self.folders() {
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// The folder, and that of all spools.
    fn folders(&self) -> Vec<&Path> {
        self.path.ancestors().take(2).collect()
    }

    /// Records what is spooled, durably; its inputs are there.
    pub(super) fn write(&self, file: &SpoolFile) -> Result<(), Fatal> {
        let new = self.path.join("spool.json.new");
        let mut json = File::create(&new)?;
        json.write_all(&serde_json::to_vec(file)?)?;
        json.sync_all()?;
        std::fs::rename(new, self.path.join("spool.json"))?;
        Ok(sync_folder(&self.path)?)
    }

    /// An input is put aside as often as it comes in the list that has it more often: its runs are those
    /// of both lists, and none is added by the same command line.
    fn write_inputs(
        &self,
        mut feed: Feed,
        undone: Option<PathBuf>,
        path: &Path,
    ) -> Result<(), Fatal> {
        let mut out = BufWriter::new(File::create(path)?);
        let mut put = |input: &OsStr| {
            out.write_all(input.as_bytes())?;
            out.write_all(&[0])
        };
        let (mut before, mut now) = (RunIds::new(), RunIds::new());
        if let Some(undone) = undone {
            for input in Inputs::open(Source::Spool(undone))? {
                if feed.is_stopped() {
                    return Err(lost());
                }
                let input = input?;
                before.next_occurrence(&InputHash::of(&input));
                put(&input)?;
            }
        }
        let mut failed = 0u64;
        while let Some(item) = feed.blocking_next() {
            match item {
                Item::Input(input) if input.as_bytes().contains(&0) => {
                    eprintln!("ghostlight: an input with a NUL byte cannot be an argument");
                    failed += 1;
                }
                Item::Input(input) => {
                    let hash = InputHash::of(&input);
                    if now.next_occurrence(&hash) >= before.occurrences(&hash) {
                        put(&input)?;
                    }
                }
                Item::Failed(error) => {
                    eprintln!("ghostlight: {error}");
                    failed += 1;
                }
                Item::Notes(_) => {}
                Item::Lost => return Err(lost()),
            }
        }
        if failed > 0 {
            return Err(Fatal::new(format!("{failed} inputs cannot be had; nothing was started")));
        }
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.sync_all()?;
        // Nothing refers to them yet, and nothing is to any more.
        if feed.is_stopped() { Err(lost()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(words: &[&str]) -> Feed {
        let words = words.iter().map(Into::into).collect();
        Feed::open(Source::Arguments(words), 8).unwrap()
    }

    fn file() -> SpoolFile {
        SpoolFile::new(Vec::new(), Text::from(OsStr::new("/")), None, 10, false)
    }

    fn put(folder: &SpoolFolder, feed: Feed) {
        folder.keep(folder.put(feed, file()).unwrap());
    }

    fn spooled(folder: &SpoolFolder) -> Vec<String> {
        let file = folder.read().unwrap().unwrap();
        let inputs = Inputs::open(Source::Spool(folder.inputs(&file))).unwrap();
        inputs.map(|input| input.unwrap().into_string().unwrap()).collect()
    }

    #[test]
    fn inputs_that_are_not_done_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().join("spool"));
        put(&folder, feed(&["a", "b", "a"]));
        put(&folder, feed(&["a", "c", "a", "a"]));
        assert_eq!(spooled(&folder), ["a", "b", "a", "c", "a"]);
        put(&folder, feed(&["b", "a"]));
        assert_eq!(spooled(&folder), ["a", "b", "a", "c", "a"]);

        folder.done(&folder.read().unwrap().unwrap()).unwrap();
        put(&folder, feed(&["d"]));
        assert_eq!(spooled(&folder), ["d"]);
        assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 2);
    }

    #[test]
    fn empty_inputs_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().join("spool"));
        put(&folder, feed(&["", "a", ""]));
        assert_eq!(spooled(&folder), ["", "a", ""]);
        put(&folder, feed(&["", "", "", "b"]));
        assert_eq!(spooled(&folder), ["", "a", "", "", "b"]);
    }

    #[test]
    fn inputs_put_aside_since_are_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().join("spool"));
        put(&folder, feed(&["a"]));
        let before = folder.read().unwrap().unwrap();
        put(&folder, feed(&["b"]));
        folder.done(&before).unwrap();
        put(&folder, feed(&["c"]));
        assert_eq!(spooled(&folder), ["a", "b", "c"]);
        std::fs::remove_dir_all(&folder.path).unwrap();
        folder.done(&before).unwrap();
        assert!(!folder.path.exists());
    }

    /// As after a kill at any place in between.
    #[test]
    fn a_spool_that_is_not_whole_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().to_owned());
        put(&folder, feed(&["a"]));
        let next = SpoolFile { inputs: 2, ..file() };
        folder.write_inputs(feed(&["b"]), None, &folder.inputs(&next)).unwrap();
        assert_eq!(spooled(&folder), ["a"]);
        put(&folder, feed(&["c"]));
        assert_eq!(spooled(&folder), ["a", "c"]);
        assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 2);
    }

    #[test]
    fn a_refused_list_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().to_owned());
        put(&folder, feed(&["a"]));
        assert!(folder.put(feed(&["b", "c\0d"]), file()).is_err());
        assert_eq!(spooled(&folder), ["a"]);
        assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 2);
    }

    #[test]
    fn a_stop_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().to_owned());
        put(&folder, feed(&["a"]));
        // The list is read to its end, or not, or there is none.
        for (words, ahead) in [(&["b", "c"][..], 8), (&["b", "c"], 1), (&[], 1)] {
            let words = words.iter().map(Into::into).collect();
            let feed = Feed::open(Source::Arguments(words), ahead).unwrap();
            feed.stopper().stop();
            assert!(folder.put(feed, file()).is_err());
            assert_eq!(spooled(&folder), ["a"]);
            assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 2);
        }
    }

    #[test]
    fn what_is_undone_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().join("spool/batch"));
        let first = folder.put(feed(&["a"]), file()).unwrap();
        assert!(folder.undo(first).unwrap());
        assert!(!dir.path().join("spool").exists());
        put(&folder, feed(&["a"]));
        let second = folder.put(feed(&["b"]), file()).unwrap();
        assert_eq!(spooled(&folder), ["a", "b"]);
        assert!(folder.undo(second).unwrap());
        assert_eq!(spooled(&folder), ["a"]);
        let (second, third) =
            (folder.put(feed(&["b"]), file()).unwrap(), folder.put(feed(&["c"]), file()).unwrap());
        assert!(!folder.undo(second).unwrap());
        folder.keep(third);
        assert_eq!(spooled(&folder), ["a", "b", "c"]);
        assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 2);
    }

    #[test]
    fn inputs_are_not_carried_over_to_another_command() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(dir.path().join("spool"));
        put(&folder, feed(&["a"]));
        let other = || SpoolFile { command: vec![Text::from(OsStr::new("rm"))], ..file() };
        let elsewhere = SpoolFile { cwd: Text::from(OsStr::new("/tmp")), ..file() };
        assert!(folder.put(feed(&["b"]), other()).is_err());
        assert!(folder.put(feed(&["b"]), elsewhere).is_err());
        assert_eq!(spooled(&folder), ["a"]);
        folder.done(&folder.read().unwrap().unwrap()).unwrap();
        folder.put(feed(&["b"]), other()).unwrap();
        assert_eq!(spooled(&folder), ["b"]);
    }
}
