//! Clauses on `commit`.

use super::{ALL, Check, Clause, Disk, accept, answer, keys, kind, read, same};
use crate::store::{Batch, Expect};

pub(super) const CLAUSES: &[Clause] = &[
    ("revisions_count_the_puts_of_their_key", revisions_count_the_puts_of_their_key),
    ("a_deleted_key_starts_again_at_1", a_deleted_key_starts_again_at_1),
    ("expectations_hold_or_fail_the_batch", expectations_hold_or_fail_the_batch),
    ("expectations_are_judged_before_the_batch", expectations_are_judged_before_the_batch),
    ("batches_of_a_call_are_judged_in_order", batches_of_a_call_are_judged_in_order),
    ("a_refused_batch_fails_alone_and_whole", a_refused_batch_fails_alone_and_whole),
    ("empty_batches_and_calls_are_accepted", empty_batches_and_calls_are_accepted),
    ("a_call_may_be_larger_than_the_unsynced_bound", a_call_may_be_larger_than_the_unsynced_bound),
    ("commits_are_there_after_a_reopen", commits_are_there_after_a_reopen),
];

fn revisions_count_the_puts_of_their_key(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    for revision in 1..=5 {
        accept(&*store, Batch::new().put("a", "same value"))?;
        same!(read(&*store, b"a")?.map(|(r, _)| r), Some(revision), "the revision of a");
    }
    accept(&*store, Batch::new().put("b", "1"))?;
    same!(read(&*store, b"b")?.map(|(r, _)| r), Some(1), "the revision of b");
    let put = Batch::new().put("a", "x");
    let answers = store.commit(&[put.clone(), put.clone(), put])?;
    same!(answers.iter().map(kind).collect::<Vec<_>>(), ["accepted"; 3], "three puts in one call");
    same!(read(&*store, b"a")?.map(|(r, _)| r), Some(8), "the revision after them");
    let scanned: Vec<_> =
        store.scan(b"a", None, ALL)?.into_iter().map(|e| e.versioned.revision).collect();
    same!(scanned, [8], "the revision that a scan gives");
    Ok(())
}

fn a_deleted_key_starts_again_at_1(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    accept(&*store, Batch::new().put("a", "1"))?;
    accept(&*store, Batch::new().put("a", "2"))?;
    accept(&*store, Batch::new().delete("a"))?;
    accept(&*store, Batch::new().delete("a").delete("never there"))?;
    accept(&*store, Batch::new().expect("a", Expect::Absent).put("a", "3"))?;
    same!(read(&*store, b"a")?, Some((1, b"3".to_vec())), "a key put after its deletion");
    let call = [Batch::new().put("a", "4"), Batch::new().delete("a"), Batch::new().put("a", "5")];
    let answers = store.commit(&call)?;
    same!(answers.iter().map(kind).collect::<Vec<_>>(), ["accepted"; 3], "all in one call");
    same!(read(&*store, b"a")?, Some((1, b"5".to_vec())), "the same within one call");
    Ok(())
}

fn expectations_hold_or_fail_the_batch(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    accept(&*store, Batch::new().put("a", "1"))?;
    accept(&*store, Batch::new().put("a", "2"))?;
    let cases = [
        ("a", Expect::Absent, "conflict"),
        ("a", Expect::At(0), "conflict"),
        ("a", Expect::At(1), "conflict"),
        ("a", Expect::At(3), "conflict"),
        ("absent", Expect::At(1), "conflict"),
        ("absent", Expect::At(0), "conflict"),
        ("absent", Expect::Absent, "accepted"),
        ("a", Expect::At(2), "accepted"),
    ];
    for (key, expect, expected) in cases {
        let given = answer(&*store, Batch::new().expect(key, expect))?;
        same!(kind(&given), expected, "the answer to {key} expected {expect:?}");
    }
    let both = Batch::new().expect("a", Expect::At(2)).expect("absent", Expect::Absent);
    accept(&*store, both.clone().put("b", "1"))?;
    let one_fails = both.expect("b", Expect::Absent);
    same!(kind(&answer(&*store, one_fails)?), "conflict", "one failed expectation of three");
    Ok(())
}

fn expectations_are_judged_before_the_batch(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    accept(&*store, Batch::new().put("a", "1").expect("a", Expect::Absent))?;
    accept(&*store, Batch::new().put("a", "2").expect("a", Expect::At(1)))?;
    accept(&*store, Batch::new().delete("a").expect("a", Expect::At(2)))?;
    let late = Batch::new().put("a", "3").put("b", "3").expect("a", Expect::At(1));
    same!(kind(&answer(&*store, late)?), "conflict", "an expectation that the batch itself makes");
    same!(store.scan(b"", None, ALL)?, Vec::new(), "the store after it");
    Ok(())
}

