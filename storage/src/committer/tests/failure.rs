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

/// Asks the committer, in the very moment in which an answer comes, whether it takes anything.
struct AsksWhenWoken {
    committer: Committer,
    told: std::sync::Mutex<Vec<Option<Error>>>,
}

impl std::task::Wake for AsksWhenWoken {
    fn wake(self: Arc<Self>) {
        let room = poll_once(std::pin::pin!(self.committer.reserve(1)));
        let refused = room.and_then(|room| room.map(drop).err());
        self.told.lock().unwrap().push(refused);
    }
}

#[tokio::test]
async fn a_failed_read_ends_the_store_before_anybody_is_told() {
    let broken = || Err(Error::Poisoned { why: "cannot be read".into() });
    let store = Faulty(|batches: &[Batch]| Ok(vec![Ok(()); batches.len()]), broken);
    let (committer, _handle) = Committer::with_backend(backend::Inline(store));
    let asks = Arc::new(AsksWhenWoken { committer: committer.clone(), told: Default::default() });
    let waker = std::task::Waker::from(Arc::clone(&asks));
    let mut cx = std::task::Context::from_waker(&waker);
    let mut read = std::pin::pin!(committer.get(b"a".to_vec()));
    assert!(read.as_mut().poll(&mut cx).is_pending());
    let mut other = std::pin::pin!(committer.get(b"b".to_vec()));
    assert!(other.as_mut().poll(&mut cx).is_pending());
    let mut commit = std::pin::pin!(committer.enqueue(Batch::new().put("a", "1")));
    assert!(commit.as_mut().poll(&mut cx).is_pending());

    while asks.told.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    let poisoned = |error: &Error| matches!(error, Error::Poisoned { .. });
    assert!(read.await.is_err_and(|error| poisoned(&error)));
    assert!(other.await.is_err_and(|error| poisoned(&error)));
    assert!(commit.await.is_err_and(|error| poisoned(&error)));
    let told = asks.told.lock().unwrap();
    assert!(told.iter().all(|told| told.as_ref().is_some_and(poisoned)), "{told:?}");
}

#[tokio::test]
async fn an_engine_that_gives_too_few_answers_acknowledges_nothing() {
    let store = Faulty(|_: &[Batch]| Ok(Vec::new()), || Ok(None));
    let (committer, _handle) = Committer::start(store, CommitterOptions::default());
    let answer = committer.commit(Batch::new().put("a", "1")).await;
    assert!(matches!(&answer, Err(Error::Poisoned { why }) if why.contains("0 answers to 1")));
}
