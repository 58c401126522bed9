//! The actor of one run: the only writer of its record and its log while it lives.
//!
//! It runs no user code: that is in a task of its own, so that the mailbox answers while the code
//! works or hangs. One commit is in flight at a time; what the code queues meanwhile goes with the
//! next one. Nothing is told to anybody before it is durable.

mod commit;
pub(crate) mod ending;
mod probed;

use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::RunState;
use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::run::Event;
use ghostlight_storage::records::RunRecord;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::commit::InFlight;
use self::ending::Ending;
use self::probed::Probed;
use crate::code::Code;
use crate::finalise::Decided;
use crate::frames::FrameMaker;
use crate::info::{Inspection, run_info};
use crate::lanes::joins;
use crate::live_runs::CodeTask;
use crate::log::{self, of_run};
use crate::log_writer::LogWriter;
use crate::messages::{CodeEnd, Reply, RunMsg, StartRun, Started};
use crate::past::Signals;
use crate::place::Permit;
use crate::probe::{At, Seen};
use crate::registry::ErasedChild;
use crate::shared::{Frozen, Shared};
use crate::{Error, RunContext};

pub(crate) use self::commit::done;

pub(crate) struct RunActor;

/// How long a task that was dropped may take to be gone before it counts as blocked.
const DROP_WAIT: Duration = Duration::from_millis(100);

/// How long a cancel waits before it tries again to reach all descendants.
const CASCADE_RETRY: Duration = Duration::from_secs(1);

/// What a run's actor starts with: everything was read, and its epoch is durable.
pub(crate) struct RunArgs {
    pub(crate) shared: Arc<Shared>,
    pub(crate) child: Arc<dyn ErasedChild>,
    pub(crate) input: Vec<u8>,
    pub(crate) record: RunRecord,
    pub(crate) record_revision: u64,
    pub(crate) writer: LogWriter,
    pub(crate) signals: Signals,
    /// Set when the run only has to be ended: its code is not entered.
    pub(crate) decided: Option<Decided>,
    /// A place among the runs that the system executes at once.
    pub(crate) permit: Permit,
}

pub(crate) struct RunActorState {
    shared: Arc<Shared>,
    record: RunRecord,
    /// The record as the store has it: what is not durable is nobody's business.
    stored: RunRecord,
    record_revision: u64,
    /// The record has changed since it was last written.
    record_dirty: bool,
    writer: LogWriter,
    frames: FrameMaker,
    signals: Signals,
    code: Option<AbortHandle>,
    in_flight: Option<InFlight>,
    /// Why nothing can be recorded any more, once the run is lost.
    lost_to: Option<Error>,
    /// A commit was over a limit of the store.
    refused: bool,
    ending: Ending,
    /// Why the actor stops, once it does.
    left: &'static str,
    /// Whoever waits for a cancel to be durable.
    cancel_replies: Vec<Reply<()>>,
    /// How many rounds of cancelling descendants are under way; the end waits for them.
    cascades: usize,
    progress_at: Option<Instant>,
    progress_timer: bool,
    /// A timer that judges dormancy is under way.
    dormant_timer: bool,
    /// The timer of a cancel.
    grace: Option<AbortOnDropHandle<Option<()>>>,
}

