//! Typed handles: dispatch runs, wait for them, watch them.

mod awaited;
mod call;
mod recorded;
mod recorded_error;
mod run;

use std::marker::PhantomData;
use std::sync::Arc;

use ghostlight_protocol::json::{self, WriteError};
use ghostlight_protocol::{AgentPath, RunId};

pub use self::call::{RunCall, Start};
use self::recorded::Position;
pub use self::run::Run;

use crate::agent_ref::{AgentRef, DispatchOptions, INPUT};
use crate::lanes::Stored;
use crate::list::{Cursor, RunFilter, RunPage};
use crate::node::Node;
use crate::place;
use crate::shared::Shared;
use crate::tail::{After, Tail};
use crate::text::{cut_id, hex};
use crate::turns::{AgentContext, turn};
use crate::{Agent, Child, Error, Inspection};

/// An agent, as a parent. Cheap to clone; the agent comes into memory when it has something to do.
///
/// In the code of a run, [`run`](AgentHandle::run), [`start`](AgentHandle::start), [`Run::outcome`] and
/// [`Run::milestone`] are recorded, whatever handle is used: one of
/// [`RunContext::agent`](crate::RunContext::agent), or one from outside. Nothing else is, here and on
/// [`AgentRef`]: what `attach`, `inspect`, `has_run`, `list` and `turn` answer, and when `cancel`,
/// `clear` and `evict` return, may differ when the code is entered again. Use them in a step.
pub struct AgentHandle<A> {
    agent: AgentRef,
    /// The run whose code holds the handle, if there is one.
    inside: Option<Arc<Shared>>,
    kind: PhantomData<fn() -> A>,
}

impl<A> Clone for AgentHandle<A> {
    fn clone(&self) -> Self {
        Self { agent: self.agent.clone(), inside: self.inside.clone(), kind: PhantomData }
    }
}

impl<A: Agent> AgentHandle<A> {
    pub(crate) fn outside(node: Arc<Node>, path: AgentPath) -> Self {
        Self { agent: AgentRef::new(node, path), inside: None, kind: PhantomData }
    }

    pub(crate) fn inside(shared: Arc<Shared>) -> Self {
        let agent = AgentRef::new(Arc::clone(&shared.node), shared.path.clone());
        Self { agent, inside: Some(shared), kind: PhantomData }
    }

    /// The run whose code uses the handle, if it is one: the one that is being polled, wherever it has
    /// the handle from, or else the one that has given the handle out.
    fn user(&self) -> Option<Arc<Shared>> {
        place::current(&self.agent.node).or_else(|| self.inside.clone())
    }

    /// The agent's address.
    pub fn path(&self) -> &AgentPath {
        &self.agent.path
    }

    /// The agent without its type.
    pub fn agent_ref(&self) -> &AgentRef {
        &self.agent
    }

    /// Dispatches a run and waits for its outcome.
    ///
    /// The run is durable before anything of it is visible. With an id, a second dispatch of the
    /// same input joins the run, or returns how it ended. Inside a run, the outcome is recorded
    /// like a step's result, and an id that is left out derives from the run, so that a crash
    /// starts nothing twice. Outside a run, a new run waits here, with nothing recorded, while the
    /// system executes as many as its limits allow. Inside a run it is recorded at once, and waits
    /// for its place then; whoever waits for it gives its own place away meanwhile.
    ///
    /// # Errors
    /// The future resolves to [`Error::UnknownType`], [`Error::DifferentInput`],
    /// [`Error::WrongType`], [`Error::DifferentMode`], [`Error::CapExceeded`], invalid ids, payloads
    /// over their limits of bytes and of depth: nothing is written then; and to failures of the store.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the run, unless
    /// [`cancel_on_drop`](RunCall::cancel_on_drop) was asked for.
    pub fn run<C: Child>(&self, input: C::Input) -> RunCall<A, C> {
        RunCall::new(self.clone(), input)
    }

    /// Dispatches a run and returns its handle as soon as it is durable. Inside a run, whether that
    /// went well is recorded like a step's result.
    ///
    /// # Errors
    /// As [`AgentHandle::run`].
    ///
    /// # Cancel safety
    /// Dropped before it returned, the run may or may not have been dispatched.
    pub fn start<C: Child>(&self, input: C::Input) -> Start<A, C> {
        Start::new(self.clone(), input)
    }

