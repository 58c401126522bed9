//! The durable timers of a system: one task that waits for the earliest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ghostlight_protocol::RunId;
use ghostlight_protocol::planted::{Planted, planted};
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
    loop {
        // What is set while we read is noticed after it.
        node.timers.earliest.store(u64::MAX, Ordering::Release);
        let wait = match wake_due(&node, from_ms).await {
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

/// Tells the parents of all runs that are due, and returns how long the next one takes.
async fn wake_due(node: &Arc<Node>, from_ms: u64) -> Result<Duration, storage::Error> {
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
            let timer: TimerRecord = codec::decode(&key, &entry.versioned.value)?;
            match (timer.parent.parse(), RunId::new(&timer.run_id)) {
                (Ok(parent), Ok(run_id))
                    if node.kinds.contains(kind_of(&parent)) && !node.rests(&parent) =>
                {
                    told = true;
                    node.send(&parent, AgentMsg::Run(run_id, RunRequest::Wake));
                }
                // Of a kind that is not registered, or left to another system: kept until then.
                (Ok(_), Ok(_)) => {}
                _ => {
                    let why = format!("no run {:?} of {:?}", timer.run_id, timer.parent);
                    return Err(storage::Error::Corrupt { key: key.to_string(), why });
                }
            }
        }
    }
}

fn kind_of(path: &ghostlight_protocol::AgentPath) -> &str {
    path.agent_type()
}
