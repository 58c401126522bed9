//! The journal of a run: what its code has been told so far, and in which order.
//!
//! User code is entered again after a crash. It then asks for the same things as before, and must
//! be told the same, in the same order, so that it takes the same branches. The journal is the pure
//! rule of that: it is fed with the log at entry, asked by every call that the code makes, and
//! told of every completion once that is durable.
//!
//! Completions are *released* to the code one at a time in log order, in life and on re-entry
//! alike, and each only when the code stands still: polled, and waiting in every branch. What the
//! code does between two standstills is then a function of the releases before, so it repeats.
//! Released any earlier, a result that is recorded would be ready at the first poll, where in life
//! it never is: a `select!` would return before its other branches were polled at all, and what
//! they would have asked for first would move to another position.
//!
//! The next completion follows at the next standstill whether the one before was taken or not:
//! code may hold a future without polling it.
//!
//! Code that stands still and has not asked for what the log has next never will, and is told a
//! [`Mismatch`], unless something outside the journal can make it go on. Whether that is so cannot be
//! known: a combinator such as `FuturesUnordered` looks like a channel that may be about to deliver.
//! Code that waits for calls of its own all the while is therefore left a limited time to ask, and
//! code that waits for the outside alone any time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod words;

pub use self::words::{
    Act, Acted, Call, CallError, Mismatch, Outside, Recorded, Told, Wake, due_name, limit_of,
};

use crate::planted::{Planted, planted};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Asked for; nothing executes it yet.
    Open,
    /// Being executed.
    Executing,
}

#[derive(Debug)]
struct Completion<R> {
    call: Call,
    result: R,
    /// The entry's position in the log, if it is of an earlier entry of the code.
    recorded: Option<u64>,
}