impl Actor for RunActor {
    type Msg = RunMsg;
    type State = RunActorState;
    type Arguments = RunArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<RunMsg>,
        args: RunArgs,
    ) -> Result<RunActorState, ActorProcessingErr> {
        let RunArgs {
            shared,
            child,
            input,
            record,
            record_revision,
            writer,
            signals,
            decided,
            permit,
        } = args;
        // The cell is empty: every life of a run has a `Shared` of its own.
        let _ = shared.actor.set(myself.clone());
        shared.node.live.insert(&shared.parent, &shared.run_id, myself.clone());
        let frames = FrameMaker::new(&record);
        let mut state = RunActorState {
            shared,
            stored: record.clone(),
            record,
            record_revision,
            record_dirty: false,
            writer,
            frames,
            signals,
            code: None,
            in_flight: None,
            lost_to: None,
            refused: false,
            ending: Ending::Working,
            left: ending::ENDED,
            cancel_replies: Vec::new(),
            cascades: 0,
            progress_at: None,
            progress_timer: false,
            dormant_timer: false,
            grace: None,
        };
        // The process was lost between the request and the end.
        let cancelling = state.record.state.cancelling && !planted(Planted::ForgetCancel);
        if let Some(decided) = decided {
            state.ending = Ending::Decided(decided);
            if cancelling {
                state.cascade(&myself);
            }
            let _ = myself.cast(RunMsg::Queued);
        } else {
            if state.apply(Event::Started) {
                // Nothing waits for it, but it is not left for the code's first entry.
                let _ = myself.cast(RunMsg::Queued);
            }
            if cancelling {
                // Before the code is entered: if it has nothing to repeat, it never finds itself not
                // cancelled.
                state.cancel_is_durable(&myself);
            }
            state.enter(&myself, child, input, permit);
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<RunMsg>,
        message: RunMsg,
        state: &mut RunActorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RunMsg::Queued | RunMsg::ProgressDue => {
                if matches!(message, RunMsg::ProgressDue) {
                    state.progress_timer = false;
                }
                state.pump(&myself);
            }
            RunMsg::Committed(result) => state.committed(&myself, result),
            RunMsg::CodeEnded(end) => state.code_ended(&myself, end),
            RunMsg::Dormant => state.dormant(&myself),
            RunMsg::StillDormant(before) => state.still_dormant(&myself, before),
            RunMsg::Mismatch(mismatch) => state.mismatch(&myself, mismatch),
            RunMsg::GraceOver => state.grace_over(&myself),
            RunMsg::Overdue => state.overdue(&myself),
            RunMsg::Cascaded => {
                state.cascades = state.cascades.saturating_sub(1);
                state.pump(&myself);
            }
            RunMsg::Start(start, reply) => state.start(&start, reply),
            RunMsg::Inspect(reply) => {
                let _ = reply.send(state.inspection().map(Some));
            }
            RunMsg::Cancel(reason, reply) => state.cancel(&myself, reason, reply),
            RunMsg::Tail(reply) => {
                let _ = reply.send(Ok(Some(())));
            }
        }
        Ok(())
    }
}

impl RunActorState {
    /// Enters the code.
    fn enter(
        &mut self,
        myself: &ActorRef<RunMsg>,
        child: Arc<dyn ErasedChild>,
        input: Vec<u8>,
        permit: Permit,
    ) {
        let shared = Arc::clone(&self.shared);
        let span = log::run(&shared);
        self.shared.node.seen(Seen::Entered { run: &shared.path, attempt: shared.attempt });
        if planted(Planted::ResumeTwice) && shared.attempt > 1 {
            self.shared.node.seen(Seen::Entered { run: &shared.path, attempt: shared.attempt });
        }
        let mut body = child.run(RunContext { shared: Arc::clone(&shared) }, input);
        if let Some(first) = shared.before_code(At::Entry) {
            body = Box::pin(async move {
                first.await;
                body.await
            });
        }
        if shared.node.has_probe() {
            body = Box::pin(Probed { body, shared: Arc::clone(&shared) });
        }
        let code = Code::new(body, Arc::clone(&shared), permit);
        let task = shared.node.spawn(tracing::Instrument::instrument(code, span));
        self.code = Some(task.abort_handle());
        let gone = CancellationToken::new();
        let code = CodeTask {
            task: task.abort_handle(),
            shared: Arc::downgrade(&shared),
            gone: gone.clone(),
        };
        shared.node.live.entered(shared.run, code);
        let myself = myself.clone();
        // The code has ended when its task has, and every blocking call it has made.
        self.shared.node.spawn(async move {
            let end = match task.await {
                Ok(Some(end)) => end,
                Ok(None) | Err(_) => CodeEnd::Dropped,
            };
            shared.blocking.close();
            shared.blocking.wait().await;
            shared.node.seen(Seen::Left { run: &shared.path });
            gone.cancel();
            let _ = myself.cast(RunMsg::CodeEnded(end));
        });
    }

    fn abort_code(&mut self) {
        if let Some(code) = &self.code {
            code.abort();
        }
    }

    /// Drops the code of a cancelled run, and gives the drop a moment.
    fn grace_over(&mut self, myself: &ActorRef<RunMsg>) {
        self.abort_code();
        let actor = myself.clone();
        self.shared.node.spawn(async move {
            tokio::time::sleep(DROP_WAIT).await;
            let _ = actor.cast(RunMsg::Overdue);
        });
    }

    /// The code blocks its thread and cannot be dropped: nobody waits for it any longer.
    fn overdue(&mut self, myself: &ActorRef<RunMsg>) {
        if matches!(self.ending, Ending::Working) && self.state().cancelling {
            self.end_without_code(myself);
        }
    }

    /// Ends a cancelled run whose code is being dropped, and may block its thread.
    fn end_without_code(&mut self, myself: &ActorRef<RunMsg>) {
        self.shared.stop(Frozen::Ended);
        self.ending = Ending::Decided(Decided::Aborted);
        self.cascade(myself);
    }

