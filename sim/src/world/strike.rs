//! Whether the faults of a plan do what they say: a simulation whose crashes do nothing would prove everything.

use ghostlight::{AgentPath, testing};

use super::World;
use crate::invariant::Event;
use crate::plan::Fault;

const NAME: &str = "a fault does what it says";

impl World {
    /// A fault has found something to act on, and acts.
    pub(crate) fn strike(&self, fault: Fault) {
        self.lock().counts.struck += 1;
        self.tell(&Event::Fault(fault));
    }

    /// This actor of an agent must not handle a message any more.
    pub(crate) fn must_be_gone(&self, actor: u64, agent: &AgentPath, fault: Fault) {
        self.lock().gone.insert(actor, (agent.clone(), fault));
    }

    /// An agent has handled a message.
    pub(crate) fn judge_handled(&self, agent: &AgentPath) {
        let gone = self.system().and_then(|system| {
            let actor = testing::actor_of(&system, agent)?;
            self.lock().gone.get(&actor).cloned()
        });
        if let Some((agent, fault)) = gone {
            self.violated(NAME, format!("after {fault}, the same actor of {agent} goes on"));
        }
    }

    /// Nothing is left to do in this life.
    pub(crate) fn judge_faults(&self) {
        let doom = self.lock().doom;
        if let Some(fault) = doom {
            self.violated(NAME, format!("a life goes on after {fault}"));
        }
    }
}
