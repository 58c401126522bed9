//! Clauses on what a store refuses.

use super::{ALL, Check, Clause, Disk, accept, answer, keys, kind, read, same};
use crate::store::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Batch, Expect, KEY_BYTES_MAX, VALUE_BYTES_MAX,
};

pub(super) const CLAUSES: &[Clause] = &[
    ("the_largest_batches_are_accepted", the_largest_batches_are_accepted),
    ("larger_batches_are_refused", larger_batches_are_refused),
    ("a_key_changed_twice_is_refused", a_key_changed_twice_is_refused),
];

/// So many puts of so many bytes in all.
fn puts(count: usize, bytes: usize) -> Batch {
    (0..count).fold(Batch::new(), |batch, n| {
        // The first ones take what does not divide evenly.
        let size = bytes / count + usize::from(n < bytes % count);
        let key = [b'p', n as u8];
        batch.put(key, vec![n as u8; size - key.len()])
    })
}

fn the_largest_batches_are_accepted(disk: &mut dyn Disk) -> Check {
    let mut store = disk.open();
    let long_key = vec![b'k'; KEY_BYTES_MAX];
    accept(&*store, puts(BATCH_OPERATIONS_MAX, BATCH_BYTES_MAX))?;
    accept(&*store, Batch::new().put("v", vec![1; VALUE_BYTES_MAX]))?;
    accept(&*store, Batch::new().put(long_key.clone(), vec![2; VALUE_BYTES_MAX]))?;
    for opened in ["before", "after"] {
        let page = store.scan(b"p", None, ALL)?;
        let bytes: usize = page.iter().map(|e| e.key.len() + e.versioned.value.len()).sum();
        same!(bytes, BATCH_BYTES_MAX, "the bytes of the largest batch {opened} a reopen");
        let value = Some((1, vec![1; VALUE_BYTES_MAX]));
        same!(read(&*store, b"v")?, value, "the largest value {opened} a reopen");
        let value = Some((1, vec![2; VALUE_BYTES_MAX]));
        same!(read(&*store, &long_key)?, value, "the largest key {opened} a reopen");
        drop(store);
        store = disk.open();
    }
    Ok(())
}

fn larger_batches_are_refused(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    let value = vec![0; VALUE_BYTES_MAX + 1];
    let key = vec![b'k'; KEY_BYTES_MAX + 1];
    let expectations = (0..=BATCH_OPERATIONS_MAX as u8)
        .fold(Batch::new(), |batch, n| batch.expect([n], Expect::Absent));
    let cases = [
        ("65 puts", puts(BATCH_OPERATIONS_MAX + 1, 1000)),
        ("65 expectations", expectations),
        ("a byte too many", puts(BATCH_OPERATIONS_MAX, BATCH_BYTES_MAX + 1)),
        ("a large value", Batch::new().put("fits", "1").put("v", value)),
        ("a large key", Batch::new().put("fits", "1").put(key.clone(), "1")),
        ("a large key to delete", Batch::new().put("fits", "1").delete(key.clone())),
        ("a large key to expect", Batch::new().put("fits", "1").expect(key, Expect::Absent)),
    ];
    for (name, batch) in cases {
        same!(kind(&answer(&*store, batch.clone())?), "too large", "the answer to {name}");
        same!(store.scan(b"", None, ALL)?.len(), 0, "the keys after {name}");
        let call = [Batch::new().put("a", "1"), batch, Batch::new().put("b", "1")];
        let answers = store.commit(&call)?;
        let expected = ["accepted", "too large", "accepted"];
        same!(answers.iter().map(kind).collect::<Vec<_>>(), expected, "a call with {name}");
        same!(keys(&store.scan(b"", None, ALL)?), [b"a".to_vec(), b"b".to_vec()], "its keys");
        accept(&*store, Batch::new().delete("a").delete("b"))?;
    }
    Ok(())
}

fn a_key_changed_twice_is_refused(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    accept(&*store, Batch::new().put("k", "1"))?;
    for batch in [
        Batch::new().put("k", "2").put("k", "3"),
        Batch::new().put("k", "2").delete("k"),
        Batch::new().delete("k").put("k", "2"),
        Batch::new().delete("k").put("other", "1").delete("k"),
    ] {
        same!(kind(&answer(&*store, batch.clone())?), "key twice", "the answer to {batch:?}");
        same!(read(&*store, b"k")?, Some((1, b"1".to_vec())), "the key after it");
        same!(store.scan(b"", None, ALL)?.len(), 1, "the keys after it");
    }
    let expect = Batch::new().expect("k", Expect::At(1)).expect("k", Expect::At(1)).put("k", "2");
    accept(&*store, expect)
}