/// The state of one entry of the code. See the module's text.
#[derive(Debug)]
pub struct Journal<R> {
    /// With their entries.
    acts: Vec<(u64, Act)>,
    acts_done: usize,
    /// In log order; the first `released` may be taken.
    completions: VecDeque<Completion<R>>,
    released: usize,
    /// Every recorded completion has had its turn: what is not in the log may be executed.
    caught_up: bool,
    /// The code stands still, and nothing was released to it since.
    standing: bool,
    /// What the code has asked for, and still waits for.
    calls: BTreeMap<Call, Standing>,
    /// What was taken, or whose future was dropped. Apart from the others: it grows with the run,
    /// and nothing that happens at every standstill may look at all of it.
    spent: BTreeSet<Call>,
    sleeps: BTreeMap<u64, u64>,
    tries: BTreeMap<String, u32>,
    /// Entries of the steps that left events without a result, by step.
    torn: BTreeMap<String, u32>,
    /// The entry of the recorded completion that was told last.
    told_entry: u64,
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
            standing: false,
            calls: BTreeMap::new(),
            spent: BTreeSet::new(),
            sleeps: BTreeMap::new(),
            tries: BTreeMap::new(),
            torn: BTreeMap::new(),
            told_entry: 0,
            next_sleep: 0,
            next_wait: 0,
            next_dispatch: 0,
        };
        for (entry, recorded) in (0u64..).zip(log) {
            match recorded {
                Recorded::Act(act, result) => {
                    if act.is_awaited() {
                        let call = Call::Act(journal.acts.len() as u64);
                        journal.completions.push_back(Completion {
                            call,
                            result,
                            recorded: Some(entry),
                        });
                    }
                    journal.acts.push((entry, act));
                }
                Recorded::Completed(call, result) => {
                    if let Call::Step(key) = &call {
                        journal.torn.remove(key);
                    }
                    let recorded = Some(entry);
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
        journal.caught_up = journal.completions.is_empty();
        journal
    }

    /// Makes a call known. A call asks through [`Journal::poll`] from then on.
    ///
    /// # Errors
    /// [`CallError::Reused`] when this entry has made the same call before, even if its future
    /// was dropped.
    pub fn open(&mut self, call: &Call) -> Result<(), CallError> {
        if self.is_asked(call) {
            return Err(CallError::Reused(call.clone()));
        }
        self.calls.insert(call.clone(), Standing::Open);
        Ok(())
    }

    /// Answers a call that was opened. [`Told::Ready`] spends it.
    pub fn poll(&mut self, call: &Call) -> Told<R> {
        let index = self.completions.iter().take(self.released).position(|c| c.call == *call);
        if let Some(completion) = index.and_then(|index| self.completions.remove(index)) {
            self.released -= 1;
            self.told_entry = completion.recorded.unwrap_or(self.told_entry);
            self.close(call);
            return Told::Ready(completion.result);
        }
        match self.calls.get_mut(call) {
            Some(standing @ Standing::Open)
                if self.caught_up && !self.completions.iter().any(|c| c.call == *call) =>
            {
                *standing = Standing::Executing;
                Told::Execute
            }
            _ => Told::Pending,
        }
    }

    /// Records that the future of a call was dropped: whatever it completes with is for nobody.
    pub fn close(&mut self, call: &Call) {
        self.calls.remove(call);
        self.spent.insert(call.clone());
    }

    /// Adds the completion of an executed call, once it is durable. It is released at a standstill; for
    /// code that [stands still](Journal::is_standing) already, ask for that again.
    pub fn complete(&mut self, call: Call, result: R) {
        self.completions.push_back(Completion { call, result, recorded: None });
    }

    /// Judges that what was told last is the result of something else than the code asks for there.
    pub fn differs(&self, log: String, code: String) -> Mismatch {
        Mismatch { entry: self.told_entry, log, code }
    }

    /// Judges an act outside steps, the next in the order of the code.
    ///
    /// # Errors
    /// [`Mismatch`] when the log has another act in that position.
    pub fn act(&mut self, act: &Act) -> Result<Acted, Mismatch> {
        let number = self.acts_done as u64;
        let acted = match self.acts.get(self.acts_done) {
            None => Acted::Append(number),
            Some((_, Act::Milestone(_))) if planted(Planted::DoubleMilestone) => {
                Acted::Append(number)
            }
            Some((_, recorded)) if recorded == act => Acted::Recorded(number),
            Some((entry, recorded)) => {
                return Err(Mismatch {
                    entry: *entry,
                    log: recorded.to_string(),
                    code: act.to_string(),
                });
            }
        };
        self.acts_done += 1;
        if act.is_awaited() {
            self.calls.insert(Call::Act(number), Standing::Open);
        }
        Ok(acted)
    }

    /// Called when the code is about to be polled.
    pub fn polled(&mut self) {
        self.standing = false;
    }

    /// Called when the code was polled to a standstill: nothing woke it meanwhile. Called again
    /// when nobody was there to be woken by its answer, and when more has completed since.
    ///
    /// # Errors
    /// [`Mismatch`] when the code waits for something that the log does not have, or has later, while
    /// the log has completions that it never asked for, and nothing outside may make it ask for them:
    /// it would wait for ever.
    pub fn standstill(&mut self, outside: Outside) -> Result<Wake, Mismatch> {
        let wake = self.release();
        if self.caught_up || wake != Wake::Nobody {
            return Ok(wake);
        }
        let Some((entry, unasked)) = self.unasked() else {
            self.caught_up = true;
            self.standing = false;
            return Ok(Wake::All);
        };
        // What it waits for that the log does not have tells more than what the log has later.
        let is_recorded = |call: &Call| self.completions.iter().any(|c| c.call == *call);
        let unrecorded = self.calls.keys().find(|call| !is_recorded(call));
        let code = match (outside, unrecorded.or(self.waiting().next())) {
            (Outside::MayWake, _) | (Outside::Overdue, None) => return Ok(Wake::Nobody),
            (Outside::Nothing, None) => "nothing more".to_owned(),
            (Outside::Nothing | Outside::Overdue, Some(call)) => {
                let first = if is_recorded(call) { " first" } else { "" };
                format!("{}{first}", self.name(call))
            }
        };
        Err(Mismatch { entry, log: self.name(unasked), code })
    }

    /// Whether the code stands still and waits for something that the log does not have, or has later,
    /// so that only something outside can make it ask for what comes first. It is a mismatch unless
    /// that happens: see [`Outside::Overdue`].
    pub fn is_in_doubt(&self) -> bool {
        self.standing && !self.caught_up && self.waiting().next().is_some()
    }

    /// Whether the code stands still, and is not about to be woken by anything recorded.
    pub fn is_standing(&self) -> bool {
        self.standing
    }

    /// Called when the code has returned: with all that the log has behind it, it has caught up.
    ///
    /// # Errors
    /// [`Mismatch`] when the log has more than the code has asked for.
    pub fn finish(&mut self) -> Result<(), Mismatch> {
        let code = "its end".to_owned();
        if let Some((entry, call)) = self.unasked() {
            return Err(Mismatch { entry, log: self.name(call), code });
        }
        match self.acts.get(self.acts_done) {
            Some((entry, act)) => Err(Mismatch { entry: *entry, log: act.to_string(), code }),
            None => {
                self.caught_up = true;
                Ok(())
            }
        }
    }

    /// Whether everything the log has was released: from here on the code does new things. Acts that
    /// are new before may be those of code that does not fit the log, and must not be recorded yet.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Whether the log has what the code was not told again, or has not done again, so far.
    pub fn is_behind(&self) -> bool {
        !self.caught_up || self.acts_done < self.acts.len()
    }

    /// Whether the code waits for anything that it has asked for.
    pub fn is_waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether a step's body executes, or a completion waits to be taken.
    pub fn is_busy(&self) -> bool {
        // Steps are the first in the order of calls, and this is asked at every standstill.
        let first = self.calls.first_key_value();
        !self.completions.is_empty() || first.is_some_and(|(call, _)| matches!(call, Call::Step(_)))
    }

    /// When the nth sleep is due, if the log says so.
    pub fn sleep_due(&self, ordinal: u64) -> Option<u64> {
        if planted(Planted::RestartSleep) {
            return None;
        }
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
            .find(|(_, call)| !self.is_asked(call))
    }

    /// The calls that have no answer yet. One that was released has, whether it is polled or not.
    fn waiting(&self) -> impl Iterator<Item = &Call> {
        let is_released = |call: &Call| {
            self.completions.iter().take(self.released).any(|released| released.call == *call)
        };
        self.calls.keys().filter(move |call| !is_released(call))
    }

    /// Whether this entry of the code has ever made the call.
    fn is_asked(&self, call: &Call) -> bool {
        self.calls.contains_key(call) || self.spent.contains(call)
    }

    /// Drops what nobody wants, and releases the next completion that was asked for. Looks no
    /// further than that: it is called at every standstill, with the whole past still ahead.
    fn release(&mut self) -> Wake {
        self.standing = true;
        let mut index = 0;
        while let Some(completion) = self.completions.get(index) {
            let is_released = index < self.released;
            if self.spent.contains(&completion.call) {
                self.completions.remove(index);
                self.released -= usize::from(is_released);
            } else if is_released {
                index += 1;
            } else {
                break;
            }
        }
        match self.completions.get(self.released) {
            Some(next) if self.calls.contains_key(&next.call) => {
                self.released += 1;
                self.standing = false;
                Wake::One(next.call.clone())
            }
            _ => Wake::Nobody,
        }
    }

    /// What a mismatch calls a call.
    fn name(&self, call: &Call) -> String {
        let act = match call {
            Call::Act(number) => usize::try_from(*number).ok().and_then(|n| self.acts.get(n)),
            Call::Step(_) | Call::Sleep(_) | Call::Wait(_) => None,
        };
        act.map_or_else(|| call.to_string(), |(_, act)| act.to_string())
    }
}

fn post_increment(counter: &mut u64) -> u64 {
    let value = *counter;
    *counter += 1;
    value
}

#[cfg(test)]
mod tests;