    /// The handle of a run that was dispatched before; `None` if the id is not known.
    ///
    /// # Errors
    /// [`Error::WrongType`] when the run is of another type, an invalid id, failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn attach<C: Child>(&self, id: &str) -> Result<Option<Run<C>>, Error> {
        let run_id = RunId::new(id)?;
        let run = ghostlight_protocol::RunKey::new(&self.agent.path, &run_id);
        let _stays = crate::place::asking(&self.agent.node);
        let Some(stored) = Stored::read_key(&self.agent.node.committer, run).await? else {
            return Ok(None);
        };
        if stored.record.agent_type != C::TYPE {
            return Err(Error::WrongType {
                run_id: id.to_owned(),
                actual: stored.record.agent_type,
                asked: C::TYPE.to_owned(),
            });
        }
        Ok(Some(Run::new(self.agent.clone(), self.inside.clone(), run_id, true)))
    }

    /// Runs `body` as a turn of the agent: after everything that its turn queue holds, and before
    /// everything that comes later. For what must not run beside the agent's hooks.
    ///
    /// Only a turn that asks for its own queue itself is refused. One that waits for a run whose code
    /// takes a turn of the same agent waits for ever, and so do all behind it: nothing notices that.
    ///
    /// # Errors
    /// [`Error::OwnQueue`] from a turn of the same agent, [`Error::AgentDown`] when the turn panics,
    /// or the agent crashes meanwhile, which ends the turn where it stands.
    ///
    /// # Cancel safety
    /// Dropped, the turn runs all the same.
    pub async fn turn<T, F, Fut>(&self, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(AgentContext) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        turn(&self.agent.node, &self.agent.path, body).await
    }

    /// See [`AgentRef::inspect`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn inspect(&self, run_id: &str) -> Result<Option<Inspection>, Error> {
        self.agent.inspect(run_id).await
    }

    /// See [`AgentRef::cancel`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result<(), Error> {
        self.agent.cancel(run_id, reason).await
    }

    /// See [`AgentRef::tail`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn tail(&self, run_id: &str, after: After) -> Result<Tail, Error> {
        self.agent.tail(run_id, after).await
    }

    /// Whether a run of type `C` has this id, in any status.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn has_run<C: Child>(&self, run_id: &str) -> Result<bool, Error> {
        self.agent.has_run(C::TYPE, run_id).await
    }

    /// See [`AgentRef::list`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn list(
        &self,
        filter: &RunFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<RunPage, Error> {
        self.agent.list(filter, after, limit).await
    }

    /// See [`AgentRef::clear`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn clear(&self, filter: &RunFilter) -> Result<usize, Error> {
        self.agent.clear(filter).await
    }

    /// See [`AgentRef::evict`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn evict(&self) -> Result<(), Error> {
        self.agent.evict().await
    }
}

/// The options that both kinds of dispatch share.
macro_rules! dispatch_options {
    ($type:ident) => {
        impl<A: Agent, C: Child> $type<A, C> {
            /// Gives the run an id of 1 to 256 bytes. Dispatching an id again joins its run.
            pub fn id(mut self, id: impl Into<String>) -> Self {
                self.dispatch.options.id = Some(id.into());
                self
            }

            /// Groups the run with others of a tool call.
            pub fn parent_tool_call_id(mut self, id: impl Into<String>) -> Self {
                self.dispatch.options.parent_tool_call_id = Some(id.into());
                self
            }

            /// Sets the run's position among its siblings; 0 by default.
            pub fn display_order(mut self, order: i64) -> Self {
                self.dispatch.options.display_order = order;
                self
            }

            /// Says how observers show the run: a JSON object, carried opaquely.
            pub fn display(mut self, display: serde_json::Value) -> Self {
                self.dispatch.options.display = Some(display);
                self
            }

            /// Says what observers are shown of the input, in place of the input itself.
            pub fn input_preview(mut self, preview: serde_json::Value) -> Self {
                self.dispatch.options.input_preview = Some(preview);
                self
            }
        }
    };
}
pub(crate) use dispatch_options;

/// The id of a dispatch inside a run that leaves it out: derived from the run's code, so that a crash
/// starts nothing twice. Taken when the code asks for the dispatch, as [`Position`] is.
pub(crate) struct DispatchId(String);

impl DispatchId {
    fn take(shared: &Arc<Shared>, parent: &AgentPath) -> Self {
        let mut inner = shared.lock();
        let id = match inner.current_step.clone() {
            // Counted anew in every try of the step, which dispatches the same again.
            Some(step) => {
                let dispatches = inner.step_dispatches.entry(step.clone()).or_default();
                *dispatches += 1;
                format!("call-{step}-{}", *dispatches - 1)
            }
            None => format!("call-{}", inner.journal.next_dispatch()),
        };
        // Another agent has the dispatches of many runs.
        let id = if *parent == shared.path { id } else { format!("{}-{id}", hex(&shared.run.0)) };
        Self(cut_id(id))
    }
}

/// Turns an input into JSON and completes the options; `id` is for an id that was left out.
fn prepare<C: Child>(
    agent: &AgentRef,
    id: Option<DispatchId>,
    input: &C::Input,
    mut options: DispatchOptions,
) -> Result<crate::messages::StartRun, Error> {
    options.id = options.id.or(id.map(|id| id.0));
    let input = json::to_vec(INPUT, input).map_err(|error| match error {
        WriteError::TooDeep(error) => error.into(),
        WriteError::NoJson(error) => Error::Json {
            run_id: options.id.clone().unwrap_or_default(),
            what: "input",
            why: error.to_string(),
        },
    })?;
    agent.prepare(C::TYPE, input, options)
}
