//! What a run's code and its actor share: the journal, and the queue of what is to be recorded.
//!
//! The code runs in a task of its own and never waits for the mailbox. It queues what it has to
//! say here; the actor drains the queue into one commit at a time, and reports back what is durable.

mod owner;
mod standing;
mod wakers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use ghostlight_protocol::frame::ProgressData;
use ghostlight_protocol::journal::{Act, Acted, Call, CallError, Journal, Mismatch, Told, Wake};
use ghostlight_protocol::{AgentPath, Failure, RunId, RunKey};
use ghostlight_storage::payload::Payload;
use ghostlight_storage::records::{LogEntry, Origin, StoredCall};
use ractor::ActorRef;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::info::Progress;
use crate::messages::RunMsg;
use crate::node::Node;
use crate::past::Past;
use crate::text::cut_failure;
use crate::waits::Waiter;

use self::wakers::Wakers;

/// What a call completed with: the JSON of its result, or the step's error.
pub(crate) type CallResult = Result<Vec<u8>, Failure>;

/// What became durable, as far as the code waits for it; in the order of the log.
pub(crate) enum Done {
    Call(Call, CallResult),
    /// The next of the acts that are awaited.
    Act,
}

/// The part under the lock.
pub(crate) struct Inner {
    pub(crate) journal: Journal<CallResult>,
    pub(crate) queue: VecDeque<LogEntry>,
    queued_bytes: usize,
    /// How many entries were ever queued, and how many of them are durable.
    queued: u64,
    durable: u64,
    durable_wakers: BTreeMap<u64, Vec<Waker>>,
    room_wakers: Vec<Waker>,
    /// The waker of the code itself, once it was polled.
    code: Option<Waker>,
    call_wakers: Wakers<Call>,
    /// Whoever waits for the run's cancel, by number.
    cancel_wakers: Wakers<u64>,
    next_cancel: u64,
    /// The acts that are queued or on their way to the disk, and that the code waits for.
    pending_acts: VecDeque<Call>,
    /// The step whose body is being polled.
    pub(crate) current_step: Option<String>,
    /// How many dispatches the current try of each step has made.
    pub(crate) step_dispatches: BTreeMap<String, u64>,
    /// How many waits for other runs are open.
    pub(crate) waits: usize,
    /// How many of them do nothing but wait.
    settled: usize,
    /// When the sleeps that the code waits for are due, and the time limits of its waits, by number.
    pub(crate) sleeps: BTreeMap<u64, u64>,
    pub(crate) progress: Option<Progress>,
    /// The newest report that code has made which still repeats what the log has: see
    /// [`Inner::report_held`].
    held_progress: Option<Progress>,
    /// The last report that the log has.
    recorded_progress: Option<ProgressData>,
    /// The steps whose current try has emitted events.
    pub(crate) emitting: BTreeSet<String>,
    pub(crate) state: BTreeMap<String, Vec<u8>>,
    /// The recorded writes of the state that this entry has not repeated yet.
    pub(crate) past_states: VecDeque<(String, Option<Vec<u8>>)>,
    pub(crate) sources: BTreeMap<String, u64>,
    /// The actor was told that there is something to do.
    told: bool,
    /// Counts everything that the code does; an unchanged number means that it did nothing.
    activity: u64,
    /// Why nothing that the code asks for happens any more, once that is so.
    frozen: Option<Frozen>,
    /// The code stands still, and waits for nothing of its context.
    outside: bool,
    outside_told: bool,
    /// The code reads a stream from outside, whose offset is recorded: it may wait for that.
    pub(crate) reads_source: bool,
    /// How many waits of the code are the probe's.
    pub(crate) probed: usize,
    /// Why the code does not fit the log.
    mismatch: Option<Mismatch>,
}

/// Why a life of the code is over before the code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frozen {
    /// The run leaves memory to wait, and its waits go on outside.
    Suspended,
    /// The run is entered again, later or by another owner.
    Left,
    /// The run's end is decided.
    Ended,
}

/// Code that waits for timers and other runs, and does nothing of its own meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dormant {
    /// What the code has done so far; an unchanged number means that it did nothing since.
    pub(crate) activity: u64,
    /// When the first of its timers is due.
    pub(crate) due_ms: Option<u64>,
    /// How many of its waits are for other runs.
    pub(crate) waits: usize,
}

