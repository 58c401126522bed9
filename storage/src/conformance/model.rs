//! Random operations against a map.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::{ALL, Check, Clause, Disk, kind, same};
use crate::store::{Batch, Entry, Expect, Limit, Operation, Store, Versioned};

pub(super) const CLAUSES: &[Clause] =
    &[("the_store_agrees_with_a_map", the_store_agrees_with_a_map)];

const CALLS: usize = 200;

#[expect(clippy::disallowed_methods, reason = "the seed itself, where none was given")]
fn the_store_agrees_with_a_map(disk: &mut dyn Disk) -> Check {
    let seed = match std::env::var("GHOSTLIGHT_SEED") {
        Ok(seed) => seed.parse().map_err(|_| "GHOSTLIGHT_SEED is not a number")?,
        Err(_) => fastrand::u64(..),
    };
    agree(disk, Rng::with_seed(seed))
        .map_err(|failure| format!("{failure} (repeat with GHOSTLIGHT_SEED={seed})").into())
}

fn agree(disk: &mut dyn Disk, mut rng: Rng) -> Check {
    let mut model = Model::default();
    let mut store = disk.open();
    for call in 0..CALLS {
        let batches: Vec<_> =
            (0..1 + rng.usize(..6)).map(|_| random_batch(&mut rng, &model)).collect();
        let given: Vec<_> = store.commit(&batches)?.iter().map(kind).collect();
        let expected: Vec<_> = batches.iter().map(|batch| model.commit(batch)).collect();
        same!(given, expected, "the answers of call {call} to {batches:?}");
        for _ in 0..3 {
            let key = random_key(&mut rng);
            same!(store.get(&key)?, model.0.get(&key).cloned(), "get {key:?} after call {call}");
        }
        let prefix = random_key(&mut rng);
        let prefix = &prefix[..rng.usize(..=prefix.len())];
        let after = rng.bool().then(|| random_key(&mut rng));
        let limit = Limit { entries: rng.usize(1..20), bytes: rng.usize(1..2000) };
        let page = store.scan(prefix, after.as_deref(), limit)?;
        let expected = model.scan(prefix, after.as_deref(), limit);
        same!(page, expected, "scan {prefix:?} after {after:?} {limit:?}, after call {call}");
        if rng.usize(..40) == 0 {
            drop(store);
            store = disk.open();
        }
    }
    everything(&*store, &model)?;
    drop(store);
    everything(&*disk.open(), &model)
}

fn everything(store: &dyn Store, model: &Model) -> Check {
    same!(store.scan(b"", None, ALL)?, model.scan(b"", None, ALL), "everything");
    Ok(())
}

/// Few enough keys that batches meet, with bytes at the edges.
fn random_key(rng: &mut Rng) -> Vec<u8> {
    const BYTES: [u8; 6] = [0, 1, b'a', b'b', 0xfe, 0xff];
    (0..1 + rng.usize(..3)).map(|_| BYTES[rng.usize(..BYTES.len())]).collect()
}

fn random_batch(rng: &mut Rng, model: &Model) -> Batch {
    (0..rng.usize(..6)).fold(Batch::new(), |batch, _| {
        let key = random_key(rng);
        match rng.u8(..10) {
            0..=4 => batch.put(key, vec![rng.u8(..); rng.usize(..300)]),
            5 | 6 => batch.delete(key),
            7 => batch.expect(key, Expect::Absent),
            8 => batch.expect(key, Expect::At(rng.u64(1..4))),
            // Expectations that hold, so that enough batches are accepted.
            _ => {
                let expect = match model.0.get(&key) {
                    Some(versioned) => Expect::At(versioned.revision),
                    None => Expect::Absent,
                };
                batch.expect(key, expect)
            }
        }
    })
}

/// The contract once more, as simple as it can be said.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Versioned>);

impl Model {
    fn commit(&mut self, batch: &Batch) -> &'static str {
        let mut after = self.0.clone();
        let mut changed = Vec::new();
        let mut conflict = false;
        for operation in &batch.operations {
            match operation {
                Operation::Put(key, value) => {
                    changed.push(key);
                    let revision = self.0.get(key).map_or(1, |old| old.revision + 1);
                    after.insert(key.clone(), Versioned { revision, value: value.clone() });
                }
                Operation::Delete(key) => {
                    changed.push(key);
                    after.remove(key);
                }
                Operation::Expect(key, expect) => {
                    let found = self.0.get(key).map(|old| old.revision);
                    conflict |= match expect {
                        Expect::Absent => found.is_some(),
                        Expect::At(revision) => found != Some(*revision),
                    };
                }
            }
        }
        changed.sort();
        if changed.windows(2).any(|pair| pair[0] == pair[1]) {
            return "key twice";
        }
        if conflict {
            return "conflict";
        }
        self.0 = after;
        "accepted"
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Vec<Entry> {
        let mut page: Vec<Entry> = Vec::new();
        let mut bytes = 0_usize;
        for (key, versioned) in &self.0 {
            if !key.starts_with(prefix) || after.is_some_and(|after| key.as_slice() <= after) {
                continue;
            }
            bytes += key.len() + versioned.value.len();
            if !page.is_empty() && (page.len() >= limit.entries || bytes > limit.bytes) {
                break;
            }
            page.push(Entry { key: key.clone(), versioned: versioned.clone() });
        }
        page
    }
}
