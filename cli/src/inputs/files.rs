use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType, ReadDir};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{InputError, Notes};

/// A folder that holds a file of this name can be made again, and is left out.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// How many names of a folder are held, and sorted, at once.
const NAMES_MAX: usize = 65_536;

/// Every file under some paths, in the order of the paths and sorted within each folder.
///
/// Names are as they were found, with the path as it was given in front; should a path begin with
/// `-`, `./` is put before it. So no name looks like an option. A path that is itself a file is
/// given out, whatever its name. A link to a file is a file, a link to a folder is counted and
/// not followed, except for a path that was given, so that no loop of links is ever entered. A link that
/// leads nowhere, or in a circle, is counted and left out.
///
/// Left out are names that begin with a dot, the data folder, folders that hold a `CACHEDIR.TAG`
/// (unless given as a path), and what is neither a file nor a folder. A file or folder that cannot
/// be looked at is an error, is counted, and what comes after it is still found.
///
/// Lazy: of each folder on the way down, the names that are still to come are held, at most
/// 65,536 of them, and no descriptor stays open. A larger folder is sorted in stretches of that
/// many, and does keep its descriptor.
#[derive(Debug)]
pub struct Files {
    roots: std::vec::IntoIter<PathBuf>,
    open: Vec<Folder>,
    data: Option<(u64, u64)>,
    notes: Notes,
    names_max: usize,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// The next names, with the kind of each where the folder could tell it.
    names: VecDeque<(OsString, Option<FileType>)>,
    /// What is left of the folder after `names`, if it is large.
    rest: Option<ReadDir>,
}

impl Files {
    /// Begins to look for files. `data` is the data folder to leave out, which need not be there.
    ///
    /// # Errors
    ///
    /// One of the paths cannot be looked at, or the data folder is there and cannot. All paths are
    /// looked at first, so that a mistyped one is known before anything is done.
    pub fn new(paths: Vec<PathBuf>, data: &Path) -> Result<Self, InputError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| InputError::Unreadable { path, source }
        };
        for path in &paths {
            fs::metadata(path).map_err(failed(path))?;
        }
        let data = match fs::metadata(data) {
            Ok(metadata) => Some((metadata.dev(), metadata.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(data)(error)),
        };
        Ok(Files {
            roots: paths.into_iter(),
            open: Vec::new(),
            data,
            notes: Notes::default(),
            names_max: NAMES_MAX,
        })
    }

    /// Returns what has been passed over so far.
    pub fn notes(&self) -> Notes {
        self.notes
    }

    fn begin(&mut self, root: PathBuf) -> Result<Option<OsString>, InputError> {
        let root = if root.as_os_str().as_bytes().starts_with(b"-") {
            Path::new(".").join(root)
        } else {
            root
        };
        let kind = self.look(&root, |path| fs::metadata(path))?.file_type();
        if kind.is_dir() {
            self.enter(root, false)?;
            return Ok(None);
        }
        Ok(kind.is_file().then(|| root.into_os_string()))
    }

    /// Makes a folder the one whose names come next, unless it is to be left out.
    fn enter(&mut self, path: PathBuf, may_be_cache: bool) -> Result<(), InputError> {
        if self.data.is_some() {
            let metadata = self.look(&path, |path| fs::metadata(path))?;
            if self.data == Some((metadata.dev(), metadata.ino())) {
                return Ok(());
            }
        }
        if may_be_cache && path.join(CACHE_TAG).exists() {
            return Ok(());
        }
        let rest = self.look(&path, |path| fs::read_dir(path))?;
        self.open.push(Folder { path, names: VecDeque::new(), rest: Some(rest) });
        Ok(())
    }

    /// Looks at the next name of the innermost folder.
    fn step(&mut self) -> Result<Option<OsString>, InputError> {
        let Some(folder) = self.open.last_mut() else {
            return Ok(None);
        };
        let Some((name, kind)) = folder.names.pop_front() else {
            let path = folder.path.clone();
            if folder.rest.is_none() {
                self.open.pop();
                return Ok(None);
            }
            let read = folder.refill(self.names_max);
            return self.look(&path, |_| read).map(|()| None);
        };
        let path = folder.path.join(&name);
        let kind = match kind {
            Some(kind) => kind,
            None => self.look(&path, |path| fs::symlink_metadata(path))?.file_type(),
        };
        if kind.is_dir() {
            self.enter(path, true)?;
            return Ok(None);
        }
        let kind = if kind.is_symlink() {
            let target = match fs::metadata(&path) {
                Err(error) if leads_nowhere(&error) => {
                    self.notes.broken_links += 1;
                    return Ok(None);
                }
                target => self.look(&path, |_| target)?.file_type(),
            };
            self.notes.linked_folders += u64::from(target.is_dir());
            target
        } else {
            kind
        };
        Ok(kind.is_file().then(|| path.into_os_string()))
    }

    fn look<T>(
        &mut self,
        path: &Path,
        look: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, InputError> {
        look(path).map_err(|source| {
            self.notes.unreadable += 1;
            InputError::Unreadable { path: path.to_owned(), source }
        })
    }
}