/// One life of a run's code, seen from both sides.
pub(crate) struct Shared {
    pub(crate) node: Arc<Node>,
    pub(crate) parent: AgentPath,
    pub(crate) path: AgentPath,
    pub(crate) run_id: RunId,
    pub(crate) run: RunKey,
    pub(crate) attempt: u32,
    /// The run is cancelled.
    pub(crate) cancelled: CancellationToken,
    /// Its code has been told that.
    pub(crate) token: CancellationToken,
    pub(crate) blocking: TaskTracker,
    /// How many waits of the code for other runs are open, journaled or not.
    pub(crate) awaiting: AtomicUsize,
    pub(crate) actor: OnceLock<ActorRef<RunMsg>>,
    inner: Mutex<Inner>,
}

impl Shared {
    #[allow(clippy::too_many_arguments, reason = "a constructor of plain parts")]
    pub(crate) fn new(
        node: Arc<Node>,
        parent: AgentPath,
        path: AgentPath,
        run_id: RunId,
        attempt: u32,
        past: Past,
    ) -> Self {
        let run = RunKey::new(&parent, &run_id);
        let inner = Inner {
            journal: Journal::new(past.log),
            queue: VecDeque::new(),
            queued_bytes: 0,
            queued: 0,
            durable: 0,
            durable_wakers: BTreeMap::new(),
            room_wakers: Vec::new(),
            code: None,
            call_wakers: Wakers::new(),
            cancel_wakers: Wakers::new(),
            next_cancel: 0,
            pending_acts: VecDeque::new(),
            current_step: None,
            step_dispatches: BTreeMap::new(),
            waits: 0,
            settled: 0,
            sleeps: BTreeMap::new(),
            progress: None,
            held_progress: None,
            recorded_progress: past
                .signals
                .progress
                .and_then(|progress| serde_json::from_value(progress).ok()),
            emitting: BTreeSet::new(),
            state: BTreeMap::new(),
            past_states: past.states,
            sources: past.sources,
            told: false,
            activity: 0,
            frozen: None,
            outside: false,
            outside_told: false,
            reads_source: false,
            probed: 0,
            mismatch: None,
        };
        Self {
            node,
            parent,
            path,
            run_id,
            run,
            attempt,
            cancelled: CancellationToken::new(),
            token: CancellationToken::new(),
            blocking: TaskTracker::new(),
            awaiting: AtomicUsize::new(0),
            actor: OnceLock::new(),
            inner: Mutex::new(inner),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // User code never runs under this lock, so that only a bug of ours could poison it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, message: RunMsg) {
        if let Some(actor) = self.actor.get() {
            // A dead actor means that this life is over; the task is about to be dropped.
            let _ = actor.cast(message);
        }
    }

    /// Queues an entry, and returns its number for [`Shared::poll_durable`].
    pub(crate) fn push(&self, inner: &mut Inner, entry: LogEntry) -> u64 {
        inner.activity += 1;
        // Code that another thread is polling while the system stops may notice that.
        if inner.frozen.is_some() || self.node.is_stopped() {
            // Never durable: whoever waits for it is about to be dropped.
            return u64::MAX;
        }
        inner.queued_bytes += entry.bytes();
        inner.queue.push_back(entry);
        inner.queued += 1;
        self.wake_actor(inner);
        inner.queued
    }

    pub(crate) fn wake_actor(&self, inner: &mut Inner) {
        if !std::mem::replace(&mut inner.told, true) {
            self.tell(RunMsg::Queued);
        }
    }

    /// Waits until an entry of `bytes` may be queued.
    pub(crate) fn poll_room(&self, inner: &mut Inner, cx: &Context<'_>) -> Poll<()> {
        if inner.queued_bytes < self.node.limits.queued_bytes_max {
            return Poll::Ready(());
        }
        if !inner.room_wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            inner.room_wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits until everything up to an entry's number is durable.
    pub(crate) fn poll_durable(&self, number: u64, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.frozen.is_some() {
            // What was queued may have been discarded.
            return Poll::Pending;
        }
        if inner.durable >= number {
            return Poll::Ready(());
        }
        let wakers = inner.durable_wakers.entry(number).or_default();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The number of the newest entry.
    pub(crate) fn newest(&self) -> u64 {
        self.lock().queued
    }

    /// Judges an act outside steps; a mismatch stops the code for good.
    pub(crate) fn act(&self, inner: &mut Inner, act: &Act) -> Option<Acted> {
        inner.activity += 1;
        match inner.journal.act(act) {
            Ok(acted) => Some(acted),
            Err(mismatch) => {
                self.mismatch(inner, mismatch);
                None
            }
        }
    }

    /// What the code was told last is of something else than it has asked for: the code ends here.
    pub(crate) fn differs(&self, log: String, code: String) {
        let mut inner = self.lock();
        let mismatch = inner.journal.differs(log, code);
        self.mismatch(&mut inner, mismatch);
    }

    /// Whether acts that are new stay in memory, and all that is queued behind them. Until the code has
    /// caught up with its log nobody knows whether it fits that: what code that does not fit has done
    /// must not be in the log of the code that does. A run that is cancelled never comes to better code.
    fn holds(&self, inner: &Inner) -> bool {
        !inner.journal.is_caught_up() && !self.token.is_cancelled()
    }

    /// Whether nothing that is queued becomes durable before the code has asked for more.
    fn is_stuck(&self, inner: &Inner) -> bool {
        let is_in_flight = inner.durable + (inner.queue.len() as u64) < inner.queued;
        let is_held = |entry| self.holds(inner) && !is_of_source(entry);
        !is_in_flight && inner.queue.front().is_some_and(is_held)
    }

    fn forget_held(&self, inner: &mut Inner) {
        if self.holds(inner) {
            inner.queue.clear();
        }
    }

    fn mismatch(&self, inner: &mut Inner, mismatch: Mismatch) {
        self.forget_held(inner);
        inner.frozen = Some(Frozen::Left);
        inner.mismatch = Some(mismatch.clone());
        self.tell(RunMsg::Mismatch(mismatch));
    }

    pub(crate) fn open(&self, call: &Call) -> Result<(), CallError> {
        let mut inner = self.lock();
        inner.activity += 1;
        inner.journal.open(call)
    }

    /// Queues an act that the code has done outside steps, and is new.
    pub(crate) fn push_act(&self, inner: &mut Inner, act: &Act, number: u64, entry: LogEntry) {
        let queued = self.push(inner, entry);
        if act.is_awaited() && queued != u64::MAX {
            inner.pending_acts.push_back(Call::Act(number));
        }
    }

    /// Waits until an act is durable, and its turn in the log's order has come.
    pub(crate) async fn acted(&self, number: u64) {
        let call = Call::Act(number);
        let _open = Open { shared: self, call: &call };
        poll_fn(|cx| match self.poll_call(&call, cx) {
            Told::Ready(_) => Poll::Ready(()),
            // There is nothing to execute: it is on its way to the disk.
            Told::Execute | Told::Pending => Poll::Pending,
        })
        .await;
    }

    /// Asks the journal about a call, and registers the waker where it has to wait.
    pub(crate) fn poll_call(&self, call: &Call, cx: &Context<'_>) -> Told<CallResult> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.frozen.is_some() {
            return Told::Pending;
        }
        let told = inner.journal.poll(call);
        match &told {
            Told::Ready(_) => {
                inner.activity += 1;
                inner.call_wakers.remove(call, inner.code.as_ref());
            }
            Told::Execute => inner.activity += 1,
            Told::Pending => {}
        }
        if !matches!(told, Told::Ready(_)) {
            inner.call_wakers.insert(call.clone(), cx.waker(), inner.code.as_ref());
        }
        told
    }

    /// The future of a call was dropped.
    pub(crate) fn close(&self, call: &Call) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.activity += 1;
        inner.call_wakers.remove(call, inner.code.as_ref());
        if let Call::Sleep(ordinal) = call {
            inner.sleeps.remove(ordinal);
        }
        inner.journal.close(call);
    }

    /// Records the completion of a call. Its future is woken once that is durable.
    pub(crate) fn complete(&self, call: &Call, result: CallResult) {
        let mut inner = self.lock();
        if let Call::Sleep(ordinal) = call {
            inner.sleeps.remove(ordinal);
        }
        let entry = match (call, result) {
            (Call::Step(step), Err(failure)) => {
                let Failure { message, kind, permanent } = cut_failure(failure);
                LogEntry::StepFailed { step: step.clone(), message, kind, permanent }
            }
            (call, result) => {
                // Acts are entries themselves.
                let Some(call) = StoredCall::new(call.clone()) else { return };
                // Only steps fail: a wait completes with an outcome, whatever that is.
                LogEntry::Completed { call, result: Payload::Inline(result.unwrap_or_default()) }
            }
        };
        self.push(&mut inner, entry);
    }

    /// Reports progress once the code does new things, as what it does about its cancel is.
    pub(crate) fn report(&self, progress: Progress) {
        let mut inner = self.lock();
        if self.holds(&inner) {
            inner.held_progress = Some(progress);
        } else {
            inner.progress = Some(progress);
            self.wake_actor(&mut inner);
        }
    }

    /// See [`Inner::dormant`].
    pub(crate) fn dormant(&self) -> Option<Dormant> {
        self.lock().dormant()
    }

    /// How the run is known to whoever wakes it.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { run: self.run, parent: self.parent.clone(), run_id: self.run_id.clone() }
    }

