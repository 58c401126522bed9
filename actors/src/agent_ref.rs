//! An agent by its address, without its type: what surfaces and tools use.

mod wait;

use std::sync::Arc;

use ghostlight_protocol::json::{self, WriteError};
use ghostlight_protocol::{AgentPath, RunId, RunKey, limits, preview};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) use self::wait::milestone_timeout;
use crate::Error;
use crate::agents::unless_gone;
use crate::frame_page::{self, FramePage, LogEnd};
use crate::info::{Inspection, parse_json};
use crate::lanes::{Stored, is_cleared};
use crate::list::{self, Cursor, Lookup, RunFilter, RunPage};
use crate::messages::{AgentMsg, RunRequest, StartRun, Started};
use crate::node::Node;
use crate::place::{self, Awaiting, Permit};
use crate::probe::{Answer, Seen};
use crate::tail::{After, Tail};

/// An agent by its address. Cheap to clone; holds nothing in memory.
#[derive(Clone)]
pub struct AgentRef {
    pub(crate) node: Arc<Node>,
    pub(crate) path: AgentPath,
}

/// The optional parts of a dispatch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DispatchOptions {
    /// The run's id; a fresh one of 12 letters and digits if it is left out.
    pub id: Option<String>,
    /// The tool call that the run belongs to; groups runs for observers.
    pub parent_tool_call_id: Option<String>,
    /// The run's position among its siblings.
    pub display_order: i64,
    /// How observers show the run: a JSON object of at most 2 KiB.
    pub display: Option<Value>,
    /// What observers are shown of the input, at most 4 KiB; derived from the input if it is left
    /// out, or `null`.
    pub input_preview: Option<Value>,
    /// Whether the run is meant to outlive whoever dispatches it.
    pub detached: bool,
}

/// The most bytes of a preview and of display data that a caller gives.
const PREVIEW_BYTES_MAX: usize = 4 << 10;
const DISPLAY_BYTES_MAX: usize = 2 << 10;

/// What errors call it.
pub(crate) const INPUT: &str = "the run's input";

/// A value as JSON.
fn value_json(what: &'static str, value: &Value) -> Result<Vec<u8>, Error> {
    json::to_vec(what, value).map_err(|error| match error {
        WriteError::TooDeep(error) => error.into(),
        WriteError::NoJson(error) => {
            Error::Json { run_id: String::new(), what, why: error.to_string() }
        }
    })
}

impl AgentRef {
    pub(crate) fn new(node: Arc<Node>, path: AgentPath) -> Self {
        Self { node, path }
    }

    /// The agent's address.
    pub fn path(&self) -> &AgentPath {
        &self.path
    }

    fn run_key(&self, run_id: &RunId) -> RunKey {
        RunKey::new(&self.path, run_id)
    }

    /// Asks about a run, also while the system drains: only a dispatch is new work.
    async fn ask<T>(
        &self,
        run_id: &RunId,
        mut request: impl FnMut(crate::messages::Reply<T>) -> RunRequest,
    ) -> Result<T, Error> {
        let message = |reply| AgentMsg::Run(run_id.clone(), request(reply));
        self.node.ask_inside(&self.path, message).await
    }

    /// Tells the probe what somebody is about to be told.
    fn answered(&self, run_id: &RunId, answer: Answer<'_>) {
        self.node.seen(Seen::Answered { agent: &self.path, run_id, answer });
    }

    /// Checks and completes a dispatch.
    pub(crate) fn prepare(
        &self,
        agent_type: &'static str,
        input: Vec<u8>,
        options: DispatchOptions,
    ) -> Result<StartRun, Error> {
        let limits = &self.node.limits;
        self.node.kinds.get(self.path.agent_type())?;
        self.node.kinds.child(agent_type)?;
        let run_id = match options.id {
            Some(id) => RunId::new(id)?,
            None => RunId::new(self.node.fresh_run_id())?,
        };
        self.path.child(agent_type, &run_id)?;
        limits::check(INPUT, input.len(), limits.input_bytes_max)?;
        limits::check_depth(INPUT, &input)?;
        let given = options.input_preview.filter(|preview| !preview.is_null());
        let preview = match given {
            Some(preview) => preview,
            None => preview::derived_preview(&parse_json(&input)),
        };
        let preview = value_json("the input preview", &preview)?;
        limits::check("the input preview", preview.len(), PREVIEW_BYTES_MAX)?;
        let display = options.display.map(|display| value_json("display", &display)).transpose()?;
        if let Some(display) = &display {
            limits::check("display", display.len(), DISPLAY_BYTES_MAX)?;
        }
        let tool_call = options.parent_tool_call_id;
        let tool_call_bytes = tool_call.as_ref().map_or(0, String::len);
        limits::check("the tool call's id", tool_call_bytes, limits::NAME_BYTES_MAX)?;
        let mut input_digest = [0; 16];
        input_digest.copy_from_slice(&Sha256::digest(&input)[..16]);
        Ok(StartRun {
            run_id,
            agent_type,
            input: Arc::new(input),
            input_digest,
            input_preview: Some(preview),
            display,
            display_order: options.display_order,
            parent_tool_call_id: tool_call.filter(|id| !id.is_empty()),
            detached: options.detached,
            permit: None,
        })
    }

