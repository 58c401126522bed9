//! What shares a sync, and in which order.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lone_commit_costs_one_sync_and_an_empty_one_none() {
    let store = MemoryStore::new();
    let (committer, _handle) = Committer::inline(store.clone());
    committer.commit(Batch::new().put("a", "1")).await.unwrap();
    assert_eq!(value(&store, b"a").unwrap(), b"1");
    assert_eq!(committer.stats().syncs, 1);
    committer.commit(Batch::new()).await.unwrap();
    let stats = committer.stats();
    assert_eq!((stats.commits, stats.groups, stats.syncs, stats.bytes), (2, 2, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_share_one_sync() {
    let store = MemoryStore::new();
    let (committer, _handle) = Committer::with_backend(Disk::new(&store));
    let begun = Instant::now();
    let writers: Vec<_> = (0..100_u32)
        .map(|n| {
            let committer = committer.clone();
            tokio::spawn(
                async move { committer.commit(Batch::new().put(n.to_be_bytes(), "")).await },
            )
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    let stats = committer.stats();
    assert_eq!(stats.commits, 100);
    assert!(stats.groups <= 2, "{stats:?}");
    assert!(begun.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn groups_are_split_by_the_bound_of_the_engine() {
    for (limit, groups) in [
        (Limit { entries: 3, bytes: usize::MAX }, 4),
        (Limit { entries: usize::MAX, bytes: 20 }, 5),
        (Limit { entries: 0, bytes: 0 }, 10),
    ] {
        let mut disk = Disk::new(&MemoryStore::new());
        disk.unsynced_max = limit;
        let (committer, _handle) = Committer::with_backend(disk);
        let pending: Vec<_> =
            (0..10_u8).map(|n| committer.enqueue(Batch::new().put([n], [0; 9]))).collect();
        for pending in pending {
            pending.await.unwrap();
        }
        assert_eq!(committer.stats().groups, groups, "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_writer_sends_batches_ahead_and_a_conflict_fails_alone() {
    let store = MemoryStore::new();
    let (committer, _handle) = Committer::inline(store.clone());
    let step = |expect, value: &str| Batch::new().expect("a", expect).put("a", value);
    let first = committer.enqueue(step(Expect::Absent, "1"));
    let second = committer.enqueue(step(Expect::At(1), "2"));
    let zombie = committer.enqueue(step(Expect::At(1), "zombie").put("b", "zombie"));
    let third = committer.enqueue(step(Expect::At(2), "3"));
    first.await.unwrap();
    second.await.unwrap();
    let refused = zombie.await.unwrap_err();
    assert_eq!(refused.to_string(), "conflict on a: expected revision 1, found revision 2");
    third.await.unwrap();
    assert_eq!((value(&store, b"a").unwrap(), value(&store, b"b")), (b"3".to_vec(), None));
    let stats = committer.stats();
    assert_eq!((stats.commits, stats.refused, stats.groups, stats.syncs), (3, 1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_read_sees_what_was_enqueued_before_it_and_only_when_it_is_durable() {
    let store = MemoryStore::new();
    let disk = Disk::new(&store);
    let gate = Arc::clone(&disk.gate);
    gate.forget_permits(Semaphore::MAX_PERMITS);
    let (committer, _handle) = Committer::with_backend(disk);

    let before = committer.get(b"a".to_vec()).await.unwrap();
    assert_eq!(before, None, "a read behind no commit does not wait for one");
    let _first = committer.enqueue(Batch::new().put("a", "1"));
    let mut get = tokio::spawn({
        let committer = committer.clone();
        async move { committer.get(b"a".to_vec()).await }
    });
    let mut scan = tokio::spawn({
        let committer = committer.clone();
        async move { committer.scan(b"a".to_vec(), None, page(10)).await }
    });
    let second = committer.enqueue(Batch::new().put("a", "2"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!get.is_finished() && !scan.is_finished(), "nothing is durable yet");

    gate.add_permits(2);
    second.await.unwrap();
    let got = (&mut get).await.unwrap().unwrap().unwrap();
    assert!(got.revision >= 1);
    let scanned = (&mut scan).await.unwrap().unwrap();
    assert!(scanned[0].versioned.revision >= 1);
}

#[tokio::test(start_paused = true)]
async fn reads_between_commits_do_not_tear_a_group_apart() {
    let (committer, _handle) = Committer::inline(MemoryStore::new());
    let mut commits = Vec::new();
    let mut reads = Vec::new();
    for n in 0..20_u8 {
        commits.push(committer.enqueue(Batch::new().put([n], [n])));
        let mut read = Box::pin(committer.get(vec![n]));
        assert!(poll_once(read.as_mut()).is_none());
        reads.push(read);
    }
    for (n, read) in reads.into_iter().enumerate() {
        assert_eq!(read.await.unwrap().unwrap().value, [n as u8]);
    }
    assert_eq!(committer.stats().groups, 1);
}

#[tokio::test(start_paused = true)]
async fn pages_are_bounded() {
    let (committer, _handle) = Committer::inline(MemoryStore::new());
    for n in 0..20_u8 {
        committer.commit(Batch::new().put([n], vec![0; 32 << 10])).await.unwrap();
    }
    let all = committer.scan(Vec::new(), None, page(usize::MAX)).await.unwrap();
    assert_eq!(all.len(), 7, "7 * (32 KiB + 1) is below 256 KiB");
    let rest = committer.scan(Vec::new(), Some(vec![6]), page(2)).await.unwrap();
    assert_eq!(rest.iter().map(|entry| entry.key[0]).collect::<Vec<_>>(), [7, 8]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_on_a_thread_lose_nothing() {
    let store = MemoryStore::new();
    let boxed: Box<dyn Store> = Box::new(store.clone());
    let (committer, handle) = Committer::start(boxed, CommitterOptions::default());
    let writers: Vec<_> = (0..16_u8)
        .map(|writer| {
            let committer = committer.clone();
            tokio::spawn(async move {
                for revision in 0..100 {
                    let expect = if revision == 0 { Expect::Absent } else { Expect::At(revision) };
                    let batch = Batch::new().expect([writer], expect).put([writer], [0]);
                    committer.commit(batch).await.unwrap();
                    let seen = committer.get(vec![writer]).await.unwrap().unwrap();
                    assert_eq!(seen.revision, revision + 1);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    handle.shutdown().await.unwrap();
    assert_eq!(store.scan(b"", None, page(100)).unwrap().len(), 16);
    assert_eq!(committer.stats().commits, 1600);
}
