//! Faults that tests plant in this very code, to see that the simulation finds them.
//!
//! Without the feature `planted-faults`, which nothing but tests turns on, [`planted`] is `false` at
//! compile time and the faults are not in the program.

/// A fault in the code of a system: what it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// The committer answers before the disk has.
    AcknowledgeEarly,
    /// The disk takes what was written for synced.
    SkipSync,
    /// The owner of a log gives the last number of its predecessor out again.
    ReuseNumber,
    /// A finish hook that fails is not owed any more.
    DropOwed,
    /// A finish hook that has succeeded stays owed.
    DeliverTwice,
    /// The end of a run owes nothing to the finish hook.
    OweNothing,
    /// A resumed run has its code entered by two tasks.
    ResumeTwice,
    /// A dispatch leaves the run out of the index of live runs.
    ForgetLive,
    /// An ended run stays in the index of live runs.
    KeepLive,
    /// A cancel is answered, and nothing else.
    SwallowCancel,
    /// A cancel does not reach what the run has dispatched.
    ForgetCascade,
    /// A milestone that the log has is appended again on re-entry.
    DoubleMilestone,
    /// A re-entry is not told of the last step that was recorded.
    ForgetStep,
    /// Observers are told before the disk has answered.
    PublishEarly,
    /// A tail passes over a frame when it goes from the log to what is live.
    TailGap,
    /// A suspended run has no timer.
    LoseTimer,
    /// A suspended run that is woken counts as a new attempt.
    WakeAsAttempt,
    /// A run whose actor is lost is left alone.
    IgnoreLoss,
    /// An admission takes the run out of the queue, and puts it nowhere.
    LoseAdmitted,
    /// The cap is not counted.
    IgnoreCap,
    /// The id of a cleared run can be used again.
    NoTombstone,
    /// A sleep that was recorded begins anew on re-entry.
    RestartSleep,
    /// What a run waits for outside memory does not wake it.
    LoseCall,
    /// The actor of a run panics when it is asked to cancel it.
    PanicInActor,
    /// Two turns of an agent run at once.
    TurnsAtOnce,
    /// The simulated process survives its kill.
    SurviveKill,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::AcknowledgeEarly,
        Self::SkipSync,
        Self::ReuseNumber,
        Self::DropOwed,
        Self::DeliverTwice,
        Self::OweNothing,
        Self::ResumeTwice,
        Self::ForgetLive,
        Self::KeepLive,
        Self::SwallowCancel,
        Self::ForgetCascade,
        Self::DoubleMilestone,
        Self::ForgetStep,
        Self::PublishEarly,
        Self::TailGap,
        Self::LoseTimer,
        Self::WakeAsAttempt,
        Self::IgnoreLoss,
        Self::LoseAdmitted,
        Self::IgnoreCap,
        Self::NoTombstone,
        Self::RestartSleep,
        Self::LoseCall,
        Self::PanicInActor,
        Self::TurnsAtOnce,
        Self::SurviveKill,
    ];
}

#[cfg(feature = "planted-faults")]
mod place {
    use super::Planted;

    thread_local! {
        static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
    }

    /// Plants a fault in what this thread executes from now on, in place of the one before.
    pub fn plant(fault: Option<Planted>) {
        PLANTED.set(fault);
    }

    /// Whether the code of this thread has this fault.
    pub fn planted(fault: Planted) -> bool {
        PLANTED.get() == Some(fault)
    }
}

#[cfg(feature = "planted-faults")]
pub use place::{plant, planted};

/// Whether the code of this thread has this fault: it has none.
#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub const fn planted(_: Planted) -> bool {
    false
}
