use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Run;
use super::collate::compare_ids;
use crate::frame::Frame;

/// Every run a client knows of.
///
/// Grows with the runs and what they emit, until it is dropped: a server never takes a run back.
/// Cloning shares the runs; a run is copied when one of its owners changes it.
///
/// Serializes to `{runsById, runsByToolCallId, unboundRuns}`, the last two holding run ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub(super) runs: BTreeMap<String, Arc<Run>>,
}

/// Returns the state that `state` turns into by `frame`, leaving `state` as it is.
///
/// Same arguments, same result; [`State::apply`] does it in place, without copying the run.
#[must_use]
pub fn apply(state: &State, frame: &Frame, now_ms: u64) -> State {
    let mut next = state.clone();
    next.apply(frame, now_ms);
    next
}

impl State {
    /// Creates a state without runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// The run of that id, if it has started.
    pub fn run(&self, run_id: &str) -> Option<&Run> {
        self.runs.get(run_id).map(Arc::as_ref)
    }

    /// Every run, ordered by id, byte by byte.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().map(Arc::as_ref)
    }

    /// The runs of each tool call that has any, in the order of display.
    ///
    /// That order is by `order`, then by run id as JavaScript's `localeCompare` has it in the root
    /// locale: exact for ASCII ids, while other characters come after ASCII by code point. Put
    /// together on each call.
    pub fn runs_by_tool_call_id(&self) -> BTreeMap<&str, Vec<&Run>> {
        let mut grouped: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in self.runs() {
            if let Some(tool_call_id) = bound_to(run) {
                grouped.entry(tool_call_id).or_default().push(run);
            }
        }
        for runs in grouped.values_mut() {
            runs.sort_by(|a, b| by_display(a, b));
        }
        grouped
    }

    /// The runs of one tool call, ordered as in [`runs_by_tool_call_id`](Self::runs_by_tool_call_id);
    /// empty if there are none.
    pub fn runs_for_tool_call(&self, tool_call_id: &str) -> Vec<&Run> {
        self.sorted(|run| bound_to(run) == Some(tool_call_id))
    }

    /// The runs without a tool call, ordered likewise. An empty tool call id counts as none.
    pub fn unbound_runs(&self) -> Vec<&Run> {
        self.sorted(|run| bound_to(run).is_none())
    }

    fn sorted(&self, wanted: impl Fn(&Run) -> bool) -> Vec<&Run> {
        let mut runs: Vec<&Run> = self.runs().filter(|run| wanted(run)).collect();
        runs.sort_by(|a, b| by_display(a, b));
        runs
    }
}

fn bound_to(run: &Run) -> Option<&str> {
    run.parent_tool_call_id.as_deref().filter(|id| !id.is_empty())
}

fn by_display(a: &Run, b: &Run) -> Ordering {
    a.order.cmp(&b.order).then_with(|| compare_ids(&a.run_id, &b.run_id))
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn ids<'a>(runs: &[&'a Run]) -> Vec<&'a str> {
            runs.iter().map(|run| run.run_id.as_str()).collect()
        }
        let by_id: BTreeMap<&str, &Run> =
            self.runs().map(|run| (run.run_id.as_str(), run)).collect();
        let by_tool_call_id: BTreeMap<&str, Vec<&str>> =
            self.runs_by_tool_call_id().iter().map(|(id, runs)| (*id, ids(runs))).collect();
        let mut state = serializer.serialize_struct("State", 3)?;
        state.serialize_field("runsById", &by_id)?;
        state.serialize_field("runsByToolCallId", &by_tool_call_id)?;
        state.serialize_field("unboundRuns", &ids(&self.unbound_runs()))?;
        state.end()
    }
}
