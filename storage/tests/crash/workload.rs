//! What the child writes, so that the parent can tell what must be there.

use fastrand::Rng;
use ghostlight_storage::{Batch, Committer, Error, Expect};

/// How many of its latest events each writer keeps; the older ones it deletes.
pub(crate) const KEPT: u64 = 20;
/// How many batches each writer has on the way.
const AHEAD: u64 = 3;

pub(crate) fn row_key(writer: u8) -> Vec<u8> {
    vec![b'r', writer]
}

pub(crate) fn event_prefix(writer: u8) -> Vec<u8> {
    vec![b'e', writer]
}

pub(crate) fn event_key(writer: u8, n: u64) -> Vec<u8> {
    [&event_prefix(writer)[..], &n.to_be_bytes()].concat()
}

/// The value of an event: mostly small, some as large as values may be.
pub(crate) fn event(writer: u8, n: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(n << 8 | u64::from(writer));
    let size = match rng.u8(..100) {
        0..70 => rng.usize(..600),
        70..95 => rng.usize(..6_000),
        _ => rng.usize(20_000..=ghostlight_storage::VALUE_BYTES_MAX),
    };
    (0..size).map(|_| rng.u8(..)).collect()
}

/// The n-th batch of a writer, from 1: it counts in its row, adds an event, and deletes one.
fn batch(writer: u8, n: u64) -> Batch {
    let expect = if n == 1 { Expect::Absent } else { Expect::At(n - 1) };
    let batch = Batch::new()
        .expect(row_key(writer), expect)
        .put(row_key(writer), n.to_be_bytes())
        .put(event_key(writer, n), event(writer, n));
    if n > KEPT { batch.delete(event_key(writer, n - KEPT)) } else { batch }
}

/// Commits for ever, from where the store says that this writer is.
pub(crate) async fn write(
    committer: Committer,
    writer: u8,
    acknowledge: impl Fn(u8, u64),
) -> Result<(), Error> {
    let row = committer.get(row_key(writer)).await?;
    let mut n = row.map_or(0, |row| row.revision);
    loop {
        let pending: Vec<_> = (1..=AHEAD)
            .map(|ahead| (n + ahead, committer.enqueue(batch(writer, n + ahead))))
            .collect();
        for (number, pending) in pending {
            pending.await?;
            acknowledge(writer, number);
            n = number;
        }
    }
}
