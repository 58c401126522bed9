//! Faults that tests plant in this very code, to see that the simulation finds them.
//!
//! They are in a program only if it is built with `--cfg ghostlight_planted`, which is done by
//! `./check planted` alone. In every other build [`planted`] is `false` at compile time.

/// A fault in the code of a system: what it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// The committer answers before the disk has.
    AcknowledgeEarly,
    /// The committer answers as if all were well when the disk has failed.
    AcknowledgeFailed,
    /// The committer goes on when the disk has failed.
    GoOnAfterFailure,
    /// The disk says that it has synced, and has not.
    SkipSync,
    /// A crash in the middle of a batch leaves half of it.
    TearBatch,
    /// Parts of a payload are written after what refers to them.
    PartsLast,
    /// The owner of a log after a crash gives the last number of its predecessor out again.
    ReuseNumber,
    /// A finish hook that fails is not owed any more.
    DropOwed,
    /// What an agent owes when it comes into memory is forgotten.
    ForgetOwed,
    /// A finish hook that has succeeded stays owed.
    DeliverTwice,
    /// The end of a run owes nothing to the finish hook.
    OweNothing,
    /// The start hook is taken for done after a crash.
    SkipStartHook,
    /// A resumed run has its code entered by two tasks.
    ResumeTwice,
    /// An agent that comes back resumes the runs that are being executed.
    ResumeExecuted,
    /// A dispatch leaves the run out of the index of live runs.
    ForgetLive,
    /// A start passes over the index of live runs.
    ForgetRunning,
    /// An ended run stays in the index of live runs.
    KeepLive,
    /// A cancel is answered, and nothing else.
    SwallowCancel,
    /// A cancel that was recorded is forgotten by a crash.
    ForgetCancel,
    /// A cancel does not reach what the run has dispatched.
    ForgetCascade,
    /// A milestone that the log has is appended again on re-entry.
    DoubleMilestone,
    /// A re-entry is not told of the last step that was recorded.
    ForgetStep,
    /// A re-entry is told of the last two results in the wrong order.
    SwapResults,
    /// A re-entry does not know what the run has written to its state.
    ForgetState,
    /// A re-entry does not know how far an outside stream was read.
    ForgetSource,
    /// Observers are told before the disk has answered.
    PublishEarly,
    /// A tail passes over a frame when it goes from the log to what is live.
    TailGap,
    /// A suspended run has no timer.
    LoseTimer,
    /// A start passes over the timers that are overdue.
    PassOverdue,
    /// A suspended run that is woken counts as a new attempt.
    WakeAsAttempt,
    /// A run whose actor is lost is left alone.
    IgnoreLoss,
    /// An admission takes the run out of the queue, and puts it nowhere.
    LoseAdmitted,
    /// The queue of an agent that comes into memory is forgotten.
    ForgetQueue,
    /// The cap is not counted.
    IgnoreCap,
    /// Runs that are found in the store hold no slot.
    ForgetSlots,
    /// A run that is found lost holds a slot for ever.
    LeakSlots,
    /// The id of a cleared run can be used again.
    NoTombstone,
    /// What is left of cleared runs at a crash stays for ever.
    ForgetPurge,
    /// A sleep that was recorded begins anew on re-entry.
    RestartSleep,
    /// What a run waits for outside memory does not wake it.
    LoseCall,
    /// A run that waits outside memory for another one is not entered by the next process.
    ForgetWaiting,
    /// The actor of a run panics when it is asked to cancel it.
    PanicInActor,
    /// Two turns of an agent run at once.
    TurnsAtOnce,
    /// The simulated process survives its kill.
    SurviveKill,
    /// The simulated disk goes on after it has failed.
    SurviveFailure,
    /// An agent survives its crash.
    SurviveAgentCrash,
    /// A run survives the crash of its actor.
    SurviveRunCrash,
    /// An agent answers that it leaves memory, and stays.
    SurviveEviction,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 48] = [
        Self::AcknowledgeEarly,
        Self::AcknowledgeFailed,
        Self::GoOnAfterFailure,
        Self::SkipSync,
        Self::TearBatch,
        Self::PartsLast,
        Self::ReuseNumber,
        Self::DropOwed,
        Self::ForgetOwed,
        Self::DeliverTwice,
        Self::OweNothing,
        Self::SkipStartHook,
        Self::ResumeTwice,
        Self::ResumeExecuted,
        Self::ForgetLive,
        Self::ForgetRunning,
        Self::KeepLive,
        Self::SwallowCancel,
        Self::ForgetCancel,
        Self::ForgetCascade,
        Self::DoubleMilestone,
        Self::ForgetStep,
        Self::SwapResults,
        Self::ForgetState,
        Self::ForgetSource,
        Self::PublishEarly,
        Self::TailGap,
        Self::LoseTimer,
        Self::PassOverdue,
        Self::WakeAsAttempt,
        Self::IgnoreLoss,
        Self::LoseAdmitted,
        Self::ForgetQueue,
        Self::IgnoreCap,
        Self::ForgetSlots,
        Self::LeakSlots,
        Self::NoTombstone,
        Self::ForgetPurge,
        Self::RestartSleep,
        Self::LoseCall,
        Self::ForgetWaiting,
        Self::PanicInActor,
        Self::TurnsAtOnce,
        Self::SurviveKill,
        Self::SurviveFailure,
        Self::SurviveAgentCrash,
        Self::SurviveRunCrash,
        Self::SurviveEviction,
    ];
}

#[cfg(ghostlight_planted)]
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

#[cfg(ghostlight_planted)]
pub use place::{plant, planted};

/// Whether the code of this thread has this fault: it has none.
#[cfg(not(ghostlight_planted))]
#[inline(always)]
pub const fn planted(_: Planted) -> bool {
    false
}