fn batches_of_a_call_are_judged_in_order(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    let call = [
        Batch::new().expect("a", Expect::Absent).put("a", "1"),
        Batch::new().expect("a", Expect::Absent).put("a", "zombie"),
        Batch::new().expect("a", Expect::At(1)).put("a", "2"),
        Batch::new().expect("a", Expect::At(2)).delete("a"),
        Batch::new().expect("a", Expect::At(2)).put("a", "zombie"),
        Batch::new().expect("a", Expect::Absent).put("a", "3"),
    ];
    let answers = store.commit(&call)?;
    let expected = ["accepted", "conflict", "accepted", "accepted", "conflict", "accepted"];
    same!(answers.iter().map(kind).collect::<Vec<_>>(), expected, "the answers");
    same!(read(&*store, b"a")?, Some((1, b"3".to_vec())), "the key after all");
    Ok(())
}

fn a_refused_batch_fails_alone_and_whole(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    accept(&*store, Batch::new().put("kept", "1").put("other", "1"))?;
    let call = [
        Batch::new().put("before", "1"),
        Batch::new().put("new", "x").delete("kept").put("other", "x").expect("z", Expect::At(1)),
        Batch::new().expect("new", Expect::Absent).expect("other", Expect::At(1)).put("after", "1"),
    ];
    let answers = store.commit(&call)?;
    let expected = ["accepted", "conflict", "accepted"];
    same!(answers.iter().map(kind).collect::<Vec<_>>(), expected, "the answers");
    let expected = ["after", "before", "kept", "other"].map(|key| key.as_bytes().to_vec());
    same!(keys(&store.scan(b"", None, ALL)?), expected, "the keys");
    same!(read(&*store, b"other")?, Some((1, b"1".to_vec())), "a key the refused batch changes");
    Ok(())
}

fn empty_batches_and_calls_are_accepted(disk: &mut dyn Disk) -> Check {
    let store = disk.open();
    same!(store.commit(&[])?.len(), 0, "answers to no batch");
    let answers = store.commit(&[Batch::new(), Batch::new().put("a", "1"), Batch::new()])?;
    same!(answers.iter().map(kind).collect::<Vec<_>>(), ["accepted"; 3], "empty batches");
    same!(keys(&store.scan(b"", None, ALL)?), [b"a".to_vec()], "the keys");
    Ok(())
}

fn a_call_may_be_larger_than_the_unsynced_bound(disk: &mut dyn Disk) -> Check {
    let mut store = disk.open();
    let call: Vec<_> = (0..300_u16)
        .map(|n| {
            let expect = if n == 0 { Expect::Absent } else { Expect::At(u64::from(n)) };
            let batch = Batch::new().expect("count", expect).put("count", n.to_be_bytes());
            batch.put([&b"n"[..], &n.to_be_bytes()].concat(), vec![7; 1500])
        })
        .collect();
    let answers = store.commit(&call)?;
    same!(answers.iter().map(kind).collect::<Vec<_>>(), ["accepted"; 300], "300 batches");
    for opened in ["before", "after"] {
        same!(store.scan(b"n", None, ALL)?.len(), 300, "the keys {opened} a reopen");
        same!(read(&*store, b"count")?.map(|(r, _)| r), Some(300), "their count {opened} it");
        drop(store);
        store = disk.open();
    }
    Ok(())
}

fn commits_are_there_after_a_reopen(disk: &mut dyn Disk) -> Check {
    for round in 0..4_u8 {
        let store = disk.open();
        let expected: Vec<_> = (0..round).map(|round| vec![b'r', round]).collect();
        same!(keys(&store.scan(b"r", None, ALL)?), expected, "the keys in round {round}");
        let counted = (round > 0).then(|| (u64::from(round), vec![round - 1]));
        same!(read(&*store, b"count")?, counted, "a key put in every round, in round {round}");
        let gone = [b'd', round.wrapping_sub(1)];
        same!(read(&*store, &gone)?, None, "a key deleted in the round before");

        let put = Batch::new().put([b'r', round], vec![round; 20_000]).put("count", [round]);
        accept(&*store, put.put([b'd', round], "1"))?;
        accept(&*store, Batch::new().delete([b'd', round]))?;
        let refused = Batch::new().expect("none", Expect::At(1)).put([b'r', 99], "1");
        same!(kind(&answer(&*store, refused)?), "conflict", "a refused batch");
    }
    Ok(())
}
