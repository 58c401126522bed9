use super::Decision::{Escalate, Remove, Restart};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const KINDS: [ExitKind; 4] =
    [ExitKind::Normal, ExitKind::Restart, ExitKind::Failed, ExitKind::Killed];
const AT_ONCE: Decision = Restart { after: Duration::ZERO };

fn rule(policy: RestartPolicy, on_exhausted: Exhausted) -> RestartRule {
    RestartRule {
        policy,
        intensity: Intensity { max_restarts: 3, within: 60 * SECOND },
        backoff: Backoff { first: SECOND, factor: 2, max: 8 * SECOND, jitter_percent: 0 },
        on_exhausted,
    }
}

fn failed(now: Duration, ran: Duration) -> End {
    End { kind: ExitKind::Failed, ran, now, draw: 0 }
}

/// Decides one end after another, each given as (now, ran) in seconds.
fn run(rule: &RestartRule, ends: &[(u64, u64)]) -> Vec<Decision> {
    let mut history = History::default();
    let mut decisions = Vec::new();
    for &(now, ran) in ends {
        let decision;
        (decision, history) =
            rule.decide(history, failed(Duration::from_secs(now), Duration::from_secs(ran)));
        decisions.push(decision);
    }
    decisions
}

fn after(seconds: u64) -> Decision {
    Restart { after: Duration::from_secs(seconds) }
}

#[test]
fn every_policy_and_kind() {
    let table = [
        (RestartPolicy::Permanent, [after(1), AT_ONCE, after(1), after(1)]),
        (RestartPolicy::Transient, [Remove, AT_ONCE, after(1), after(1)]),
        (RestartPolicy::Temporary, [Remove, Remove, Remove, Remove]),
    ];
    for (policy, expected) in table {
        for (kind, expected) in KINDS.into_iter().zip(expected) {
            let end = End { kind, ran: SECOND, now: SECOND, draw: 0 };
            let (decision, history) =
                rule(policy, Exhausted::Escalate).decide(History::default(), end);
            assert_eq!(decision, expected, "{policy:?} after {kind:?}");
            let counted = decision == after(1);
            assert_eq!(history != History::default(), counted, "{policy:?} after {kind:?}");
        }
    }
}

#[test]
fn every_answer_to_exhaustion() {
    let expected = [
        (Exhausted::Escalate, Escalate),
        (Exhausted::RetryAtMax, after(8)),
        (Exhausted::Remove, Remove),
    ];
    for policy in [RestartPolicy::Permanent, RestartPolicy::Transient] {
        for (on_exhausted, last) in expected {
            let rule = rule(policy, on_exhausted);
            let decisions = run(&rule, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
            assert_eq!(decisions, [after(1), after(2), after(4), last], "{on_exhausted:?}");
        }
    }
}

#[test]
fn exhausted_child_still_removed_or_restarted_by_policy() {
    let mut rule = rule(RestartPolicy::Transient, Exhausted::Escalate);
    rule.intensity.max_restarts = 0;
    for (kind, expected) in KINDS.into_iter().zip([Remove, AT_ONCE, Escalate, Escalate]) {
        let end = End { kind, ran: Duration::ZERO, now: Duration::ZERO, draw: 0 };
        assert_eq!(rule.decide(History::default(), end).0, expected, "{kind:?}");
    }
}

#[test]
fn window_slides() {
    let rule = rule(RestartPolicy::Permanent, Exhausted::Escalate);
    // The restart at 1 s leaves the window at 61 s exactly.
    let last = |now| run(&rule, &[(1, 0), (20, 0), (40, 0), (now, 0)])[3];
    assert_eq!(last(60), Escalate);
    assert_eq!(last(61), after(8));
}

#[test]
fn stable_child_starts_over() {
    let rule = rule(RestartPolicy::Permanent, Exhausted::Escalate);
    let last = |ran| run(&rule, &[(1, 0), (2, 0), (63, ran)])[2];
    // Running for exactly the window is not longer than it.
    assert_eq!(last(60), after(4));
    assert_eq!(last(61), after(1));
}

#[test]
fn retry_at_max_stays_at_max_until_stable() {
    let rule = rule(RestartPolicy::Permanent, Exhausted::RetryAtMax);
    // 1,000 s apart the window is long empty.
    let decisions = run(&rule, &[(1, 0), (2, 0), (3, 0), (4, 0), (1_000, 5), (2_000, 60)]);
    assert_eq!(decisions[3..], [after(8), after(8), after(8)]);
    let decisions = run(&rule, &[(1, 0), (2, 0), (3, 0), (4, 0), (1_000, 61), (1_001, 0)]);
    assert_eq!(decisions[3..], [after(8), after(1), after(2)]);
}

#[test]
fn zero_window_is_never_used_up() {
    let mut rule = rule(RestartPolicy::Permanent, Exhausted::Escalate);
    rule.intensity.within = Duration::ZERO;
    let ends = [(1, 0); 20];
    assert!(run(&rule, &ends).iter().all(|decision| matches!(decision, Restart { .. })));
}

#[test]
fn history_is_bounded() {
    let rule = rule(RestartPolicy::Permanent, Exhausted::RetryAtMax);
    let mut history = History::default();
    for now in 0..10_000 {
        history = rule.decide(history, failed(Duration::from_millis(now * 10), Duration::ZERO)).1;
        assert!(history.granted.len() <= 3);
    }
}

#[test]
fn backoff_grows_to_its_maximum() {
    let backoff = Backoff { first: 100 * MS, factor: 3, max: SECOND, jitter_percent: 0 };
    let waits: Vec<u128> = (0..5).map(|n| backoff.wait(n, u64::MAX).as_millis()).collect();
    assert_eq!(waits, [100, 300, 900, 1_000, 1_000]);
    assert_eq!(backoff.longest(u64::MAX), SECOND);
}

#[test]
fn extreme_backoffs_are_total() {
    let draws = [0, 1, u64::MAX / 2, u64::MAX];
    let durations = [Duration::ZERO, Duration::from_nanos(1), SECOND, Duration::MAX];
    for first in durations {
        for max in durations {
            for factor in [0, 1, 2, u32::MAX] {
                for jitter_percent in [0, 1, 100, 255] {
                    let backoff = Backoff { first, factor, max, jitter_percent };
                    for draw in draws {
                        for restarts in [0, 1, 63, u32::MAX] {
                            assert!(backoff.wait(restarts, draw) <= max, "{backoff:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn jitter_only_shortens_and_within_bounds() {
    let seed = 7;
    let mut rng = fastrand::Rng::with_seed(seed);
    let backoff = Backoff { jitter_percent: 25, first: SECOND, factor: 2, max: 100 * SECOND };
    let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
    for _ in 0..10_000 {
        let wait = backoff.wait(2, rng.u64(..));
        assert!(wait > 3 * SECOND && wait <= 4 * SECOND, "seed {seed}: {wait:?}");
        (shortest, longest) = (shortest.min(wait), longest.max(wait));
    }
    assert!(shortest < 3_010 * MS && longest > 3_990 * MS, "seed {seed}: the range is used");
}
