use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Source;

/// The hash of an input's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputHash([u8; 32]);

impl InputHash {
    /// Hashes an input.
    pub fn of(input: &OsStr) -> Self {
        InputHash(Sha256::digest(input.as_bytes()).into())
    }

    fn key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key.copy_from_slice(&self.0[..16]);
        key
    }

    pub(super) fn finish(hasher: Sha256) -> Self {
        InputHash(hasher.finalize().into())
    }

    /// Returns the run id of the input's occurrence of that number, counted from 0; see
    /// [`run_id`].
    pub fn run_id(&self, occurrence: u32) -> String {
        let mut hasher = Sha256::new();
        hasher.update(b"ghostlight input 1\0");
        hasher.update(occurrence.to_le_bytes());
        hasher.update(self.0);
        hex(&hasher.finalize()[..16])
    }
}

/// Makes the run id of an input: 32 lower-case hex digits.
///
/// The same input has the same id in any list, on any machine and in any later version; which of
/// several equal inputs is meant is said by `occurrence`, counted from 0. The caller appends `~n`,
/// the number of the try.
pub fn run_id(input: &OsStr, occurrence: u32) -> String {
    InputHash::of(input).run_id(occurrence)
}

/// Gives inputs their run ids, counting equal ones.
///
/// Keeps 16 bytes of hash for each different input, and a counter for those that come more than once.
/// Equal inputs are interchangeable, so the ids of a list do not depend on its order.
#[derive(Debug, Default)]
pub struct RunIds {
    seen: HashSet<[u8; 16]>,
    /// How often the inputs that are not the only ones of their kind have come.
    repeated: HashMap<[u8; 16], u32>,
}

impl RunIds {
    /// Begins a list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the id of the list's next input.
    pub fn next_id(&mut self, input: &OsStr) -> String {
        self.next_id_of_hash(&InputHash::of(input))
    }

    /// Returns the id of the list's next input, of which only the hash is known.
    pub fn next_id_of_hash(&mut self, hash: &InputHash) -> String {
        hash.run_id(self.next_occurrence(hash))
    }

    /// Counts the list's next input, and returns how many equal ones came before it.
    pub fn next_occurrence(&mut self, hash: &InputHash) -> u32 {
        let key = hash.key();
        if self.seen.insert(key) {
            return 0;
        }
        let occurrences = self.repeated.entry(key).or_insert(1);
        let occurrence = *occurrences;
        *occurrences = occurrence.saturating_add(1);
        occurrence
    }

    /// How often an input has come.
    pub fn occurrences(&self, hash: &InputHash) -> u32 {
        let key = hash.key();
        let once = u32::from(self.seen.contains(&key));
        self.repeated.get(&key).copied().unwrap_or(once)
    }
}