    /// `inside`: whether the code of a run dispatches, wherever that is polled.
    pub(crate) async fn dispatch(&self, start: &StartRun, inside: bool) -> Result<Started, Error> {
        let permit = match inside || place::is_run(&self.node) {
            true => self.node.permit_now(),
            false => self.permit(&start.run_id).await?,
        };
        let start = StartRun { permit, ..start.clone() };
        let run_id = &start.run_id;
        let message = |reply| {
            AgentMsg::Run(run_id.clone(), RunRequest::Start(Box::new(start.clone()), reply))
        };
        let answer = self.node.ask(&self.path, message).await;
        match &answer {
            Ok(Started { already_existed, outcome }) => {
                let already_existed = *already_existed;
                self.answered(run_id, Answer::Dispatched { already_existed });
                if let Some(outcome) = outcome {
                    self.answered(run_id, Answer::Outcome(outcome));
                }
            }
            Err(error) => self.answered(run_id, Answer::NotDispatched(error)),
        }
        answer
    }

    /// Waits for a place for a new run. Nothing of the run is recorded before, so that whoever
    /// dispatches is held up as long as the system is full. Joining a run takes no place.
    async fn permit(&self, run_id: &RunId) -> Result<Permit, Error> {
        if self.node.is_draining() {
            return Err(Error::Stopped);
        }
        if let Some(permit) = self.node.permit_now() {
            return Ok(Some(permit));
        }
        let (committer, run) = (&self.node.committer, self.run_key(run_id));
        let known = Stored::read_key(committer, run).await?.is_some();
        if known || is_cleared(committer, run).await? {
            return Ok(None);
        }
        self.node.permit().await
    }

    /// Dispatches a run by the name of its type, with its input as JSON. Returns the run's id and
    /// whether it existed already.
    ///
    /// # Errors
    /// [`Error::UnknownType`], invalid ids, payloads over their limits, an id that belongs to another
    /// run, the cap, failures of the store. Nothing is written then.
    ///
    /// # Cancel safety
    /// Dropped before it returned, the run may or may not have been dispatched.
    pub async fn dispatch_json(
        &self,
        agent_type: &str,
        input: &Value,
        options: DispatchOptions,
    ) -> Result<(String, bool), Error> {
        let kind = Arc::clone(self.node.kinds.get(agent_type)?);
        let start = self.prepare(kind.name, value_json(INPUT, input)?, options)?;
        let started = self.dispatch(&start, false).await?;
        Ok((start.run_id.to_string(), started.already_existed))
    }