    /// One more wait does nothing but wait.
    pub(crate) fn settled(&self) {
        let mut inner = self.lock();
        inner.activity += 1;
        inner.settled += 1;
    }

    /// The future of a wait for another run is gone. Returns whether the wait goes on outside.
    pub(crate) fn unsettled(&self, settled: bool) -> bool {
        let mut inner = self.lock();
        inner.activity += 1;
        inner.settled -= usize::from(settled);
        inner.frozen == Some(Frozen::Suspended)
    }

    /// The time limit of a wait is over, or the wait is.
    pub(crate) fn limit_over(&self, ordinal: u64) {
        let mut inner = self.lock();
        inner.activity += 1;
        inner.sleeps.remove(&ordinal);
    }
}

/// Whether the entry was read from an outside stream, which goes on where the log says, whatever the
/// code is: it has no place among what the code repeats.
fn is_of_source(entry: &LogEntry) -> bool {
    matches!(entry, LogEntry::Chunk { origin: Origin::Source { .. }, .. })
}

/// Tells the journal when the future of a call is dropped.
struct Open<'a> {
    shared: &'a Shared,
    call: &'a Call,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.close(self.call);
    }
}

impl Inner {
    fn take_wakers(&mut self, wake: Wake) -> Vec<Waker> {
        match wake {
            Wake::Nobody => Vec::new(),
            Wake::One(call) => {
                self.call_wakers.remove(&call, self.code.as_ref()).into_iter().collect()
            }
            Wake::All => self.call_wakers.take_all().collect(),
        }
    }