    fn apply(&mut self, event: Event) -> bool {
        match self.record.state.apply(event) {
            Ok(next) => {
                self.record.state = next;
                self.record_dirty = true;
                true
            }
            Err(_) => false,
        }
    }

    /// Lets a dispatch of the run's id join it.
    fn start(&self, start: &StartRun, reply: Reply<Started>) {
        if self.is_gone() {
            // Dropped unanswered, as a cancel is.
            return;
        }
        if let Some(error) = &self.lost_to {
            let _ = reply.send(Err(error.clone()));
            return;
        }
        // After the end the actor is here for its code alone.
        let stopping = matches!(self.ending, Ending::Ended);
        let joined = joins(&self.stored, start, stopping);
        let _ = reply.send(joined.map(|()| Started { already_existed: true, outcome: None }));
    }

    fn cancel(&mut self, myself: &ActorRef<RunMsg>, reason: String, reply: Reply<()>) {
        if self.is_gone() {
            // Dropped unanswered: the parent decides again once this actor is gone.
            return;
        }
        // Once all is over, the actor is here for its code alone, which blocks its thread.
        if matches!(self.ending, Ending::Lost) {
            let _ = reply.send(Err(self.lost_to.clone().unwrap_or(Error::Stopped)));
            return;
        }
        assert!(!planted(Planted::PanicInActor), "planted");
        if planted(Planted::SwallowCancel) {
            let _ = reply.send(Ok(()));
            return;
        }
        if self.cancel_replies.len() >= 8 && self.cancel_replies.len().is_power_of_two() {
            self.cancel_replies.retain(|asker| !asker.is_closed());
        }
        self.cancel_replies.push(reply);
        if matches!(self.ending, Ending::Ended) {
            return self.answer_cancels();
        }
        if self.ending.is_decided() && !self.record.state.cancelling {
            // The end is on its way to the disk: it came first, and is the answer once it is there.
            return;
        }
        if self.record.state.cancelling {
            if self.in_flight.is_none() {
                self.answer_cancels();
            }
            return;
        }
        if self.apply(Event::CancelRequested) {
            self.record.cancel = Some(crate::text::cut(&reason, crate::text::REASON_BYTES_MAX));
        }
        if self.ending.is_leaving() {
            // As a run outside memory, which it almost is.
            self.end_without_code(myself);
        }
        self.pump(myself);
    }

    /// The run leaves memory, and has only its commit to wait for. Before, it may have to wait for code
    /// that blocks its thread, and whoever asks is not left to wait for that.
    fn is_gone(&self) -> bool {
        self.ending.is_leaving() && self.code.is_none()
    }

    fn answer_cancels(&mut self) {
        for reply in self.cancel_replies.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// The request is durable: tells the code and its descendants, and starts the grace time.
    fn cancel_is_durable(&mut self, myself: &ActorRef<RunMsg>) {
        self.answer_cancels();
        if !self.shared.cancel() {
            return;
        }
        let (node, actor) = (Arc::clone(&self.shared.node), myself.clone());
        // Ends with the actor, since the grace may be longer than anything else.
        self.grace = Some(AbortOnDropHandle::new(self.shared.node.spawn(async move {
            tokio::time::sleep(node.limits.cancel_grace).await;
            let _ = actor.cast(RunMsg::GraceOver);
        })));
        self.cascade(myself);
    }

    /// Cancels the live runs that this run has dispatched and awaits; the end waits for it. What
    /// fails is tried again: the request is durable, so that the next owner of the run goes on with
    /// it if this life ends before.
    fn cascade(&mut self, myself: &ActorRef<RunMsg>) {
        self.cascades += 1;
        let (shared, actor) = (Arc::clone(&self.shared), myself.clone());
        let reason = self.record.cancel.clone().unwrap_or_default();
        self.shared.node.spawn(async move {
            while let Err(error) = crate::cascade::cancel_children(&shared, &reason).await {
                of_run!(warn, shared, %error, "a cancel did not reach all descendants");
                if shared.node.failure().is_some() {
                    // The store refuses the end as well, and the run is left to the next start.
                    break;
                }
                tokio::time::sleep(CASCADE_RETRY).await;
            }
            let _ = actor.cast(RunMsg::Cascaded);
        });
    }

    /// As the store has the run: what is not durable is nobody's business.
    fn inspection(&self) -> Result<Inspection, Error> {
        let head = self.in_flight.as_ref().map_or(self.writer.head, InFlight::head_before);
        Ok(Inspection {
            run: run_info(&self.stored)?,
            output: None,
            progress: self.signals.progress.clone(),
            milestones: self.signals.milestones.clone(),
            queue_position: None,
            next_sequence: head.next_number,
        })
    }

    fn state(&self) -> RunState {
        self.record.state
    }
}
