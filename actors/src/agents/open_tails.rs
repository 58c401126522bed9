//! Which agents have open tails: an agent whose runs are being watched is not idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghostlight_protocol::AgentPath;

use crate::messages::AgentMsg;
use crate::node::Node;

/// How many tails of its runs each agent has open.
#[derive(Default)]
pub(crate) struct OpenTails {
    tails: Mutex<HashMap<AgentPath, usize>>,
}

impl OpenTails {
    fn lock(&self) -> MutexGuard<'_, HashMap<AgentPath, usize>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, agent: &AgentPath) -> bool {
        self.lock().contains_key(agent)
    }
}

/// An open tail of one of an agent's runs.
pub(crate) struct OpenTail {
    node: Arc<Node>,
    agent: AgentPath,
}

impl OpenTail {
    pub(crate) fn new(node: &Arc<Node>, agent: &AgentPath) -> Self {
        *node.open_tails.lock().entry(agent.clone()).or_default() += 1;
        Self { node: Arc::clone(node), agent: agent.clone() }
    }

    /// Whether it was the last of its agent.
    fn close(&self) -> bool {
        let mut tails = self.node.open_tails.lock();
        let Some(open) = tails.get_mut(&self.agent) else { return false };
        *open -= 1;
        let last = *open == 0;
        if last {
            tails.remove(&self.agent);
        }
        last
    }
}

impl Drop for OpenTail {
    fn drop(&mut self) {
        if self.close()
            && let Some(actor) = self.node.agents.get(&self.agent)
        {
            // Its idle time begins now; an agent that is gone has none.
            let _ = actor.cast(AgentMsg::TailClosed);
        }
    }
}