    /// Whether the code waits for something that its context has given it.
    fn waits_for_context(&self) -> bool {
        self.journal.is_waiting() || self.waits_for_disk() || !self.cancel_wakers.is_empty()
    }

    /// Whether the code waits for room, or for what it has queued to be durable.
    fn waits_for_disk(&self) -> bool {
        !self.durable_wakers.is_empty() || !self.room_wakers.is_empty()
    }

    pub(crate) fn write_state(&mut self, key: &str, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.state.insert(key.to_owned(), value),
            None => self.state.remove(key),
        };
    }

    /// The code repeats nothing any more. What it has reported since it was told the last recorded
    /// result may have been lost with the process, or else is what the log has last. Returns whether
    /// there is something to report.
    fn report_held(&mut self) -> bool {
        let Some(held) = self.held_progress.take() else { return false };
        let recorded = self.recorded_progress.take();
        let recorded = recorded.map(|recorded| ProgressData { at_ms: held.data.at_ms, ..recorded });
        if recorded.as_ref() == Some(&held.data) {
            return false;
        }
        self.progress = Some(held);
        true
    }

    /// How the code waits, if it waits for timers and other runs, and nothing of its own is in
    /// flight.
    fn dormant(&self) -> Option<Dormant> {
        let dormant = self.frozen.is_none()
            && self.journal.is_standing()
            && (!self.sleeps.is_empty() || self.settled > 0)
            && self.queue.is_empty()
            && self.queued == self.durable
            && self.progress.is_none()
            && self.waits == self.settled
            && self.journal.is_caught_up()
            && !self.journal.is_busy();
        let due_ms = self.sleeps.values().min().copied();
        dormant.then_some(Dormant { activity: self.activity, due_ms, waits: self.settled })
    }
}
