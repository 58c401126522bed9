//! Hooks of agents: what the system calls on them.

use std::future::Future;
use std::sync::Arc;

use ghostlight_protocol::Outcome;

use crate::registry::BoxFuture;
use crate::{Agent, AgentContext, RunError, RunInfo};

/// A hook of one run: `async fn(&self, cx: &AgentContext, run: RunInfo) -> Result<(), RunError>`.
#[diagnostic::on_unimplemented(
    message = "this function is no hook of `{A}`",
    note = "a start hook is `async fn name(&self, cx: &AgentContext, run: RunInfo) -> Result<(), RunError>`"
)]
pub trait StartHook<'a, A: 'a>: Send + Sync + 'static {
    /// What the hook returns.
    type Future: Future<Output = Result<(), RunError>> + Send + 'a;
    /// Calls the hook.
    fn call(&self, agent: &'a A, cx: &'a AgentContext, run: RunInfo) -> Self::Future;
}

impl<'a, A, F, Fut> StartHook<'a, A> for F
where
    A: 'a,
    F: Fn(&'a A, &'a AgentContext, RunInfo) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send + 'a,
{
    type Future = Fut;
    fn call(&self, agent: &'a A, cx: &'a AgentContext, run: RunInfo) -> Fut {
        self(agent, cx, run)
    }
}

/// A hook of one run's end; its outcome holds the output as JSON.
#[diagnostic::on_unimplemented(
    message = "this function is no finish hook of `{A}`",
    note = "a finish hook is `async fn name(&self, cx: &AgentContext, run: RunInfo, end: Outcome<serde_json::Value>) -> Result<(), RunError>`"
)]
pub trait FinishHook<'a, A: 'a>: Send + Sync + 'static {
    /// What the hook returns.
    type Future: Future<Output = Result<(), RunError>> + Send + 'a;
    /// Calls the hook.
    fn call(
        &self,
        agent: &'a A,
        cx: &'a AgentContext,
        run: RunInfo,
        end: Outcome<serde_json::Value>,
    ) -> Self::Future;
}

impl<'a, A, F, Fut> FinishHook<'a, A> for F
where
    A: 'a,
    F: Fn(&'a A, &'a AgentContext, RunInfo, Outcome<serde_json::Value>) -> Fut
        + Send
        + Sync
        + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send + 'a,
{
    type Future = Fut;
    fn call(
        &self,
        agent: &'a A,
        cx: &'a AgentContext,
        run: RunInfo,
        end: Outcome<serde_json::Value>,
    ) -> Fut {
        self(agent, cx, run, end)
    }
}

type ErasedStart =
    Arc<dyn Fn(AgentContext, RunInfo) -> BoxFuture<Result<(), RunError>> + Send + Sync>;
type ErasedFinish = Arc<
    dyn Fn(AgentContext, RunInfo, Outcome<serde_json::Value>) -> BoxFuture<Result<(), RunError>>
        + Send
        + Sync,
>;

/// The hooks of a kind, without its type.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) start: Option<ErasedStart>,
    pub(crate) finish: Option<ErasedFinish>,
}

/// Collects the hooks of a kind of agent; see [`Agent::callbacks`].
pub struct Callbacks<A> {
    agent: Arc<A>,
    hooks: Hooks,
}

impl<A: Agent> Callbacks<A> {
    pub(crate) fn new(agent: Arc<A>) -> Self {
        Self { agent, hooks: Hooks::default() }
    }

    pub(crate) fn into_hooks(self) -> Hooks {
        self.hooks
    }

    /// Calls `hook` for every new run before its code is entered: at least once, with the same run
    /// id after a crash. An error or a panic ends the run as `error`.
    pub fn on_run_start<H>(&mut self, hook: H)
    where
        H: for<'a> StartHook<'a, A>,
    {
        let (agent, hook) = (Arc::clone(&self.agent), Arc::new(hook));
        self.hooks.start = Some(Arc::new(move |cx, run| {
            let (agent, hook) = (Arc::clone(&agent), Arc::clone(&hook));
            Box::pin(async move { hook.call(&agent, &cx, run).await })
        }));
    }

    /// Calls `hook` for every run that has ended for good, as a turn of the agent: exactly once on
    /// the happy path, at least once over crashes; an error or a panic is tried again for ever,
    /// with backoff. Whoever awaits the run does not wait for it.
    pub fn on_run_finish<H>(&mut self, hook: H)
    where
        H: for<'a> FinishHook<'a, A>,
    {
        let (agent, hook) = (Arc::clone(&self.agent), Arc::new(hook));
        self.hooks.finish = Some(Arc::new(move |cx, run, end| {
            let (agent, hook) = (Arc::clone(&agent), Arc::clone(&hook));
            Box::pin(async move { hook.call(&agent, &cx, run, end).await })
        }));
    }
}
