//! What the outside world has seen, over all lives of a system: the oracle of the crash tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ghostlight::AgentPath;
use ghostlight::frame::Frame;
use tokio::sync::mpsc;

/// Outlives every crash, as the outside world does.
#[derive(Default)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    executed: BTreeMap<(String, String), u32>,
    acknowledged: BTreeSet<(String, String)>,
    /// What the code of a run was told, in order: the longest of all entries, and the current one.
    longest: BTreeMap<String, Vec<String>>,
    current: BTreeMap<String, usize>,
    /// The frames that observers have seen, as JSON.
    seen: BTreeMap<String, BTreeMap<u64, String>>,
    violations: Vec<String>,
    entered: Option<mpsc::UnboundedSender<AgentPath>>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is told of every entry into a run's code from now on.
    pub(crate) fn watch(&self) -> mpsc::UnboundedReceiver<AgentPath> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().entered = Some(sender);
        receiver
    }

    /// The code of a run is entered.
    pub(crate) fn enters(&self, run: &AgentPath) {
        let mut inner = self.lock();
        inner.current.insert(run.to_string(), 0);
        if let Some(entered) = &inner.entered {
            let _ = entered.send(run.clone());
        }
    }

    /// The body of a step is executed. Returns for which time.
    pub(crate) fn executes(&self, run: &AgentPath, step: &str) -> u32 {
        let mut inner = self.lock();
        let key = (run.to_string(), step.to_owned());
        if inner.acknowledged.contains(&key) {
            let text = format!("step {step:?} of {run} was executed after it was acknowledged");
            inner.violations.push(text);
        }
        let times = inner.executed.entry(key).or_default();
        *times += 1;
        *times
    }

    /// The code was told that a step is done.
    pub(crate) fn acknowledged(&self, run: &AgentPath, step: &str) {
        self.lock().acknowledged.insert((run.to_string(), step.to_owned()));
    }

    /// The code was told something: the same, in the same place, in every entry.
    pub(crate) fn told(&self, run: &AgentPath, what: &str) {
        let mut inner = self.lock();
        let run = run.to_string();
        let at = inner.current.get(&run).copied().unwrap_or(0);
        inner.current.insert(run.clone(), at + 1);
        let longest = inner.longest.entry(run.clone()).or_default();
        match longest.get(at) {
            None => longest.push(what.to_owned()),
            Some(before) if before == what => {}
            Some(before) => {
                let text = format!("{run} was told {what:?} as number {at}, and {before:?} before");
                inner.violations.push(text);
            }
        }
    }

    /// An observer has seen a frame.
    pub(crate) fn saw(&self, run: &AgentPath, frame: &Frame) {
        let mut inner = self.lock();
        let json = frame.to_json();
        let seen = inner.seen.entry(run.to_string()).or_default();
        if let Some(before) = seen.insert(frame.sequence, json.clone())
            && before != json
        {
            let text = format!("frame {} of {run} was {before}, and is {json}", frame.sequence);
            inner.violations.push(text);
        }
    }

    /// The frames of a run that observers have seen.
    pub(crate) fn seen(&self, run: &AgentPath) -> BTreeMap<u64, String> {
        self.lock().seen.get(run.as_str()).cloned().unwrap_or_default()
    }

    /// How often each step was executed.
    pub(crate) fn executions(&self) -> BTreeMap<(String, String), u32> {
        self.lock().executed.clone()
    }

    pub(crate) fn violation(&self, text: String) {
        self.lock().violations.push(text);
    }

    /// Everything that should not have happened.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }
}
