//! Clauses on `get` and `scan`.

use super::{ALL, Check, Clause, Disk, accept, keys, read, same};
use crate::store::{Batch, Limit, Store};

pub(super) const CLAUSES: &[Clause] = &[
    ("get_returns_what_was_put", get_returns_what_was_put),
    ("scan_is_in_key_order", scan_is_in_key_order),
    ("scan_stays_within_its_prefix", scan_stays_within_its_prefix),
    ("scan_starts_after_a_key", scan_starts_after_a_key),
    ("scan_pages_by_entries_and_bytes", scan_pages_by_entries_and_bytes),
];

fn get_returns_what_was_put(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    same!(read(&*store, b"a")?, None, "a key never put");
    accept(&*store, Batch::new().put("a", "1").put("empty", "").put("ab", "other"))?;
    same!(read(&*store, b"a")?, Some((1, b"1".to_vec())), "a key put");
    same!(read(&*store, b"empty")?, Some((1, Vec::new())), "an empty value");
    accept(&*store, Batch::new().put("a", "22"))?;
    same!(read(&*store, b"a")?, Some((2, b"22".to_vec())), "a key put again");
    accept(&*store, Batch::new().delete("a"))?;
    same!(read(&*store, b"a")?, None, "a deleted key");
    same!(read(&*store, b"ab")?, Some((1, b"other".to_vec())), "its neighbour");
    let binary: Vec<u8> = (0..=255).collect();
    accept(&*store, Batch::new().put(binary.clone(), binary.clone()))?;
    same!(read(&*store, &binary)?, Some((1, binary.clone())), "every byte in key and value");
    Ok(())
}

/// Puts each key with itself as value.
fn fill(store: &dyn Store, keys: &[&[u8]]) -> Check {
    for key in keys {
        accept(store, Batch::new().put(*key, *key))?;
    }
    Ok(())
}

fn scan_is_in_key_order(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    same!(store.scan(b"", None, ALL)?, Vec::new(), "a scan of an empty store");
    let ordered: [&[u8]; 9] =
        [b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\xff", b"b", b"\xfe\xff", b"\xff"];
    let mut mixed = ordered;
    mixed.reverse();
    mixed.swap(1, 5);
    fill(&*store, &mixed)?;
    let page = store.scan(b"", None, ALL)?;
    same!(keys(&page), ordered.map(<[u8]>::to_vec), "the keys of a scan");
    for entry in page {
        same!(entry.versioned.value, entry.key, "the value of {}", entry.key.escape_ascii());
        same!(entry.versioned.revision, 1, "the revision of {}", entry.key.escape_ascii());
    }
    Ok(())
}

fn scan_stays_within_its_prefix(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    let all: [&[u8]; 11] = [
        b"\0",
        b"a",
        b"a\0",
        b"a\xff",
        b"a\xff\0",
        b"a\xff\xff",
        b"b",
        b"\xfe\xff",
        b"\xff",
        b"\xff\0",
        b"\xff\xff",
    ];
    fill(&*store, &all)?;
    for prefix in
        [&b""[..], b"\0", b"a", b"a\xff", b"a\xff\xff", b"b", b"c", b"\xfe", b"\xff", b"\xff\xff"]
    {
        let expected: Vec<_> =
            all.iter().filter(|key| key.starts_with(prefix)).map(|key| key.to_vec()).collect();
        let shown = prefix.escape_ascii();
        same!(keys(&store.scan(prefix, None, ALL)?), expected, "the keys with prefix {shown}");
    }
    Ok(())
}

fn scan_starts_after_a_key(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    let all: [&[u8]; 6] = [b"a", b"p", b"p1", b"p2", b"p2\0", b"q"];
    fill(&*store, &all)?;
    for after in [&b""[..], b"a", b"o", b"p", b"p1", b"p1\xff", b"p2", b"p2\0", b"p3", b"q", b"z"] {
        let expected: Vec<_> = all
            .iter()
            .filter(|key| key.starts_with(b"p") && **key > after)
            .map(|key| key.to_vec())
            .collect();
        let shown = after.escape_ascii();
        let page = store.scan(b"p", Some(after), ALL)?;
        same!(keys(&page), expected, "the keys with prefix p after {shown}");
    }
    Ok(())
}

fn scan_pages_by_entries_and_bytes(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    for n in 0..40_u8 {
        accept(&*store, Batch::new().put([b'p', n], vec![n; 98]).put([b'q', n], ""))?;
    }
    let count = |entries, bytes| store.scan(b"p", None, Limit { entries, bytes }).map(|p| p.len());
    same!(count(7, usize::MAX)?, 7, "a page of 7 entries");
    same!(count(usize::MAX, 300)?, 3, "a page of 300 bytes, of entries of 100");
    same!(count(usize::MAX, 299)?, 2, "a page of 299 bytes, of entries of 100");
    same!(count(2, 300)?, 2, "a page with both limits");
    same!(count(usize::MAX, 99)?, 1, "a page whose first entry is too large");
    same!(count(0, 0)?, 1, "a page of nothing");
    same!(count(usize::MAX, usize::MAX)?, 40, "a page without limits");

    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = store.scan(b"p", after.as_deref(), Limit { entries: 7, bytes: 500 })?;
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        seen.extend(keys(&page));
        if seen.len() > 40 {
            break;
        }
    }
    let expected: Vec<_> = (0..40_u8).map(|n| vec![b'p', n]).collect();
    same!(seen, expected, "all pages one after the other");
    Ok(())
}
