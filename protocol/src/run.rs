//! The state machine of a run.
//!
//! Two statuses make up a run (see [`RunState`]): what the child does, and what the parent says of
//! it. Only the parent can say `interrupted`, and the child's real end always repairs that.

use serde::{Deserialize, Serialize};

use crate::{InterruptReason, Status};

/// Where the execution of a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Waits for a slot under its parent's cap.
    Queued,
    /// Has a slot; the start hook has not finished.
    Starting,
    /// The child's code is entered, or about to be.
    Running,
    /// Waits outside memory: until its timer is due, or something has happened that it waits for.
    Suspended,
    /// An attempt was lost; the next one waits for its backoff.
    BackingOff,
    /// Over, for good.
    Ended(End),
}

/// The three hard ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// The child returned its output.
    Completed,
    /// The child failed.
    Error,
    /// The run was cancelled.
    Aborted,
}

/// The parent's word that it stopped watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interruption {
    /// Why.
    pub reason: Option<InterruptReason>,
    /// Whether the child still works; `None` when nobody knows.
    pub child_still_running: Option<bool>,
}

/// The state of a run: execution, and observation where it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunState {
    /// Where the execution stands.
    pub phase: Phase,
    /// Whether a cancel has been requested.
    pub cancelling: bool,
    /// Set while the parent has stopped watching.
    pub interrupted: Option<Interruption>,
}

/// What can happen to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A slot came free for a queued run; `hook` says whether a start hook comes first.
    Admitted {
        /// Whether the parent has a start hook.
        hook: bool,
    },
    /// The start hook finished.
    Started,
    /// The run left memory for a durable wait.
    Suspended,
    /// A wait ended, or a backoff did.
    Woken,
    /// The process, or the run's actor, was lost in the middle of an attempt.
    Lost {
        /// Whether the next attempt has to wait.
        backoff: bool,
    },
    /// Somebody asked for the run to stop.
    CancelRequested,
    /// The execution ended.
    Ended(End),
    /// The parent stopped watching.
    Interrupted(Interruption),
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The run is over: its end stands.
    #[error("the run has already ended")]
    Ended(End),
    /// The event does not belong to this phase; whoever sent it had an old picture.
    #[error("the run is not in a phase in which that can happen")]
    OutOfPhase,
}

impl RunState {
    /// The state of a run that was just recorded.
    pub fn new(phase: Phase) -> Self {
        Self { phase, cancelling: false, interrupted: None }
    }

    /// What observers see.
    pub fn status(&self) -> Status {
        match (self.phase, self.interrupted) {
            (Phase::Ended(End::Completed), _) => Status::Completed,
            (Phase::Ended(End::Error), _) => Status::Error,
            (Phase::Ended(End::Aborted), _) => Status::Aborted,
            (_, Some(_)) => Status::Interrupted,
            (Phase::Queued | Phase::Starting, None) => Status::Starting,
            (Phase::Running | Phase::Suspended | Phase::BackingOff, None) => Status::Running,
        }
    }

    /// What the child says; never `interrupted`.
    pub fn execution(&self) -> Status {
        Self { interrupted: None, ..*self }.status()
    }

    /// Whether the run holds one of its parent's slots: begun, and not ended.
    pub fn holds_slot(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Suspended | Phase::BackingOff => true,
            Phase::Queued | Phase::Ended(_) => false,
        }
    }

    /// The state of a run whose code is entered again: an interruption stands until the run ends,
    /// but the child works again.
    pub fn entered_again(self) -> Self {
        let works = |i| Interruption { child_still_running: Some(true), ..i };
        Self { interrupted: self.interrupted.map(works), ..self }
    }

    /// The state after `event`.
    ///
    /// | phase      | admitted           | started | suspended | woken   | lost                | cancel  | ended | interrupted |
    /// |------------|--------------------|---------|-----------|---------|---------------------|---------|-------|-------------|
    /// | queued     | starting / running | –       | –         | –       | –                   | aborted | –     | soft        |
    /// | starting   | –                  | running | –         | –       | starting            | noted   | ended | soft        |
    /// | running    | –                  | –       | suspended | –       | running / backing off | noted | ended | soft        |
    /// | suspended  | –                  | –       | –         | running | –                   | aborted | –     | soft        |
    /// | backing off | –                 | –       | –         | running | –                   | aborted | error | soft        |
    /// | ended      | refused: the end stands, whatever comes |||||||                                             |
    ///
    /// An end clears an interruption: the child's word repairs the parent's.
    ///
    /// # Errors
    /// [`Refused`]; the state stands.
    pub fn apply(self, event: Event) -> Result<Self, Refused> {
        if let Phase::Ended(end) = self.phase {
            return Err(Refused::Ended(end));
        }
        let to = |phase| Ok(Self { phase, ..self });
        let ended = |end| Ok(Self { phase: Phase::Ended(end), interrupted: None, ..self });
        match (self.phase, event) {
            (_, Event::Interrupted(interruption)) => {
                Ok(Self { interrupted: Some(interruption), ..self })
            }

            (Phase::Queued, Event::Admitted { hook: true }) => to(Phase::Starting),
            (Phase::Queued, Event::Admitted { hook: false }) => to(Phase::Running),
            (Phase::Starting, Event::Started) => to(Phase::Running),
            (Phase::Running, Event::Suspended) => to(Phase::Suspended),
            (Phase::Suspended | Phase::BackingOff, Event::Woken) => to(Phase::Running),

            (Phase::Starting, Event::Lost { .. }) => to(Phase::Starting),
            (Phase::Running, Event::Lost { backoff: true }) => to(Phase::BackingOff),
            (Phase::Running, Event::Lost { backoff: false }) => to(Phase::Running),

            // User code is not entered: there is nobody who could end the run but us.
            (Phase::Queued | Phase::Suspended | Phase::BackingOff, Event::CancelRequested) => {
                Ok(Self { cancelling: true, ..ended(End::Aborted)? })
            }
            (Phase::Starting | Phase::Running, Event::CancelRequested) => {
                Ok(Self { cancelling: true, ..self })
            }

            (Phase::Starting | Phase::Running, Event::Ended(end)) => ended(end),
            // The attempts are used up.
            (Phase::BackingOff, Event::Ended(End::Error)) => ended(End::Error),

            (Phase::Queued, Event::Started | Event::Suspended | Event::Woken)
            | (Phase::Queued, Event::Lost { .. } | Event::Ended(_))
            | (Phase::Starting, Event::Admitted { .. } | Event::Suspended | Event::Woken)
            | (Phase::Running, Event::Admitted { .. } | Event::Started | Event::Woken)
            | (Phase::Suspended, Event::Admitted { .. } | Event::Started | Event::Suspended)
            | (Phase::Suspended, Event::Lost { .. } | Event::Ended(_))
            | (Phase::BackingOff, Event::Admitted { .. } | Event::Started | Event::Suspended)
            | (Phase::BackingOff, Event::Lost { .. })
            | (Phase::BackingOff, Event::Ended(End::Completed | End::Aborted)) => {
                Err(Refused::OutOfPhase)
            }
            (Phase::Ended(end), _) => Err(Refused::Ended(end)),
        }
    }
}

#[cfg(test)]
mod tests;
