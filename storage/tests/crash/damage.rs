//! The medium changes what was written.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use ghostlight_storage::{Durability, Error, SledStore, Store};

use crate::child::Writer;
use crate::copy::copy;
use crate::verify::{Acknowledged, try_verify, verify};
use crate::{rounds, seeded};

const ROUNDS: u32 = 40;
/// So many rounds damage copies of the same store.
const ROUNDS_A_STORE: u32 = 40;
const WRITERS: u8 = 16;

#[derive(Debug, Default)]
struct Figures {
    refused: u32,
    commits_lost: u32,
    unreadable: u32,
    harmless: u32,
    log_bytes: u64,
}

#[test]
fn damage_never_takes_back_what_was_acknowledged_in_silence() {
    let (_, mut rng) = seeded();
    let mut figures = Figures::default();
    let mut original = None;
    for round in 0..rounds("GHOSTLIGHT_DAMAGE_ROUNDS").unwrap_or(ROUNDS) {
        if round % ROUNDS_A_STORE == 0 {
            original = Some(make(&mut rng, (round / ROUNDS_A_STORE).is_multiple_of(2)));
        }
        let (folder, acknowledged) = original.as_ref().unwrap();
        if round % ROUNDS_A_STORE == 0 {
            // None is refused that is not damaged.
            let copied = tempfile::tempdir().unwrap();
            copy(folder.path(), copied.path());
            let store = SledStore::open(copied.path(), Durability::PowerLoss).unwrap();
            verify(&store, WRITERS, acknowledged);
        }
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        let what = damage(&copied.path().join("store"), &mut rng);
        figures.log_bytes = fs::metadata(folder.path().join("store/db")).unwrap().len();

        let before = fs::read(copied.path().join("store/db")).unwrap();
        match SledStore::open(copied.path(), Durability::PowerLoss) {
            Err(Error::Open { .. }) => figures.refused += 1,
            Err(Error::CommitsLost { missing, .. }) => {
                assert!(missing > 0 && missing <= acknowledged.count, "round {round}: {what}");
                figures.commits_lost += 1;
                let after = fs::read(copied.path().join("store/db")).unwrap();
                // The last slice of commits is all that the engine may have met.
                let untouched = before == after || missing <= 64 || what.starts_with("cut");
                assert!(untouched, "round {round}: {what}: the log was changed, {missing} lost");
            }
            Err(error) => panic!("round {round}: {what}: {error}"),
            Ok(store) => match try_verify(&store, WRITERS, acknowledged) {
                Ok(()) => figures.harmless += 1,
                Err(Error::Poisoned { .. } | Error::Corrupt { .. }) => figures.unreadable += 1,
                Err(error) => panic!("round {round}: {what}: {error}"),
            },
        }
    }
    println!("{figures:?}");
    assert!(figures.commits_lost > 0, "{figures:?}");
}

/// Writes some segments in a few lives, of which the last one ends by SIGKILL, or in order.
fn make(rng: &mut Rng, killed: bool) -> (tempfile::TempDir, Acknowledged) {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for _ in 0..rng.u32(1..3) {
        let child = Writer::start(folder.path(), WRITERS, Durability::PowerLoss);
        for _ in 0..rng.u32(1_000..6_000) {
            acknowledged.note(&child.lines.recv().unwrap());
        }
        child.kill().iter().for_each(|line| acknowledged.note(line));
    }
    if !killed {
        let store = SledStore::open(folder.path(), Durability::PowerLoss).unwrap();
        verify(&store, WRITERS, &acknowledged);
        // What is written now is what the next start replays.
        for n in 0..rng.u64(1..2_000) {
            let batch = ghostlight_storage::Batch::new().put("other", n.to_be_bytes());
            store.commit(&[batch]).unwrap().remove(0).unwrap();
            acknowledged.count += 1;
        }
    }
    (folder, acknowledged)
}

/// Damages one file of a store; says how.
fn damage(store: &Path, rng: &mut Rng) -> String {
    let log = store.join("db");
    let size = fs::metadata(&log).unwrap().len();
    let file = match rng.u8(..20) {
        0 => store.join("conf"),
        1 => snapshot(store).unwrap_or(log),
        2 => store.join("acked"),
        3 => {
            let cut = rng.u64(..size);
            OpenOptions::new().write(true).open(&log).unwrap().set_len(cut).unwrap();
            return format!("cut at {cut} of {size}");
        }
        4 => {
            let at = rng.u64(..size) / 4096 * 4096;
            let file = OpenOptions::new().write(true).open(&log).unwrap();
            file.write_all_at(&[0; 4096], at).unwrap();
            return format!("zeros at {at} of {size}");
        }
        _ => log,
    };
    let size = fs::metadata(&file).unwrap().len();
    let at = rng.u64(..size);
    let open = OpenOptions::new().read(true).write(true).open(&file).unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 << rng.u8(..8);
    open.write_all_at(&byte, at).unwrap();
    format!("a bit of {} at {at} of {size}", file.display())
}

fn snapshot(store: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.to_string_lossy().contains("snap."))
}
