//! The loop: drain, commit, answer.

use std::sync::Arc;

use super::backend::Backend;
use super::queue::{Answer, Commit, Queue, Read, What};
use crate::Error;
use ghostlight_protocol::planted::{Planted, planted};

/// Runs until the queue has ended or is closed and drained.
pub(super) async fn run<B: Backend>(mut backend: B, queue: EndOnDrop) {
    let queue = &queue.0;
    let unsynced_max = backend.unsynced_max();
    while let Some(turn) = queue.next(unsynced_max).await {
        let done = async {
            read_all(&mut backend, queue, turn.reads_before).await?;
            commit(&mut backend, queue, turn.group).await?;
            read_all(&mut backend, queue, turn.reads_after).await
        };
        // Whatever is in hand when the queue ends is dropped, unwritten if the backend still waits
        // for its latency; the dropped answers tell their waiters.
        let done = tokio::select! {
            biased;
            () = queue.ended() => break,
            done = done => done,
        };
        if let Err(why) = done {
            // Everybody who waits is told; how loud that is said is for them.
            tracing::debug!(%why, "the store failed; no write is accepted any more");
            queue.end(why);
        }
    }
}

/// Commits the group in one call and wakes its waiters. An error is the end of the store.
async fn commit<B: Backend>(
    backend: &mut B,
    queue: &Queue,
    group: Vec<Commit>,
) -> Result<(), Error> {
    if group.is_empty() {
        return Ok(());
    }
    let bytes: usize = group.iter().map(|commit| commit.bytes).sum();
    let mut batches = Vec::with_capacity(group.len());
    let mut waiters = Vec::with_capacity(group.len());
    for Commit { batch, answer, room, .. } in group {
        batches.push(batch);
        waiters.push((answer, room));
    }
    if planted(Planted::AcknowledgeEarly) {
        for (waiter, _room) in waiters.drain(..) {
            send(waiter, Ok(()));
        }
        return backend.commit(batches).await.map(|_| ());
    }
    let syncs_before = backend.syncs();
    let committed = backend.commit(batches).await.and_then(|answers| {
        if answers.len() == waiters.len() {
            Ok(answers)
        } else {
            let why = format!("the engine gave {} answers to {}", answers.len(), waiters.len());
            Err(Error::Poisoned { why })
        }
    });
    let answers = match committed {
        Ok(answers) => answers,
        Err(_) if planted(Planted::AcknowledgeFailed) => vec![Ok(()); waiters.len()],
        Err(why) if planted(Planted::GoOnAfterFailure) => vec![Err(why); waiters.len()],
        Err(why) => {
            // The queue ends before its waiters are dropped: they ask it why, and one that commits
            // again at once is refused.
            let why = poisoned(why);
            queue.end(why.clone());
            drop(waiters);
            return Err(why);
        }
    };
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
    let syncs = backend.syncs().saturating_sub(syncs_before);
    queue.update_stats(|stats| {
        stats.commits += accepted;
        stats.refused += answers.len() as u64 - accepted;
        stats.groups += 1;
        stats.syncs += syncs;
        stats.bytes += bytes as u64;
    });
    // After a fence nobody may learn that a batch is durable.
    if queue.has_ended() {
        return Ok(());
    }
    for ((waiter, _room), answer) in waiters.into_iter().zip(answers) {
        send(waiter, answer);
    }
    Ok(())
}

/// Reads one after the other. Only a read that tells of a failed store is an error.
async fn read_all<B: Backend>(
    backend: &mut B,
    queue: &Queue,
    reads: Vec<Read>,
) -> Result<(), Error> {
    for Read { what, room: _room } in reads {
        match what {
            // Nobody waits for it any more: a read that was given up costs nothing.
            What::Get { answer, .. } if answer.is_closed() => {}
            What::Scan { answer, .. } if answer.is_closed() => {}
            What::Get { key, answer } => finish(queue, answer, backend.get(key).await)?,
            What::Scan { prefix, after, limit, answer } => {
                finish(queue, answer, backend.scan(prefix, after, limit).await)?;
            }
        }
    }
    Ok(())
}

fn finish<T>(queue: &Queue, answer: Answer<T>, result: Result<T, Error>) -> Result<(), Error> {
    let failed = match &result {
        Err(why @ Error::Poisoned { .. }) => {
            // As after a failed commit: before anybody is told, and before whatever else is in hand is
            // dropped.
            queue.end(why.clone());
            Err(why.clone())
        }
        _ => Ok(()),
    };
    send(answer, result);
    failed
}

/// Whatever a failed commit says, the store is unusable after it.
fn poisoned(why: Error) -> Error {
    match why {
        Error::Poisoned { .. } => why,
        other => Error::Poisoned { why: other.to_string() },
    }
}

/// A waiter that was dropped has given up the answer, not the batch.
fn send<T>(answer: Answer<T>, result: Result<T, Error>) {
    let _ = answer.send(result);
}

/// Ends the queue however the loop ends, even by a panic or because its runtime was dropped before
/// it ever ran, so that nobody waits for a loop that is gone.
pub(super) struct EndOnDrop(pub(super) Arc<Queue>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let why = if std::thread::panicking() {
            Error::Poisoned { why: "the committer panicked".into() }
        } else {
            Error::Closed
        };
        self.0.end(why);
    }
}
