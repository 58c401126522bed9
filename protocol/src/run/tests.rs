use super::*;

const PHASES: [Phase; 8] = [
    Phase::Queued,
    Phase::Starting,
    Phase::Running,
    Phase::Suspended,
    Phase::BackingOff,
    Phase::Ended(End::Completed),
    Phase::Ended(End::Error),
    Phase::Ended(End::Aborted),
];

const INTERRUPTION: Interruption =
    Interruption { reason: Some(InterruptReason::NoProgress), child_still_running: Some(true) };

const EVENTS: [Event; 12] = [
    Event::Admitted { hook: true },
    Event::Admitted { hook: false },
    Event::Started,
    Event::Suspended,
    Event::Woken,
    Event::Lost { backoff: true },
    Event::Lost { backoff: false },
    Event::CancelRequested,
    Event::Ended(End::Completed),
    Event::Ended(End::Error),
    Event::Ended(End::Aborted),
    Event::Interrupted(INTERRUPTION),
];

/// One row a phase, one column an event, in the order of the arrays above. `-` is out of phase,
/// `!` the end stands, a capital letter the phase that follows, `c` a cancel that is noted, `i`
/// an interruption.
const TABLE: [&str; 8] = [
    //A  a St Su W  L  l  C  c  e  a  I
    "S R - - - - - A - - - i",
    "- - R - - S S c C E A i",
    "- - - U - B R c C E A i",
    "- - - - R - - A - - - i",
    "- - - - R - - A - E - i",
    "! ! ! ! ! ! ! ! ! ! ! !",
    "! ! ! ! ! ! ! ! ! ! ! !",
    "! ! ! ! ! ! ! ! ! ! ! !",
];

fn cell(state: RunState, after: Result<RunState, Refused>) -> char {
    match after {
        Err(Refused::OutOfPhase) => '-',
        Err(Refused::Ended(_)) => '!',
        Ok(next) if next.interrupted != state.interrupted && next.interrupted.is_some() => 'i',
        Ok(next) if next.phase == state.phase && next.cancelling && !state.cancelling => 'c',
        Ok(next) => match next.phase {
            Phase::Queued => 'Q',
            Phase::Starting => 'S',
            Phase::Running => 'R',
            Phase::Suspended => 'U',
            Phase::BackingOff => 'B',
            Phase::Ended(End::Completed) => 'C',
            Phase::Ended(End::Error) => 'E',
            Phase::Ended(End::Aborted) => 'A',
        },
    }
}

#[test]
fn every_state_and_event() {
    for (phase, row) in PHASES.into_iter().zip(TABLE) {
        let state = RunState::new(phase);
        let seen: Vec<String> =
            EVENTS.into_iter().map(|event| cell(state, state.apply(event)).to_string()).collect();
        assert_eq!(seen.join(" "), row, "{phase:?}");
    }
}

#[test]
fn an_end_repairs_an_interruption() {
    for end in [End::Completed, End::Error, End::Aborted] {
        let state = RunState::new(Phase::Running).apply(Event::Interrupted(INTERRUPTION)).unwrap();
        assert_eq!((state.status(), state.execution()), (Status::Interrupted, Status::Running));
        let state = state.apply(Event::Ended(end)).unwrap();
        assert_eq!(state.interrupted, None);
        assert_eq!(state.status(), state.execution());
        assert!(state.status().is_hard());
    }
}

#[test]
fn hard_ends_are_absorbing() {
    for phase in PHASES {
        for interrupted in [None, Some(INTERRUPTION)] {
            let state = RunState { phase, cancelling: false, interrupted };
            if !state.execution().is_hard() {
                continue;
            }
            for event in EVENTS {
                assert!(
                    matches!(state.apply(event), Err(Refused::Ended(_))),
                    "{state:?} {event:?}"
                );
            }
        }
    }
}

#[test]
fn only_begun_and_unended_runs_hold_a_slot() {
    let holds: Vec<bool> = PHASES.map(|phase| RunState::new(phase).holds_slot()).to_vec();
    assert_eq!(holds, [false, true, true, true, true, false, false, false]);
    let interrupted =
        RunState::new(Phase::Running).apply(Event::Interrupted(INTERRUPTION)).unwrap();
    assert!(interrupted.holds_slot(), "interrupted but still running");
}
