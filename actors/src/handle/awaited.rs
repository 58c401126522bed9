//! What a wait of a run is for, as the run's log has it beside the result.

use std::fmt;

use ghostlight_protocol::{AgentPath, RunId};
use serde::{Deserialize, Serialize};

use crate::messages::StartRun;
use crate::text::hex;

/// What the code asked for. The position of a wait says nothing of it: other code may ask for something
/// else there, and must not be told what came of this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Awaited {
    what: What,
    parent: String,
    run_id: String,
    child: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// A dispatch, with a digest of its input, and how the run ends.
    Run(String),
    /// A dispatch alone.
    Start(String),
    Outcome,
    Milestone(String),
}

impl Awaited {
    pub(super) fn run(parent: &AgentPath, start: &StartRun) -> Self {
        Self::new(What::Run(input(start)), parent, &start.run_id, start.agent_type)
    }

    pub(super) fn start(parent: &AgentPath, start: &StartRun) -> Self {
        Self::new(What::Start(input(start)), parent, &start.run_id, start.agent_type)
    }

    pub(super) fn outcome(parent: &AgentPath, run_id: &RunId, child: &str) -> Self {
        Self::new(What::Outcome, parent, run_id, child)
    }

    pub(super) fn milestone(parent: &AgentPath, run_id: &RunId, child: &str, name: &str) -> Self {
        Self::new(What::Milestone(name.to_owned()), parent, run_id, child)
    }

    fn new(what: What, parent: &AgentPath, run_id: &RunId, child: &str) -> Self {
        let (parent, run_id, child) = (parent.to_string(), run_id.to_string(), child.to_owned());
        Self { what, parent, run_id, child }
    }
}

/// The digest of a dispatch's input, short: it tells inputs apart, and secures nothing.
fn input(start: &StartRun) -> String {
    hex(&start.input_digest[..8])
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, parent, run_id, child } = self;
        match what {
            What::Run(_) => f.write_str("a dispatch, and the outcome,")?,
            What::Start(_) => f.write_str("a dispatch")?,
            What::Outcome => f.write_str("the outcome")?,
            What::Milestone(name) => write!(f, "milestone {name:?}")?,
        }
        write!(f, " of {child} run {run_id:?} of {parent}")?;
        match what {
            What::Run(input) | What::Start(input) => write!(f, ", input {input}"),
            What::Outcome | What::Milestone(_) => Ok(()),
        }
    }
}
