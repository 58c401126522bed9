//! What users implement: agents, and children that execute runs.

use std::future::Future;
use std::time::Duration;

use ghostlight_protocol::RecoveryPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::hooks::Callbacks;
use crate::{RunContext, RunError};

/// A kind of agent. Every agent can be a parent: it can dispatch runs and watch them.
///
/// One value serves all agents of its kind, so that it holds no state of one of them.
///
/// # Examples
/// ```
/// struct Assistant;
/// impl ghostlight_actors::Agent for Assistant {
///     const TYPE: &'static str = "Assistant";
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent",
    note = "implement `Agent` for it: `impl Agent for {Self} {{ const TYPE: &'static str = \"…\"; }}`"
)]
pub trait Agent: Send + Sync + 'static {
    /// The durable name of the kind: a letter, then letters, digits and `_`. Runs in a store refer
    /// to it, so that it must not change while they live.
    const TYPE: &'static str;

    /// The settings of agents of this kind.
    fn settings(&self) -> AgentSettings {
        AgentSettings::default()
    }

    /// Registers the hooks of this kind. A hook that is not registered costs nothing: without a
    /// start hook a dispatch takes one sync, and without a finish hook nothing is owed.
    fn callbacks(callbacks: &mut Callbacks<Self>)
    where
        Self: Sized,
    {
        let _ = callbacks;
    }
}

/// A kind of agent that executes runs.
///
/// The code of [`Child::run`] is entered again after a crash, with its input and with everything
/// that its context recorded: finished steps return their results without being executed. Code
/// between steps must be deterministic; what is not, goes into a step.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be dispatched: it is not a child",
    note = "implement `Child` for it, with `type Input`, `type Output` and `async fn run`"
)]
pub trait Child: Agent {
    /// What a run is given. It is stored as JSON, so that fields with defaults may be added later.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What a completed run returns. Stored as JSON, too.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Executes a run. Write it as `async fn run`.
    fn run(
        &self,
        cx: &RunContext,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output, RunError>> + Send;

    /// How a run is brought back after its process was lost. A panic fails the run.
    fn recovery(&self) -> RecoveryPolicy {
        RecoveryPolicy::default()
    }

    /// What a model, or a list of runs, is told of an output; by default a text output itself, and
    /// the JSON of any other.
    fn summary(&self, output: &Self::Output) -> String {
        match serde_json::to_value(output) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(serde_json::Value::Null) | Err(_) => String::new(),
            Ok(value) => value.to_string(),
        }
    }
}

/// The settings of a kind of agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentSettings {
    /// How many runs of one agent may execute at once; `None` is no cap. The cap is per agent,
    /// never inherited by its children.
    pub max_concurrent_runs: Option<usize>,
    /// What happens to a dispatch beyond the cap.
    pub at_cap: AtCap,
    /// How long an agent without work stays in memory; `None` is the system's setting.
    pub idle: Option<Duration>,
}

/// What happens to a dispatch beyond the cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AtCap {
    /// It fails with [`Error::CapExceeded`](crate::Error::CapExceeded), and nothing is stored.
    #[default]
    Refuse,
    /// It is recorded, and admitted in the order of dispatch when a slot comes free.
    Queue,
}
