//! An engine that fails.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failed_sync_poisons_everything_for_ever() {
    let mut disk = Disk::new(&MemoryStore::new());
    let calls = Arc::clone(&disk.calls);
    disk.unsynced_max = Limit { entries: 1, bytes: usize::MAX };
    // Whatever the back end calls the failure, the callers see one that says what it means.
    disk.failure = Some(Error::Corrupt { key: "a".into(), why: "no fsync".into() });
    let (committer, handle) = Committer::with_backend(disk);
    let first = committer.enqueue(Batch::new().put("a", "1"));
    let queued = committer.enqueue(Batch::new().put("b", "1"));
    let read = tokio::spawn({
        let committer = committer.clone();
        async move { committer.get(b"a".to_vec()).await.map(|_| ()) }
    });
    let later = async { committer.commit(Batch::new().put("c", "1")).await };
    for answer in [first.await, queued.await, read.await.unwrap(), later.await] {
        assert!(matches!(&answer, Err(Error::Poisoned { why }) if why.contains("no fsync")));
    }
    assert!(matches!(committer.reserve(1).await, Err(Error::Poisoned { .. })));
    assert!(matches!(handle.shutdown().await, Err(Error::Poisoned { .. })));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_panic_of_the_engine_is_a_failed_write() {
    let store = Faulty(|_: &[Batch]| panic!("broken page"), || Ok(None));
    let (committer, _handle) = Committer::start(store, CommitterOptions::default());
    let answer = committer.commit(Batch::new().put("a", "1")).await;
    assert!(matches!(&answer, Err(Error::Poisoned { why }) if why.contains("broken page")));

    let store = Faulty(|batches: &[Batch]| Ok(vec![Ok(()); batches.len()]), || panic!("read"));
    let (committer, _handle) = Committer::start(store, CommitterOptions::default());
    assert!(matches!(committer.get(Vec::new()).await, Err(Error::Poisoned { .. })));
    assert!(matches!(committer.commit(Batch::new()).await, Err(Error::Poisoned { .. })));
}

#[tokio::test]
async fn an_engine_that_gives_too_few_answers_acknowledges_nothing() {
    let store = Faulty(|_: &[Batch]| Ok(Vec::new()), || Ok(None));
    let (committer, _handle) = Committer::start(store, CommitterOptions::default());
    let answer = committer.commit(Batch::new().put("a", "1")).await;
    assert!(matches!(&answer, Err(Error::Poisoned { why }) if why.contains("0 answers to 1")));
}
