//! What is let into the queue, and what stays in it.

use super::*;

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
