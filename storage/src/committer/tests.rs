mod admission;
mod end;
mod failure;
mod groups;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// Makes every commit take some time below two seconds instead.
    latency: Option<fastrand::Rng>,
}

impl Disk {
    fn new(store: &MemoryStore) -> Self {
        Self {
            store: store.clone(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            unsynced_max: store.unsynced_max(),
            calls: Arc::default(),
            failure: None,
            latency: None,
        }
    }
}

impl Backend for Disk {
    async fn commit(&mut self, group: Vec<Batch>) -> Result<Vec<Result<(), Error>>, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.gate.acquire().await.expect("the gate is never closed").forget();
        let latency = self.latency.as_mut().map_or(1000, |rng| rng.u64(..2000));
        tokio::time::sleep(Duration::from_millis(latency)).await;
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

fn page(entries: usize) -> Limit {
    Limit { entries, bytes: usize::MAX }
}

/// Polls once, which puts a read into the queue.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
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
