//! The journal of a run: what its code has been told so far, and in which order.
//!
//! User code is entered again after a crash. It then asks for the same things as before, and must
//! be told the same, in the same order, so that it takes the same branches. The journal is the pure
//! rule of that: it is fed with the log at entry, asked by every call that the code makes, and
//! told of every completion once that is durable.
//!
//! Completions are *released* to the code one at a time in log order, in life and on re-entry
//! alike: the next one when the one before was taken, when its future was dropped, or when the
//! code was polled to a standstill without taking it. That last case is code that holds a future
//! without polling it; it is a function of the order of releases alone, so it repeats.

use std::collections::{BTreeMap, VecDeque};

/// Something a run's code waits for, and that is recorded when it completes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// The step of this key.
    Step(String),
    /// The nth sleep of the entry.
    Sleep(u64),
    /// The nth wait of the entry for another run: its outcome, or one of its milestones.
    Wait(u64),
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(key) => write!(f, "step {key:?}"),
            Self::Sleep(n) => write!(f, "sleep number {n}"),
            Self::Wait(n) => write!(f, "wait number {n} for another run"),
        }
    }
}

/// Something that the code does outside steps and that has a place in the log of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A chunk.
    Chunk,
    /// A milestone of this name.
    Milestone(String),
    /// A write of this key of the run's state.
    State(String),
}

impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Chunk => f.write_str("a chunk"),
            Self::Milestone(name) => write!(f, "milestone {name:?}"),
            Self::State(key) => write!(f, "a write of state {key:?}"),
        }
    }
}

/// One entry of the log, as far as it matters to a re-entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded<R> {
    /// The code did this outside steps.
    Act(Act),
    /// This call completed with this result.
    Completed(Call, R),
    /// The nth sleep is due at this wall-clock time.
    SleepSet(u64, u64),
    /// So many tries of a step have failed.
    Tried(String, u32),
    /// An event of a step that had not completed when it was recorded.
    StepEvent(String),
}

/// The code asks for something else than the log has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "journal mismatch at entry {entry}: the log has {log}, the code asks for {code}; code between steps must be deterministic, and a run in flight needs the code it began with"
)]
pub struct Mismatch {
    /// Which entry of the journal, from 0.
    pub entry: u64,
    /// What the log has there.
    pub log: String,
    /// What the code asks for.
    pub code: String,
}

/// Why a call cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A step key was used twice in one entry.
    #[error(
        "{0} was already used in this run; every step needs a key of its own, for instance (\"part\", n)"
    )]
    Reused(Call),
}

/// What a call is told when it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told<R> {
    /// The recorded result; the call is spent.
    Ready(R),
    /// The log has nothing of this call: execute it, and report the completion. Said once.
    Execute,
    /// Ask again when woken.
    Pending,
}

/// What an act outside steps is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acted {
    /// The log has it: append nothing.
    Recorded,
    /// It is new: append it.
    Append,
}

/// Which calls have reason to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// None.
    Nobody,
    /// This one: its completion was released.
    One(Call),
    /// All: the recorded past is over.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Asked for; nothing executes it yet.
    Open,
    /// Being executed.
    Executing,
    /// Taken, or its future was dropped.
    Spent,
}

#[derive(Debug)]
struct Completion<R> {
    call: Call,
    result: R,
    /// The entry's place in the log, if it is of an earlier entry of the code.
    recorded: Option<u64>,
}

/// The state of one entry of the code. See the module's text.
#[derive(Debug)]
pub struct Journal<R> {
    acts: Vec<Act>,
    acts_done: usize,
    /// In log order; the first `released` may be taken.
    completions: VecDeque<Completion<R>>,
    released: usize,
    /// Every recorded completion has had its turn: what is not in the log may be executed.
    caught_up: bool,
    calls: BTreeMap<Call, Standing>,
    sleeps: BTreeMap<u64, u64>,
    tries: BTreeMap<String, u32>,
    /// Entries of the steps that left events without a result, by step.
    torn: BTreeMap<String, u32>,
    next_sleep: u64,
    next_wait: u64,
    next_dispatch: u64,
}

