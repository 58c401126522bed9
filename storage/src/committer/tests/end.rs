//! How a committer ends.

use super::*;

#[tokio::test(start_paused = true)]
async fn shutdown_does_what_is_queued_and_nothing_more() {
    let store = MemoryStore::new();
    let (committer, handle) = Committer::with_backend(Disk::new(&store));
    let queued = committer.enqueue(Batch::new().put("a", "1"));
    let shutdown = handle.shutdown();
    assert!(matches!(committer.enqueue(Batch::new()).await, Err(Error::Closed)));
    shutdown.await.unwrap();
    queued.await.unwrap();
    assert!(value(&store, b"a").is_some());
    assert!(matches!(committer.get(b"a".to_vec()).await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_when_the_last_committer_is_dropped() {
    let store = MemoryStore::new();
    let (committer, handle) = Committer::with_backend(Disk::new(&store));
    let clone = committer.clone();
    drop(committer);
    let queued = clone.enqueue(Batch::new().put("a", "1"));
    drop(clone);
    queued.await.unwrap();
    let CommitterHandle { done, .. } = handle;
    done.await.unwrap();
    assert!(value(&store, b"a").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_fence_stops_even_the_group_that_waits_for_the_disk() {
    let store = MemoryStore::new();
    let disk = Disk::new(&store);
    let calls = Arc::clone(&disk.calls);
    let (committer, handle) = Committer::with_backend(disk);
    let in_hand = committer.enqueue(Batch::new().put("a", "1"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the group waits for the disk");
    let queued = committer.enqueue(Batch::new().put("b", "1"));
    committer.fence();
    let later = committer.commit(Batch::new().put("c", "1")).await;
    for answer in [in_hand.await, queued.await, later] {
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    handle.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(["a", "b", "c"].map(|key| value(&store, key.as_bytes())), [None, None, None]);
}

/// A process that crashes at any moment of virtual time, over a disk of random latency: what was
/// acknowledged, or read, is there afterwards, and nothing is written after the crash.
#[tokio::test(start_paused = true)]
async fn whatever_was_told_before_a_crash_is_true_after_it() {
    #[expect(clippy::disallowed_methods, reason = "the seeds themselves")]
    let first = fastrand::u64(..1 << 40);
    for seed in first..first + 200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let store = MemoryStore::new();
        let mut disk = Disk::new(&store);
        disk.latency = Some(rng.fork());
        disk.unsynced_max.entries = rng.usize(1..5);
        let (committer, handle) = Committer::with_backend(disk);
        let mut tasks = Vec::new();
        for writer in 0..4_u8 {
            let told = Arc::new(AtomicU64::new(0));
            let noted = Arc::clone(&told);
            let committer = committer.clone();
            let mut rng = rng.fork();
            let task = tokio::spawn(async move {
                let mut n = 0;
                loop {
                    let ahead: Vec<_> = (0..rng.u64(1..4))
                        .map(|ahead| {
                            let at = n + ahead;
                            let expect = if at == 0 { Expect::Absent } else { Expect::At(at) };
                            committer
                                .enqueue(Batch::new().expect([writer], expect).put([writer], ""))
                        })
                        .collect();
                    for pending in ahead {
                        pending.await?;
                        n += 1;
                        noted.store(n, Ordering::Relaxed);
                    }
                    if let Some(seen) = committer.get(vec![writer]).await? {
                        assert!(seen.revision >= n);
                        noted.store(seen.revision, Ordering::Relaxed);
                    }
                }
            });
            tasks.push((writer, told, task));
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(..20_000))).await;
        committer.fence();
        let at_crash = store.scan(b"", None, page(100)).unwrap();
        for (writer, told, task) in tasks {
            let end: Result<(), Error> = task.await.unwrap();
            assert!(matches!(end, Err(Error::Closed)), "seed {seed}: {end:?}");
            let there = store.get(&[writer]).unwrap().map_or(0, |row| row.revision);
            let told = told.load(Ordering::Relaxed);
            assert!(there >= told, "seed {seed}, writer {writer}: told {told}, {there} is there");
        }
        handle.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(store.scan(b"", None, page(100)).unwrap(), at_crash, "seed {seed}");
    }
}

#[test]
fn a_runtime_that_is_dropped_leaves_nobody_waiting() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let abandoned = runtime();
    let (committer, _handle) = abandoned.block_on(async { Committer::inline(MemoryStore::new()) });
    let pending = committer.enqueue(Batch::new().put("a", "1"));
    drop(abandoned);
    assert!(matches!(runtime().block_on(pending), Err(Error::Closed)));
}

#[tokio::test]
async fn the_thread_drops_the_store_before_shutdown_returns() {
    struct TellOnDrop(mpsc::Sender<String>);
    impl Drop for TellOnDrop {
        fn drop(&mut self) {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            self.0.send(name).unwrap();
        }
    }
    let (sender, dropped) = mpsc::channel();
    let teller = TellOnDrop(sender);
    let commit = move |batches: &[Batch]| {
        let _ = &teller;
        Ok(vec![Ok(()); batches.len()])
    };
    let (committer, handle) =
        Committer::start(Faulty(commit, || Ok(None)), CommitterOptions::default());
    committer.commit(Batch::new().put("a", "1")).await.unwrap();
    handle.shutdown().await.unwrap();
    assert_eq!(dropped.try_recv().unwrap(), "ghostlight-store");
}