impl Folder {
    /// Reads and sorts the next names. After an error there are no more than those read before it.
    fn refill(&mut self, names_max: usize) -> io::Result<()> {
        let mut names = Vec::new();
        let mut read = Ok(());
        if let Some(mut rest) = self.rest.take() {
            while names.len() < names_max {
                match rest.next() {
                    Some(Ok(entry)) if is_hidden(&entry.file_name()) => {}
                    Some(Ok(entry)) => names.push((entry.file_name(), entry.file_type().ok())),
                    Some(Err(error)) => {
                        read = Err(error);
                        break;
                    }
                    None => break,
                }
            }
            if names.len() == names_max {
                self.rest = Some(rest);
            }
        }
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.names = names.into();
        read
    }
}

/// Whether following a link failed for what the link says, not for want of a right or a disk.
fn leads_nowhere(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || errno == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

impl Iterator for Files {
    type Item = Result<OsString, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let found = if self.open.is_empty() {
                let root = self.roots.next()?;
                self.begin(root)
            } else {
                self.step()
            };
            if let Some(found) = found.transpose() {
                return Some(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType as NodeType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    /// A folder with the given files in it, and folders where a name ends with a slash.
    fn tree(names: &[&str]) -> TempDir {
        let root = tempfile::tempdir().expect("temporary folder");
        for name in names {
            let path = root.path().join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).expect("folder");
            } else {
                fs::create_dir_all(path.parent().expect("a parent")).expect("folder");
                File::create(path).expect("file");
            }
        }
        root
    }

    /// What is found under `paths`, as names below `root`; errors as the path they name.
    fn found(root: &TempDir, paths: &[&str], data: &str) -> (Vec<String>, Notes) {
        let paths = paths.iter().map(|path| root.path().join(path)).collect();
        let mut files = Files::new(paths, &root.path().join(data)).expect("paths");
        let short = |path: &Path| {
            let short = path.strip_prefix(root.path()).expect("below the root");
            short.display().to_string()
        };
        let found = files
            .by_ref()
            .map(|name| match name {
                Ok(name) => short(Path::new(&name)),
                Err(InputError::Unreadable { path, .. }) => format!("error: {}", short(&path)),
                Err(error) => panic!("{error}"),
            })
            .collect();
        (found, files.notes())
    }

    #[test]
    fn files_come_sorted_and_folders_are_entered_in_their_place() {
        let root = tree(&["b", "a/2", "a/1", "c/d/e", "a.x", "empty/"]);
        let (names, notes) = found(&root, &["."], "none");
        assert_eq!(names, ["a/1", "a/2", "a.x", "b", "c/d/e"]);
        assert_eq!(notes, Notes::default());
        let (names, _) = found(&root, &["c", "b", "b"], "none");
        assert_eq!(names, ["c/d/e", "b", "b"]);
    }

    #[test]
    fn hidden_entries_caches_and_the_data_folder_are_left_out() {
        let root = tree(&[
            ".hidden",
            ".git/x",
            "keep",
            "target/CACHEDIR.TAG",
            "target/x",
            "data/x",
            "other/data/x",
        ]);
        let (names, notes) = found(&root, &["."], "data");
        assert_eq!(names, ["keep", "other/data/x"]);
        assert_eq!(notes, Notes::default());
        // Given by name they are wanted; only the data folder never is.
        let (names, _) = found(&root, &[".hidden", ".git", "target", "data"], "data");
        assert_eq!(names, [".hidden", ".git/x", "target/CACHEDIR.TAG", "target/x"]);
    }

    #[test]
    fn links_lead_to_files_but_not_into_folders() {
        let root = tree(&["real/x", "loop/y"]);
        let link = |to: &str, name: &str| symlink(to, root.path().join(name)).expect("link");
        link("real/x", "to-file");
        link("real", "to-folder");
        link("..", "loop/up");
        link(".", "loop/self");
        link("nothing", "broken");
        link("itself", "itself");
        let (names, notes) = found(&root, &["."], "none");
        assert_eq!(names, ["loop/y", "real/x", "to-file"]);
        let expected = Notes { linked_folders: 3, broken_links: 2, ..Notes::default() };
        assert_eq!(notes, expected);
        assert_eq!(found(&root, &["to-folder"], "none").0, ["to-folder/x"]);
    }

    #[test]
    fn what_is_no_file_is_left_out() {
        let root = tree(&["x"]);
        mknodat(CWD, root.path().join("fifo"), NodeType::Fifo, Mode::RUSR, 0).expect("fifo");
        let (names, notes) = found(&root, &["."], "none");
        assert_eq!((names, notes), (vec!["x".to_owned()], Notes::default()));
    }

    #[test]
    fn a_folder_that_goes_away_is_an_error_and_the_rest_is_found() {
        let root = tree(&["a/1", "b/1", "c/1"]);
        let mut files = Files::new(vec![root.path().to_owned()], Path::new("none")).expect("paths");
        assert!(files.next().expect("a/1").is_ok());
        fs::remove_dir_all(root.path().join("b")).expect("remove");
        match files.next() {
            Some(Err(InputError::Unreadable { path, .. })) => assert!(path.ends_with("b")),
            other => panic!("{other:?}"),
        }
        assert!(files.next().expect("c/1").is_ok());
        assert!(files.next().is_none());
        assert_eq!(files.notes().unreadable, 1);
    }

    #[test]
    fn a_path_that_is_not_there_is_known_at_once() {
        let root = tree(&["a"]);
        let paths = vec![root.path().join("a"), root.path().join("gone")];
        let error = Files::new(paths, Path::new("none")).expect_err("a path is not there");
        assert!(error.to_string().contains("gone"), "{error}");
    }

    #[test]
    fn names_are_bytes_and_none_begins_with_a_dash() {
        let root = tree(&[]);
        let odd = OsString::from_vec(b"-\xff\n".to_vec());
        File::create(root.path().join(&odd)).expect("file");
        let mut files = Files::new(vec![root.path().to_owned()], Path::new("none")).expect("paths");
        let name = files.next().expect("a name").expect("readable");
        assert_eq!(name, root.path().join(&odd).into_os_string());

        let files = Files {
            roots: vec![PathBuf::from("-gone")].into_iter(),
            open: Vec::new(),
            data: None,
            notes: Notes::default(),
            names_max: NAMES_MAX,
        };
        for name in files {
            match name {
                Err(InputError::Unreadable { path, .. }) => assert_eq!(path, Path::new("./-gone")),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_deep_tree_needs_neither_stack_nor_descriptors() {
        let root = tree(&[]);
        let deep = "d/".repeat(1_500);
        fs::create_dir_all(root.path().join(&deep)).expect("folders");
        File::create(root.path().join(&deep).join("x")).expect("file");
        let mut files = Files::new(vec![root.path().to_owned()], Path::new("none")).expect("paths");
        assert!(files.next().expect("a name").expect("readable").as_bytes().ends_with(b"d/x"));
        assert!(files.open.iter().all(|folder| folder.rest.is_none()));
        assert!(files.next().is_none());
    }

    #[test]
    fn a_huge_folder_is_sorted_in_stretches() {
        let all: Vec<_> = (0..25).map(|number| number.to_string()).collect();
        let root = tree(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let mut files = Files::new(vec![root.path().to_owned()], Path::new("none")).expect("paths");
        files.names_max = 10;
        let mut names = Vec::new();
        while let Some(name) = files.next() {
            names.push(name.expect("readable"));
            assert!(files.open.iter().all(|folder| folder.names.len() < 10));
        }
        assert!(names.chunks(10).all(|stretch| stretch.is_sorted()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 25);
    }
}