impl<R> Journal<R> {
    /// The journal of an entry into code that has this log behind it; empty for the first one.
    pub fn new(log: impl IntoIterator<Item = Recorded<R>>) -> Self {
        let mut journal = Self {
            acts: Vec::new(),
            acts_done: 0,
            completions: VecDeque::new(),
            released: 0,
            caught_up: false,
            calls: BTreeMap::new(),
            sleeps: BTreeMap::new(),
            tries: BTreeMap::new(),
            torn: BTreeMap::new(),
            next_sleep: 0,
            next_wait: 0,
            next_dispatch: 0,
        };
        for (entry, recorded) in log.into_iter().enumerate() {
            match recorded {
                Recorded::Act(act) => journal.acts.push(act),
                Recorded::Completed(call, result) => {
                    if let Call::Step(key) = &call {
                        journal.torn.remove(key);
                    }
                    let recorded = Some(entry as u64);
                    journal.completions.push_back(Completion { call, result, recorded });
                }
                Recorded::SleepSet(ordinal, due_ms) => {
                    journal.sleeps.insert(ordinal, due_ms);
                }
                Recorded::Tried(step, tries) => {
                    journal.tries.insert(step, tries);
                }
                Recorded::StepEvent(step) => *journal.torn.entry(step).or_default() += 1,
            }
        }
        journal.released = journal.completions.len().min(1);
        journal.caught_up = journal.completions.is_empty();
        journal
    }

    /// Makes a call known. A call asks through [`Journal::poll`] from then on.
    ///
    /// # Errors
    /// [`CallError::Reused`] when this entry has made the same call before, even if its future
    /// was dropped.
    pub fn open(&mut self, call: &Call) -> Result<(), CallError> {
        if self.calls.contains_key(call) {
            return Err(CallError::Reused(call.clone()));
        }
        self.calls.insert(call.clone(), Standing::Open);
        Ok(())
    }

    /// Answers a call that was opened. [`Told::Ready`] spends it.
    pub fn poll(&mut self, call: &Call) -> (Told<R>, Wake) {
        let place = self.completions.iter().take(self.released).position(|c| c.call == *call);
        if let Some(completion) = place.and_then(|place| self.completions.remove(place)) {
            self.released -= 1;
            self.calls.insert(call.clone(), Standing::Spent);
            return (Told::Ready(completion.result), self.release());
        }
        match self.calls.get_mut(call) {
            Some(standing @ Standing::Open)
                if self.caught_up && !self.completions.iter().any(|c| c.call == *call) =>
            {
                *standing = Standing::Executing;
                (Told::Execute, Wake::Nobody)
            }
            _ => (Told::Pending, Wake::Nobody),
        }
    }

    /// Records that the future of a call was dropped: whatever it completes with is for nobody.
    pub fn close(&mut self, call: &Call) -> Wake {
        self.calls.insert(call.clone(), Standing::Spent);
        self.release()
    }

    /// Adds the completion of an executed call, once it is durable.
    pub fn complete(&mut self, call: Call, result: R) -> Wake {
        self.completions.push_back(Completion { call, result, recorded: None });
        self.release()
    }

    /// Judges an act outside steps, the next in the order of the code.
    ///
    /// # Errors
    /// [`Mismatch`] when the log has another act in that place.
    pub fn act(&mut self, act: &Act) -> Result<Acted, Mismatch> {
        let Some(recorded) = self.acts.get(self.acts_done) else { return Ok(Acted::Append) };
        if recorded != act {
            return Err(Mismatch {
                entry: self.acts_done as u64,
                log: recorded.to_string(),
                code: act.to_string(),
            });
        }
        self.acts_done += 1;
        Ok(Acted::Recorded)
    }

    /// Called when the code was polled to a standstill: nothing woke it meanwhile.
    ///
    /// # Errors
    /// [`Mismatch`] when the code waits for something that the log does not have while the log has
    /// completions that it never asked for; it would wait for ever.
    pub fn standstill(&mut self) -> Result<Wake, Mismatch> {
        if self.released < self.completions.len() {
            self.released += 1;
            let call = self.completions[self.released - 1].call.clone();
            return Ok(Wake::One(call));
        }
        if self.caught_up {
            return Ok(Wake::Nobody);
        }
        let Some((entry, unasked)) = self.unasked() else {
            self.caught_up = true;
            return Ok(Wake::All);
        };
        let waiting = self.calls.iter().find(|(call, standing)| {
            **standing == Standing::Open && !self.completions.iter().any(|c| c.call == **call)
        });
        match waiting {
            Some((code, _)) => {
                Err(Mismatch { entry, log: unasked.to_string(), code: code.to_string() })
            }
            // It waits for something outside the journal, and may still ask.
            None => Ok(Wake::Nobody),
        }
    }

