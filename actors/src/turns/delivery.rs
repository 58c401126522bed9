//! One delivery: the call of a finish hook, and what is recorded of it.

use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentKey, AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::OwedRecord;
use storage::{Changes, Expect, Key, codec};
use tracing::Instrument;

use super::{AgentContext, TurnEnd};
use crate::agent_actor::AgentArgs;
use crate::code::{caught, guarded};
use crate::finalise::FINISH;
use crate::info::{parse_json, run_info};
use crate::lanes::{Stored, outcome};
use crate::log::{self, of_record};
use crate::node::Node;
use crate::probe::Seen;
use crate::{Error, RunError};

/// The shortest and the longest wait before a failed delivery is tried again.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

pub(super) async fn deliver(args: &AgentArgs, run_id: RunId) -> TurnEnd {
    let span = log::delivery(args, &run_id);
    let delivered = try_deliver(args, &run_id).instrument(span.clone()).await;
    let _entered = span.entered();
    match delivered {
        Ok((wait, panicked)) => TurnEnd { delivery: Some((run_id, wait)), panicked },
        Err(error) => {
            // The row stays; whoever reads it next delivers.
            tracing::error!(%run_id, agent = %args.path, %error, "a delivery could not be made");
            TurnEnd { delivery: Some((run_id, Some(RETRY_MAX))), panicked: false }
        }
    }
}

/// A finish hook at work; tells the probe of its end, also if it is dropped with its agent.
struct AtWork<'a> {
    node: &'a Node,
    agent: &'a AgentPath,
    run_id: &'a RunId,
    ok: bool,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let Self { node, agent, run_id, ok } = self;
        node.seen(Seen::HookEnded { agent, run_id, ok: *ok });
    }
}

/// Calls the finish hook for a run, and records that it was called, or when it is tried again.
async fn try_deliver(args: &AgentArgs, run_id: &RunId) -> Result<(Option<Duration>, bool), Error> {
    let (node, run) = (&args.node, RunKey::new(&args.path, run_id));
    let key = Key::owed(AgentKey::from(&args.path), run, FINISH);
    let Some(read) = node.committer.get(key.clone().into_bytes()).await? else {
        return Ok((None, false));
    };
    let mut owed: OwedRecord = codec::decode(&key, &read.value)?;
    let (Some(stored), Some(hook)) =
        (Stored::read(args, run_id).await?, args.kind.hooks.finish.as_ref())
    else {
        // Cleared, or there is nobody to tell any more.
        let mut changes = Changes::new();
        changes.delete(&key);
        node.committer.commit(changes.into_batch()).await?;
        return Ok((None, false));
    };
    let Some(end) = outcome(&node.committer, run, &stored.record).await? else {
        return Ok((Some(RETRY_FIRST), false));
    };
    let end = end.try_map(|output| Ok::<_, Error>(parse_json(&output)))?;
    let cx = AgentContext::new(Arc::clone(node), args.path.clone());
    let info = run_info(&stored.record)?;
    node.seen(Seen::HookBegan { agent: &args.path, run_id });
    let mut at_work = AtWork { node, agent: &args.path, run_id, ok: false };
    let result = match caught(|| hook(cx, info, end)) {
        Ok(body) => guarded(body).await,
        Err(panic) => Err(panic),
    };
    at_work.ok = matches!(result, Ok(Ok(())));
    drop(at_work);
    let mut changes = Changes::new();
    // A clear takes the row away meanwhile, for good.
    changes.expect(&key, Expect::At(read.revision));
    let (wait, panicked) = match result {
        Ok(Ok(())) if planted(Planted::DeliverTwice) => (Some(RETRY_FIRST), false),
        Ok(Ok(())) => {
            changes.delete(&key);
            (None, false)
        }
        failed => {
            let panicked = failed.is_err();
            let error = match failed {
                Ok(Ok(())) => String::new(),
                Ok(Err(error)) => RunError::to_string(&error),
                Err(panic) => panic,
            };
            of_record!(warn, stored.record, tries = owed.tries + 1, error, "a finish hook failed");
            let wait =
                RETRY_FIRST.saturating_mul(2u32.saturating_pow(owed.tries.min(16))).min(RETRY_MAX);
            owed.tries = owed.tries.saturating_add(1);
            owed.due_ms = node.clock.now_ms().saturating_add(crate::clock::millis(wait));
            match planted(Planted::DropOwed) {
                true => changes.delete(&key),
                false => changes.put(&key, &owed),
            };
            (Some(wait), panicked)
        }
    };
    match node.committer.commit(changes.into_batch()).await {
        Ok(()) => Ok((wait, panicked)),
        // Whoever looks again finds out whether anything is owed.
        Err(storage::Error::Conflict { .. }) => Ok((Some(RETRY_FIRST), panicked)),
        Err(error) => Err(error.into()),
    }
}
