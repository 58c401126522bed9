use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::testing::unprivileged;

fn open_error(folder: &Path) -> String {
    let Err(Error::Open { folder: named, why }) = FolderLock::acquire(folder) else {
        panic!("{} could be opened", folder.display())
    };
    assert_eq!(named, folder);
    why
}

#[test]
fn a_second_owner_is_told_who_the_first_one_is() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let lock = FolderLock::acquire(&folder).unwrap();
    let refused = FolderLock::acquire(&folder).unwrap_err();
    let Error::Locked { folder: named, pid } = refused else { panic!("{refused}") };
    assert_eq!((named.as_path(), pid), (lock.folder(), std::process::id()));
    assert_eq!(FolderLock::owner(lock.folder()).unwrap(), Some(pid));
    drop(lock);
    FolderLock::acquire(&folder).unwrap();
}

#[test]
fn a_forked_child_does_not_keep_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let lock = FolderLock::acquire(folder.path()).unwrap();
    // What a fork leaves in the child.
    let inherited = lock.file.try_clone().unwrap();
    drop(lock);
    FolderLock::acquire(folder.path()).unwrap();
    drop(inherited);
}

/// Who opens the file before it is removed, and locks it after that, owns nothing by it.
#[test]
fn a_discarded_lock_is_nobodys() {
    const TIMES: usize = 300;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("data");
    let owners = std::sync::Mutex::new(());
    let own = || {
        let (mut times, mut is_alone) = (0, true);
        while times < TIMES && is_alone {
            let lock = match FolderLock::acquire(&folder) {
                Ok(lock) => lock,
                Err(Error::Locked { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            let alone = owners.try_lock();
            is_alone = alone.is_ok();
            drop(alone);
            lock.discard().unwrap();
            // Unless the next one is there already.
            let _ = std::fs::remove_dir(&folder);
            times += 1;
        }
        is_alone
    };
    let all = std::thread::scope(|scope| {
        [scope.spawn(own), scope.spawn(own), scope.spawn(own)].map(|thread| thread.join())
    });
    assert!(all.into_iter().all(|alone| alone.unwrap()), "two owned the folder at once");
}

#[test]
fn a_folder_that_is_handed_over_is_never_free() {
    let folder = tempfile::tempdir().unwrap();
    let refused = || matches!(FolderLock::acquire(folder.path()), Err(Error::Locked { .. }));
    let file = FolderLock::acquire(folder.path()).unwrap().hand_over().unwrap();
    assert!(refused());
    let other = File::create(folder.path().join("other")).unwrap();
    assert!(FolderLock::inherit(folder.path(), other).unwrap().is_none());
    let lock = FolderLock::inherit(folder.path(), file).unwrap().unwrap();
    assert!(refused());
    assert_eq!(FolderLock::owner(folder.path()).unwrap(), Some(std::process::id()));
    drop(lock);
    // Nobody came to take it.
    drop(FolderLock::acquire(folder.path()).unwrap().hand_over().unwrap());
    FolderLock::acquire(folder.path()).unwrap();
}

#[test]
fn a_file_without_a_lock_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lock"), "41943034194303419430341943\n").unwrap();
    let lock = FolderLock::acquire(folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("lock")).unwrap();
    assert_eq!(text, format!("{}\n", std::process::id()));
    drop(lock);
    assert_eq!(std::fs::read_to_string(folder.path().join("lock")).unwrap(), "");
}

#[test]
fn a_file_whose_bytes_a_power_cut_has_lost_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("store")).unwrap();
    std::fs::write(folder.path().join("store/db"), "").unwrap();
    let file = folder.path().join("lock");
    std::fs::write(&file, [0; 7]).unwrap();
    FolderLock::acquire(folder.path()).unwrap();
    std::fs::write(&file, [0; 7]).unwrap();
    assert!(FolderLock::acquire_existing(folder.path()).unwrap().is_some());
}

#[test]
fn a_file_that_is_not_ours_is_left_alone() {
    for text in ["4194303 and more\n", "\n\n", "{}", &"4".repeat(33)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lock");
        std::fs::write(&file, text).unwrap();
        assert!(open_error(folder.path()).starts_with("its file `lock` was not made by"));
        assert!(FolderLock::acquire_existing(folder.path()).unwrap().is_none());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn a_folder_without_a_store_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    assert!(FolderLock::acquire_existing(folder.path()).unwrap().is_none());
    assert!(FolderLock::acquire_existing(folder.path().join("none")).unwrap().is_none());
    assert_eq!(names(), 0);
    let lock = FolderLock::acquire(folder.path()).unwrap();
    let refused = FolderLock::acquire_existing(folder.path());
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    drop(lock);
    std::fs::create_dir(folder.path().join("store")).unwrap();
    std::fs::write(folder.path().join("lock"), "12").unwrap();
    assert!(FolderLock::acquire_existing(folder.path()).unwrap().is_none());
    assert_eq!(std::fs::read_to_string(folder.path().join("lock")).unwrap(), "12");
    std::fs::write(folder.path().join("store/db"), "").unwrap();
    assert!(FolderLock::acquire_existing(folder.path()).unwrap().is_some());
    assert_eq!(names(), 2);
}

#[test]
fn an_owner_without_a_pid_is_still_an_owner() {
    let folder = tempfile::tempdir().unwrap();
    let _lock = FolderLock::acquire(folder.path()).unwrap();
    std::fs::write(folder.path().join("lock"), "no number").unwrap();
    let refused = FolderLock::acquire(folder.path()).unwrap_err();
    assert!(matches!(refused, Error::Locked { pid: 0, .. }), "{refused}");
    assert!(refused.to_string().contains(" is in use by another process; "), "{refused}");
}

#[test]
fn a_new_folder_is_private_and_its_parents_are_made() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deep/er/data");
    drop(FolderLock::acquire(&folder).unwrap());
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn folders_that_cannot_be_used_say_what_to_do() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(open_error(&file).starts_with("it is a file; "));
    assert!(open_error(&file.join("data")).starts_with("a part of its path is a file; "));
}

#[test]
fn no_permission_is_a_clear_error() {
    let parent = tempfile::tempdir().unwrap();
    let everyone = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(parent.path(), everyone).unwrap();
    let read_only = parent.path().join("read-only");
    std::fs::create_dir(&read_only).unwrap();
    std::fs::set_permissions(&read_only, std::fs::Permissions::from_mode(0o555)).unwrap();
    unprivileged(|| {
        assert!(open_error(&read_only).starts_with("permission denied; "));
        assert!(open_error(&read_only.join("data")).starts_with("permission denied; "));
    });
}