/// Names a batch by what it does and where its inputs come from, never by the inputs: 16 hex
/// digits of a hash of command, working directory and source. Of the source its kind counts, and
/// for files the paths as they are written.
pub fn default_batch_name(command: &[OsString], cwd: &Path, source: &Source) -> String {
    let mut hasher = Sha256::new();
    // Every word is hashed with its length before it, and every list with its own, so that no two
    // batches run into the same bytes.
    let mut words = |words: &[&OsStr]| {
        hasher.update((words.len() as u64).to_le_bytes());
        for word in words {
            hasher.update((word.len() as u64).to_le_bytes());
            hasher.update(word.as_bytes());
        }
    };
    words(&[OsStr::new("ghostlight batch 1")]);
    words(&command.iter().map(OsString::as_os_str).collect::<Vec<_>>());
    words(&[cwd.as_os_str()]);
    match source {
        Source::Arguments(_) => words(&[OsStr::new("arguments")]),
        // A spooled list was standard input, words or files once, and has a name from then.
        Source::Stdin { .. } | Source::Spool(_) => words(&[OsStr::new("stdin")]),
        Source::Files { paths, .. } => {
            words(&[OsStr::new("files")]);
            words(&paths.iter().map(|path| path.as_os_str()).collect::<Vec<_>>());
        }
    }
    hex(&hasher.finalize()[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::PathBuf;

    use super::*;

    /// Stored ids must mean the same input for ever.
    #[test]
    fn ids_are_fixed() {
        let id = |input: &str, occurrence| run_id(OsStr::new(input), occurrence);
        assert_eq!(id("", 0), "f84bd53fe3ef9c5f7b4a36e687870f32");
        assert_eq!(id("a", 0), "7fe2a2f52dedce2bc144d7f723e1d341");
        assert_eq!(id("a", 1), "2320b764e8eeef7fff9984a728183f1d");
    }

    #[test]
    fn equal_inputs_have_ids_of_their_own_in_any_order() {
        let ids = |inputs: &[&str]| {
            let mut ids = RunIds::new();
            inputs.iter().map(|input| ids.next_id(OsStr::new(input))).collect::<HashSet<_>>()
        };
        let there = ids(&["a", "b", "a", "c", "a"]);
        assert_eq!(there.len(), 5);
        assert_eq!(there, ids(&["c", "a", "a", "b", "a"]));
        assert!(there.contains(&run_id(OsStr::new("a"), 2)));

        let mut ids = RunIds::new();
        let count = |ids: &RunIds| ids.occurrences(&InputHash::of(OsStr::new("a")));
        for occurrence in 0..3 {
            assert_eq!(count(&ids), occurrence);
            assert_eq!(ids.next_occurrence(&InputHash::of(OsStr::new("a"))), occurrence);
        }
        assert_eq!(count(&ids), 3);
    }

    /// Whatever is held for each input of a list is in these two fields.
    #[test]
    fn a_list_holds_its_hashes_and_no_more() {
        const INPUTS: usize = 50_000;
        let mut ids = RunIds::new();
        for input in 0..INPUTS {
            let input = format!("{input:0>200}");
            ids.next_id(OsStr::new(&input));
        }
        for _ in 0..INPUTS {
            ids.next_id(OsStr::new("again and again"));
        }
        let RunIds { seen, repeated } = ids;
        assert_eq!((seen.len(), repeated.len()), (INPUTS + 1, 1));
        assert_eq!(seen.iter().next().map(size_of_val), Some(16));
        // A table keeps an eighth of its places free, has a byte beside each, and grows twofold.
        let bytes = (seen.capacity() * 8 / 7) * 17;
        assert!(bytes <= 40 * INPUTS, "{bytes} bytes for {INPUTS} inputs");
    }

    #[test]
    fn a_batch_is_named_by_command_folder_and_source_alone() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let files = |paths: &[&str], data: &str| Source::Files {
            paths: paths.iter().map(PathBuf::from).collect(),
            data: data.into(),
        };
        let name = |command: &[&str], cwd: &str, source: &Source| {
            default_batch_name(&words(command), Path::new(cwd), source)
        };
        let stdin = Source::Stdin { nul: false };
        let arguments = |inputs: &[&str]| Source::Arguments(words(inputs));
        let names = [
            name(&["wc", "-l"], "/d", &stdin),
            name(&["wc -l"], "/d", &stdin),
            name(&["wc", "-l", ""], "/d", &stdin),
            name(&["wc", "-l"], "/e", &stdin),
            name(&["wc", "-l"], "/d", &arguments(&["x"])),
            name(&["wc", "-l"], "/d", &files(&["a"], "")),
            name(&["wc", "-l"], "/d", &files(&["a", "b"], "")),
        ];
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() == 16));
        assert_eq!(names[0], "a0adc9d3e3d11501");
        assert_eq!(names[0], name(&["wc", "-l"], "/d", &Source::Stdin { nul: true }));
        assert_eq!(names[4], name(&["wc", "-l"], "/d", &arguments(&["y", "z"])));
        assert_eq!(names[5], name(&["wc", "-l"], "/d", &files(&["a"], "other")));
    }
}
