//! Files that are not what was written.

use std::fs;

use super::super::log_check::newest_snapshot;
use super::*;
use crate::testing::copy;

/// A store with some hundred entries, closed.
fn filled() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    for n in 0..300_u16 {
        let batch = Batch::new().put(n.to_be_bytes(), vec![n as u8; 700]);
        store.commit(&[batch]).unwrap().remove(0).unwrap();
    }
    drop(store);
    folder
}

#[test]
fn damaged_files_are_typed_errors_and_never_wrong_values() {
    #[expect(clippy::disallowed_methods, reason = "the seed itself")]
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let sound = filled();
    let mut outcomes = [0; 3];
    for round in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        copy(sound.path(), folder.path());
        let store = folder.path().join("store");
        let snapshot = fs::read_dir(&store)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().contains("snap."));
        let file = match round % 3 {
            0 => store.join("conf"),
            1 => snapshot.unwrap_or_else(|| store.join("conf")),
            _ => store.join("db"),
        };
        let mut bytes = fs::read(&file).unwrap();
        match rng.u8(..4) {
            0 => bytes.truncate(rng.usize(..bytes.len())),
            1 => {
                let start = rng.usize(..bytes.len());
                let end = (start + rng.usize(1..5000)).min(bytes.len());
                bytes[start..end].fill_with(|| rng.u8(..));
            }
            2 => {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
            _ => bytes.clear(),
        }
        fs::write(&file, bytes).unwrap();

        let context = format!("seed {seed}, round {round}, {}", file.display());
        let outcome = match SledStore::open(folder.path(), Durability::ProcessCrash) {
            Err(Error::Open { .. } | Error::CommitsLost { .. }) => 0,
            Err(error) => panic!("{context}: {error}"),
            Ok(store) => match store.scan(b"", None, ALL) {
                Err(Error::Corrupt { .. } | Error::Poisoned { .. }) => 1,
                Err(error) => panic!("{context}: {error}"),
                Ok(entries) => {
                    assert_eq!(entries.len(), 300, "{context}");
                    for Entry { key, versioned } in entries {
                        assert_eq!(versioned.value, vec![key[1]; 700], "{context}");
                    }
                    2
                }
            },
        };
        outcomes[outcome] += 1;
    }
    // Some damage must have been met, or the test shows nothing.
    assert!(outcomes[0] > 5, "seed {seed}: {outcomes:?}");
}

#[test]
fn what_is_damaged_is_said_in_words_of_our_own() {
    let sound = filled();
    drop(SledStore::open(sound.path(), Durability::ProcessCrash).unwrap());
    let file = |folder: &Path, name: &str| {
        let store = folder.join("store");
        match name {
            "snapshot" => newest_snapshot(&store).unwrap().unwrap(),
            name => store.join(name),
        }
    };
    let told = |name: &str, change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        copy(sound.path(), folder.path());
        change(&file(folder.path(), name));
        let text = open_error(folder.path()).to_string();
        assert!(text.contains("restore a backup or use another folder"), "{text}");
        for word in ["None", "Some(", "Inline", "backtrace", "offset"] {
            assert!(!text.contains(word), "{text}");
        }
        text
    };
    let text = told("db", &|path| fs::remove_file(path).unwrap());
    assert!(text.contains("(store/db is missing)"), "{text}");
    let size = fs::metadata(file(sound.path(), "db")).unwrap().len();
    for kept in [0, 71, 4096, size / 100, size / 20] {
        let cut = |path: &Path| {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(kept).unwrap();
        };
        let text = told("db", &cut);
        assert!(text.contains("store/db"), "{kept}: {text}");
    }
    let spoil = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[3] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let text = told("snapshot", &spoil);
    assert!(text.contains("store/snap.") && text.contains("is not what was written"), "{text}");
    let other_words = |path: &Path| fs::write(path, "no settings at all").unwrap();
    let other_size = |path: &Path| {
        let text = fs::read(path).unwrap();
        let at = text.windows(7).position(|found| found == b"4194304").unwrap();
        fs::write(path, [&text[..at], b"4194305", &text[at + 7..]].concat()).unwrap();
    };
    for change in [&other_words as &dyn Fn(&Path), &other_size] {
        let text = told("conf", change);
        assert!(text.contains("(store/conf is not what was written)"), "{text}");
    }
}
