//! The durable timers of a system: one task that waits for the earliest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use storage::payload::PAGE;
use storage::records::TimerRecord;
use storage::{Key, codec};
use tokio::sync::Notify;

use crate::messages::{AgentMsg, RunRequest};
use crate::node::Node;

/// The longest sleep: a wall clock that jumps is noticed after it.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// How often a timer that is due is told again to an agent that has not taken it yet.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// After a failure to read.
const RETRY: Duration = Duration::from_secs(5);

/// When the next timer is due.
pub(crate) struct Timers {
    earliest: AtomicU64,
    changed: Notify,
}

impl Default for Timers {
    fn default() -> Self {
        Self { earliest: AtomicU64::new(u64::MAX), changed: Notify::new() }
    }
}

impl Timers {
    /// A timer has become durable.
    pub(crate) fn set(&self, due_ms: u64) {
        if self.earliest.fetch_min(due_ms, Ordering::AcqRel) > due_ms {
            self.changed.notify_one();
        }
    }
}

/// Wakes every run whose timer is due, for ever.
pub(crate) async fn run(node: Arc<Node>) {
    let from_ms = if planted(Planted::PassOverdue) { node.clock.now_ms() } else { 0 };
    let mut passed = Passed::default();
    loop {
        // What is set while we read is noticed after it.
        node.timers.earliest.store(u64::MAX, Ordering::Release);
        let wait = match wake_due(&node, from_ms, &mut passed).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::error!(%error, "timers cannot be read");
                RETRY
            }
        };
        tokio::select! {
            biased;
            () = node.timers.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The timers that are due and wake nobody, as long as this system lives.
#[derive(Default)]
struct Passed {
    /// Those that cannot be read, and were reported.
    unreadable: BTreeSet<Vec<u8>>,
    /// Those of runs that are left to another system: their rows in the store are not read again.
    resting: BTreeSet<Vec<u8>>,
}

impl Passed {
    /// Reports a timer that cannot be told of, once; whatever else has failed is returned.
    fn unreadable(&mut self, key: Key, error: storage::Error) -> Result<(), storage::Error> {
        use storage::Error::{Corrupt, TooNew};
        if !matches!(error, Corrupt { .. } | TooNew { .. }) {
            return Err(error);
        }
        if self.unreadable.insert(key.into_bytes()) {
            tracing::error!(%error, "a timer that is due wakes nobody");
        }
        Ok(())
    }
}

/// Tells the parents of all runs that are due, and returns how long the next one takes. A timer that
/// cannot be read keeps none of the others.
async fn wake_due(
    node: &Arc<Node>,
    from_ms: u64,
    passed: &mut Passed,
) -> Result<Duration, storage::Error> {
    let now_ms = node.clock.now_ms();
    let mut told = false;
    let mut after = None;
    loop {
        let page = node.committer.scan(Key::timers().into_bytes(), after, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(if told { TELL_AGAIN } else { CHECK_EVERY });
        };
        after = Some(last.key.clone());
        for entry in page {
            let key = Key::from_bytes(entry.key);
            let due_ms = key.timer_due().unwrap_or(0);
            if due_ms < from_ms {
                continue;
            }
            if due_ms > now_ms {
                let left = Duration::from_millis(due_ms - now_ms).min(CHECK_EVERY);
                node.timers.earliest.fetch_min(due_ms, Ordering::AcqRel);
                return Ok(if told { left.min(TELL_AGAIN) } else { left });
            }
            match timer(&key, &entry.versioned.value) {
                // Kept: its parent's type is not registered, it cannot be entered before the next start, or
                // is left to another system.
                Ok((parent, run_id))
                    if !node.kinds.contains(parent.agent_type())
                        || node.live.is_left(RunKey::new(&parent, &run_id))
                        || passed.resting.contains(key.as_bytes()) => {}
                Ok((parent, run_id)) => {
                    match node.rests_run(&parent, RunKey::new(&parent, &run_id)).await {
                        Ok(true) => _ = passed.resting.insert(key.into_bytes()),
                        Ok(false) => {
                            told = true;
                            node.send(&parent, AgentMsg::Run(run_id, RunRequest::Wake));
                        }
                        Err(error) => passed.unreadable(key, error)?,
                    }
                }
                Err(error) => passed.unreadable(key, error)?,
            }
        }
    }
}

/// The run that a timer wakes, and its parent.
fn timer(key: &Key, value: &[u8]) -> Result<(AgentPath, RunId), storage::Error> {
    let timer: TimerRecord = codec::decode(key, value)?;
    match (timer.parent.parse(), RunId::new(&timer.run_id)) {
        (Ok(parent), Ok(run_id)) => Ok((parent, run_id)),
        _ => {
            let why = format!("no run {:?} of {:?}", timer.run_id, timer.parent);
            Err(storage::Error::Corrupt { key: key.to_string(), why })
        }
    }
}