    /// A run as it stands; `None` if it is not known, or not known yet.
    ///
    /// # Errors
    /// An invalid id, failures of the store, a stopped system.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(&self, run_id: &str) -> Result<Option<Inspection>, Error> {
        let run_id = RunId::new(run_id)?;
        let inspection = self.ask(&run_id, RunRequest::Inspect).await?;
        self.answered(&run_id, Answer::Inspected(inspection.as_ref()));
        Ok(inspection)
    }

    /// Asks for a run to be cancelled. The request is durable when this returns; the run ends as
    /// `aborted` soon after. Unknown and ended runs are no error.
    ///
    /// # Errors
    /// An invalid id, failures of the store, a stopped system.
    ///
    /// # Cancel safety
    /// Dropped before it returned, the request may or may not have been recorded.
    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result<(), Error> {
        let run_id = RunId::new(run_id)?;
        self.ask(&run_id, |reply| RunRequest::Cancel(reason.to_owned(), reply)).await?;
        self.answered(&run_id, Answer::Cancelled);
        Ok(())
    }

    /// The frames of a run, from a point on.
    ///
    /// # Errors
    /// [`Error::UnknownRun`], an invalid id, failures of the store; [`Error::TailOutsideStep`] in the
    /// code of a run, see [`Tail`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn tail(&self, run_id: &str, after: After) -> Result<Tail, Error> {
        let run_id = RunId::new(run_id)?;
        if place::is_between_steps(&self.node) {
            return Err(Error::TailOutsideStep(run_id.to_string()));
        }
        self.shown(&run_id).await?.ok_or_else(|| Error::UnknownRun(run_id.to_string()))?;
        Ok(self.tail_known(&run_id, after))
    }

    pub(crate) fn tail_known(&self, run_id: &RunId, after: After) -> Tail {
        Tail::new(self, run_id.clone(), after)
    }

    /// Waits until a run may be shown; `None` for an unknown run.
    pub(crate) async fn shown(&self, run_id: &RunId) -> Result<Option<()>, Error> {
        let _awaiting = Awaiting::begin(&self.node);
        self.ask(run_id, RunRequest::Tail).await
    }

    /// Where a run's log ends, so far; straight from the store.
    ///
    /// # Errors
    /// [`Error::UnknownRun`], [`Error::Cleared`], an invalid id, failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn log_end(&self, run_id: &str) -> Result<LogEnd, Error> {
        let run_id = RunId::new(run_id)?;
        let _stays = place::asking(&self.node);
        let committer = &self.node.committer;
        let stored = frame_page::stored(committer, self.run_key(&run_id), &run_id).await?;
        Ok(LogEnd::from(&stored))
    }

    /// A page of at most `limit` frames of a run; it may hold fewer. Does not wait for frames that
    /// are still to come, but, as a tail does, for the start hook.
    ///
    /// # Errors
    /// [`Error::UnknownRun`], [`Error::Cleared`], [`Error::BeyondEnd`], an invalid id, failures of
    /// the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn frames(
        &self,
        run_id: &str,
        after: After,
        limit: usize,
    ) -> Result<FramePage, Error> {
        let run_id = RunId::new(run_id)?;
        let _stays = place::asking(&self.node);
        self.shown(&run_id).await?;
        frame_page::read(&self.node.committer, &self.path, &run_id, after, limit).await
    }

    /// What the registry has under an id, straight from the store.
    ///
    /// # Errors
    /// An invalid id, failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn lookup(&self, run_id: &str) -> Result<Lookup, Error> {
        let _stays = place::asking(&self.node);
        list::lookup(&self.node.committer, &self.path, &RunId::new(run_id)?).await
    }

    /// Whether a run has this id and this type, in any status.
    ///
    /// # Errors
    /// Failures of the store; an invalid id is simply no run.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn has_run(&self, agent_type: &str, run_id: &str) -> Result<bool, Error> {
        let Ok(run_id) = RunId::new(run_id) else { return Ok(false) };
        let _stays = place::asking(&self.node);
        let stored = Stored::read_key(&self.node.committer, self.run_key(&run_id)).await?;
        Ok(stored.is_some_and(|stored| stored.record.agent_type == agent_type))
    }

    /// Lists runs, oldest first, a page of at most `limit` at a time.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn list(
        &self,
        filter: &RunFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<RunPage, Error> {
        let _stays = place::asking(&self.node);
        list::list(&self.node.committer, &self.path, filter, after, limit).await
    }

    /// The ids of the runs that have begun, or wait for a slot, and have not ended. Costs as much as
    /// there are of those, whatever else is retained.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn unfinished(&self) -> Result<Vec<String>, Error> {
        let _stays = place::asking(&self.node);
        list::unfinished(&self.node.committer, &self.path).await
    }

    /// Clears runs: cancels those that live, and removes everything that is stored of them but
    /// their ids, which are never used again. Returns how many.
    ///
    /// # Errors
    /// [`Error::StillStopping`] when the code of a run does not return within twice its grace time, or
    /// a minute; failures of the store. What was cleared stays cleared.
    ///
    /// # Cancel safety
    /// Dropped, it has cleared some of them.
    pub async fn clear(&self, filter: &RunFilter) -> Result<usize, Error> {
        let _stays = place::asking(&self.node);
        let mut cleared = 0;
        let mut after = None;
        loop {
            let page = self.list(filter, after.as_ref(), 500).await?;
            for run in &page.runs {
                let run_id = RunId::new(&run.run_id)?;
                cleared +=
                    usize::from(self.ask(&run_id, |reply| RunRequest::Clear(reply, None)).await?);
                self.answered(&run_id, Answer::Cleared);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(cleared),
            }
        }
    }

    /// Brings the agent into memory, which any request does: the next ones are handled in the order
    /// in which they are made.
    ///
    /// # Errors
    /// Failures of the store, a stopped system.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn hydrate(&self) -> Result<(), Error> {
        let _stays = place::asking(&self.node);
        let agent = self.node.agent(&self.path).await;
        place::unless_stopped(&self.node, agent).await.map(|_| ())
    }

    /// Drops the agent from memory, once what it is doing is done. Its runs go on, and the next
    /// request brings it back.
    ///
    /// # Errors
    /// A stopped system.
    ///
    /// # Cancel safety
    /// Dropped, the agent may or may not leave memory.
    pub async fn evict(&self) -> Result<(), Error> {
        let _stays = place::asking(&self.node);
        let Some(actor) = self.node.agents.get(&self.path) else { return Ok(()) };
        let (reply, answer) = tokio::sync::oneshot::channel();
        if actor.cast(AgentMsg::Evict(reply)).is_ok() {
            // No answer: it has left meanwhile.
            let _ = unless_gone(&actor, answer).await;
        }
        Ok(())
    }
}
