//! Where the inputs of a batch come from, and the names made from them.
//!
//! Inputs are bytes, and are read lazily: whoever iterates gets the first one as soon as it is
//! there, and nothing is kept of those given out. Iterating blocks; do it on a thread of its own.

mod argument;
mod files;
mod ids;
mod list;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

pub use argument::{ARGUMENT_BYTES_MAX, ArgumentError, substitute};
pub use files::Files;
pub use ids::{InputHash, RunIds, default_batch_name, run_id};
pub use list::List;

/// The most bytes an input may have (1 MiB). Longer ones are reported, not read.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// Where inputs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The words of the command line.
    Arguments(Vec<OsString>),
    /// Standard input.
    Stdin {
        /// Whether inputs end at NUL instead of LF.
        nul: bool,
    },
    /// A NUL-separated file that an earlier program has written.
    Spool(PathBuf),
    /// Every file under some paths.
    Files {
        /// The paths, each a file or a folder.
        paths: Vec<PathBuf>,
        /// The data folder, which is left out.
        data: PathBuf,
    },
}

/// An input that could not be had. The inputs after it can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// An input is longer than [`INPUT_BYTES_MAX`].
    #[error("an input of {bytes} bytes is longer than an input may be ({INPUT_BYTES_MAX})")]
    TooLong {
        /// How long it is.
        bytes: u64,
        /// Its first 256 bytes.
        start: OsString,
        /// The hash of all of it, from which its run id is made.
        hash: InputHash,
    },
    /// A file or folder could not be looked at.
    #[error("read {}: {source}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Standard input cannot be read any further. This one is the last.
    #[error("read the list of inputs: {0}")]
    List(#[source] io::Error),
}

/// What an iteration has passed over so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Blank lines, or empty names, of a list.
    pub blank: u64,
    /// Whether there were lines and all of them ended in CR: the list was probably written on
    /// another system, and every input has a CR at its end.
    pub all_end_in_cr: bool,
    /// Files and folders that could not be looked at.
    pub unreadable: u64,
    /// Symbolic links to folders, which are not followed.
    pub linked_folders: u64,
    /// Symbolic links that lead nowhere, or in a circle.
    pub broken_links: u64,
}

/// The inputs of a source, one after the other.
#[derive(Debug)]
pub struct Inputs {
    source: Reader,
}

#[derive(Debug)]
enum Reader {
    Arguments(std::vec::IntoIter<OsString>),
    Stdin(List<io::Stdin>),
    Spool(List<std::fs::File>),
    Files(Files),
}

impl Inputs {
    /// Begins to read a source. Nothing else may read standard input from then on.
    ///
    /// # Errors
    ///
    /// One of the paths under which to look for files is not there or cannot be looked at, or the
    /// data folder cannot.
    pub fn open(source: Source) -> Result<Self, InputError> {
        let source = match source {
            Source::Arguments(words) => Reader::Arguments(words.into_iter()),
            Source::Stdin { nul } => Reader::Stdin(List::new(io::stdin(), nul)),
            Source::Spool(path) => {
                let unreadable = |source| InputError::Unreadable { path: path.clone(), source };
                Reader::Spool(List::exact(std::fs::File::open(&path).map_err(unreadable)?))
            }
            Source::Files { paths, data } => Reader::Files(Files::new(paths, &data)?),
        };
        Ok(Inputs { source })
    }

    /// Returns what has been passed over so far.
    pub fn notes(&self) -> Notes {
        match &self.source {
            Reader::Arguments(_) => Notes::default(),
            Reader::Stdin(list) => list.notes(),
            Reader::Spool(list) => list.notes(),
            Reader::Files(files) => files.notes(),
        }
    }
}

impl Iterator for Inputs {
    type Item = Result<OsString, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Reader::Arguments(words) => words.next().map(Ok),
            Reader::Stdin(list) => list.next(),
            Reader::Spool(list) => list.next(),
            Reader::Files(files) => files.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs are opened where errors are told, and read on a thread of their own.
    #[test]
    fn inputs_can_move_to_another_thread() {
        let source = Source::Arguments(vec!["a".into(), "".into(), "a".into()]);
        let inputs = Inputs::open(source).expect("arguments");
        let read = std::thread::spawn(move || {
            assert_eq!(inputs.notes(), Notes::default());
            inputs.map(|input| input.expect("an argument")).collect::<Vec<_>>()
        });
        assert_eq!(read.join().expect("no panic"), ["a", "", "a"]);
    }
}
