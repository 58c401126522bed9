//! Folders whose names last.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Makes a folder whose parent is there, and its name durable: a power cut cannot take it back.
///
/// One that is there already has its name made durable, too: whoever made it may have been killed
/// before that.
///
/// # Errors
/// The folder cannot be made, or its parent not synced. A parent that this user may not read is left
/// unsynced, and no error.
pub fn create_folder(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_folder(parent(folder)).or_else(|error| match error.kind() {
        // A folder may be writable and yet not readable, and then it cannot be synced.
        ErrorKind::PermissionDenied => Ok(()),
        _ => Err(error),
    })
}

/// Makes the names in a folder durable.
///
/// # Errors
/// The folder cannot be opened, or its file system fails.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The folder that a folder's name is in.
pub(crate) fn parent(folder: &Path) -> &Path {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_is_made_in_one_that_is_there() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        for _ in 0..2 {
            create_folder(&folder, 0o700).unwrap();
            let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        let orphan = create_folder(&place.path().join("none/folder"), 0o700).unwrap_err();
        assert_eq!(orphan.kind(), ErrorKind::NotFound);
        assert!(!place.path().join("none").exists());
    }
}