    /// Called when the code has returned.
    ///
    /// # Errors
    /// [`Mismatch`] when the log has more than the code has asked for.
    pub fn finish(&self) -> Result<(), Mismatch> {
        let code = "its end".to_owned();
        if let Some((entry, call)) = self.unasked() {
            return Err(Mismatch { entry, log: call.to_string(), code });
        }
        match self.acts.get(self.acts_done) {
            Some(act) => Err(Mismatch { entry: self.acts_done as u64, log: act.to_string(), code }),
            None => Ok(()),
        }
    }

    /// Whether everything the log has was released: from here on the code does new things.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Whether a step's body executes, or a completion waits to be taken.
    pub fn is_busy(&self) -> bool {
        !self.completions.is_empty()
            || self
                .calls
                .iter()
                .any(|(call, s)| matches!(call, Call::Step(_)) && *s != Standing::Spent)
    }

    /// When the nth sleep is due, if the log says so.
    pub fn sleep_due(&self, ordinal: u64) -> Option<u64> {
        self.sleeps.get(&ordinal).copied()
    }

    /// How many tries of a step have failed, and are recorded.
    pub fn tries(&self, step: &str) -> u32 {
        self.tries.get(step).copied().unwrap_or(0)
    }

    /// Counts one more failed try of a step, and returns how many there are.
    pub fn failed_once_more(&mut self, step: &str) -> u32 {
        let tries = self.tries.entry(step.to_owned()).or_default();
        *tries += 1;
        *tries
    }

    /// Marks that a step has events of a try that failed: see [`Journal::take_torn`].
    pub fn tear(&mut self, step: &str) {
        *self.torn.entry(step.to_owned()).or_default() += 1;
    }

    /// Whether an earlier entry left events of this unfinished step in the log, so that events of
    /// the next try must follow a mark. True at most once a step.
    pub fn take_torn(&mut self, step: &str) -> bool {
        self.torn.remove(step).is_some()
    }

    /// The number of the next sleep.
    pub fn next_sleep(&mut self) -> u64 {
        post_increment(&mut self.next_sleep)
    }

    /// The number of the next wait for another run.
    pub fn next_wait(&mut self) -> u64 {
        post_increment(&mut self.next_wait)
    }

    /// The number of the next dispatch, from which an id that was left out derives.
    pub fn next_dispatch(&mut self) -> u64 {
        post_increment(&mut self.next_dispatch)
    }

    /// The first recorded completion that no call has asked for.
    fn unasked(&self) -> Option<(u64, &Call)> {
        self.completions
            .iter()
            .filter_map(|c| Some((c.recorded?, &c.call)))
            .find(|(_, call)| !self.calls.contains_key(call))
    }

    /// Drops what nobody wants from the front, and releases the next completion if none is.
    fn release(&mut self) -> Wake {
        let calls = &self.calls;
        let spent = |c: &Completion<R>| calls.get(&c.call) == Some(&Standing::Spent);
        while self.released > 0 && self.completions.front().is_some_and(spent) {
            self.completions.pop_front();
            self.released -= 1;
        }
        while self.released == 0 && self.completions.front().is_some_and(spent) {
            self.completions.pop_front();
        }
        if self.released == 0 && !self.completions.is_empty() {
            self.released = 1;
            return Wake::One(self.completions[0].call.clone());
        }
        if !self.caught_up && !self.completions.iter().any(|c| c.recorded.is_some()) {
            self.caught_up = true;
            return Wake::All;
        }
        Wake::Nobody
    }
}

fn post_increment(counter: &mut u64) -> u64 {
    let value = *counter;
    *counter += 1;
    value
}

#[cfg(test)]
mod tests;
