use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::*;
use crate::MemoryStore;
use crate::store::Expect;

/// A disk whose every commit takes a permit and then a second of virtual time.
struct Disk {
    store: MemoryStore,
    gate: Arc<Semaphore>,
    unsynced_max: Limit,
    calls: Arc<AtomicUsize>,
    failure: Option<Error>,
}

impl Disk {
    fn new(store: &MemoryStore) -> Self {
        Self {
            store: store.clone(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            unsynced_max: store.unsynced_max(),
            calls: Arc::default(),
            failure: None,
        }
    }
}

impl Backend for Disk {
    async fn commit(&mut self, group: Vec<Batch>) -> Result<Vec<Result<(), Error>>, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.gate.acquire().await.expect("the gate is never closed").forget();
        tokio::time::sleep(Duration::from_secs(1)).await;
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => self.store.commit(&group),
        }
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, Error> {
        self.store.get(&key)
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, Error> {
        self.store.scan(&prefix, after.as_deref(), limit)
    }

    fn unsynced_max(&self) -> Limit {
        self.unsynced_max
    }

    fn syncs(&self) -> u64 {
        self.store.syncs()
    }
}

fn value(store: &MemoryStore, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|versioned| versioned.value)
}

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

fn page(entries: usize) -> Limit {
    Limit { entries, bytes: usize::MAX }
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

/// Polls once, which puts a read into the queue.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
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

#[tokio::test(start_paused = true)]
async fn a_dropped_answer_takes_nothing_back() {
    let store = MemoryStore::new();
    let (committer, _handle) = Committer::with_backend(Disk::new(&store));
    drop(committer.enqueue(Batch::new().put("a", "1")));
    {
        let mut commit = Box::pin(committer.commit(Batch::new().put("b", "1")));
        assert!(poll_once(commit.as_mut()).is_none());
    }
    committer.commit(Batch::new()).await.unwrap();
    assert!(value(&store, b"a").is_some() && value(&store, b"b").is_some());
}

/// A committer with room for exactly two batches of the largest size.
fn small_queue(disk: Disk) -> (Committer, CommitterHandle) {
    let queue_bytes_max = 2 * (BATCH_BYTES_MAX + REQUEST_BYTES);
    Committer::with_backend_options(disk, CommitterOptions { queue_bytes_max })
}

fn largest(key: u8) -> Batch {
    let value = BATCH_BYTES_MAX / 8 - 2;
    (0..8).fold(Batch::new(), |batch, n| batch.put([key, n], vec![0; value]))
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_or_makes_wait() {
    let store = MemoryStore::new();
    let (committer, _handle) = small_queue(Disk::new(&store));
    let first = committer.enqueue(largest(1));
    let second = committer.enqueue(largest(2));
    let refused = committer.enqueue(largest(3)).await.unwrap_err();
    assert!(matches!(refused, Error::QueueFull { .. }) && refused.is_retryable(), "{refused}");

    // A commit that is given up while it waits for room leaves nothing behind.
    let mut given_up = Box::pin(committer.commit(largest(4)));
    assert!(poll_once(given_up.as_mut()).is_none());
    drop(given_up);
    committer.commit(largest(5)).await.unwrap();
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!([3, 4, 5].map(|key| value(&store, &[key, 0]).is_some()), [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn room_is_reserved_before_a_batch_is_made() {
    let store = MemoryStore::new();
    let (committer, _handle) = small_queue(Disk::new(&store));
    let permit = committer.reserve(BATCH_BYTES_MAX).await.unwrap();
    let other = committer.reserve(BATCH_BYTES_MAX).await.unwrap();
    assert!(matches!(committer.enqueue(largest(1)).await, Err(Error::QueueFull { .. })));
    drop(other);
    committer.enqueue(largest(2)).await.unwrap();
    committer.enqueue_reserved(permit, largest(3)).await.unwrap();

    let permit = committer.reserve(10).await.unwrap();
    let refused = committer.enqueue_reserved(permit, Batch::new().put("k", [0; 10])).await;
    assert!(matches!(refused, Err(Error::TooLarge { actual: 11, limit: 10, .. })), "{refused:?}");
    let never = committer.reserve(3 * BATCH_BYTES_MAX).await;
    assert!(matches!(never, Err(Error::TooLarge { .. })), "{never:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_batch_is_refused_before_it_is_queued() {
    let (committer, _handle) = Committer::inline(MemoryStore::new());
    let large = Batch::new().put("k", vec![0; crate::VALUE_BYTES_MAX + 1]);
    assert!(matches!(committer.enqueue(large.clone()).await, Err(Error::TooLarge { .. })));
    assert!(matches!(committer.commit(large).await, Err(Error::TooLarge { .. })));
    let twice = Batch::new().put("k", "1").delete("k");
    assert!(matches!(committer.commit(twice).await, Err(Error::KeyTwice { .. })));
    assert_eq!(committer.stats(), CommitterStats::default());
}

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

/// A store whose calls end as the closures say.
struct Faulty<C, G>(C, G);

impl<C, G> Store for Faulty<C, G>
where
    C: Fn(&[Batch]) -> Result<Vec<Result<(), Error>>, Error> + Send + 'static,
    G: Fn() -> Result<Option<Versioned>, Error> + Send + 'static,
{
    fn get(&self, _: &[u8]) -> Result<Option<Versioned>, Error> {
        (self.1)()
    }

    fn scan(&self, _: &[u8], _: Option<&[u8]>, _: Limit) -> Result<Vec<Entry>, Error> {
        Ok(Vec::new())
    }

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error> {
        (self.0)(batches)
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_on_a_thread_lose_nothing() {
    let store = MemoryStore::new();
    let (committer, handle) = Committer::start(store.clone(), CommitterOptions::default());
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
