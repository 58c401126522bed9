//! What happens to a run whose attempt was lost: a decision from its history alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a kind of run is brought back after its process, or its actor, was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryPolicy {
    /// The most attempts in a row without durable progress, the first one included: 10.
    /// 0 means no bound.
    pub attempts_max: u32,
    /// How long the third attempt without progress waits; the second one starts at once: 1 s.
    pub backoff_first: Duration,
    /// The longest wait; every further attempt doubles the one before: 60 s.
    pub backoff_max: Duration,
    /// Whether the run's attempts are numbered on. Code that only takes up again what went on
    /// without it, such as a process of its own, begins no new attempt.
    pub count_attempts: bool,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 10,
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            count_attempts: true,
        }
    }
}

impl RecoveryPolicy {
    /// A policy that brings a run back for ever, at once.
    pub fn unbounded() -> Self {
        Self {
            attempts_max: 0,
            backoff_first: Duration::ZERO,
            backoff_max: Duration::ZERO,
            ..Self::default()
        }
    }

    /// Decides about the next attempt of a run that has had `futile` attempts in a row without
    /// durable progress, the lost one included.
    ///
    /// | futile | decision |
    /// |---|---|
    /// | 0 (the lost attempt made progress), 1 | resume at once |
    /// | n below `attempts_max` | resume after `backoff_first` x 2^(n-2), at most `backoff_max` |
    /// | `attempts_max` and more | give up |
    pub fn next(&self, futile: u32) -> NextAttempt {
        if self.attempts_max != 0 && futile >= self.attempts_max {
            return NextAttempt::GiveUp;
        }
        let Some(doublings) = futile.checked_sub(2) else {
            return NextAttempt::Resume { after: Duration::ZERO };
        };
        let factor = 2u32.checked_pow(doublings).unwrap_or(u32::MAX);
        let after = self.backoff_first.saturating_mul(factor).min(self.backoff_max);
        NextAttempt::Resume { after }
    }
}

/// The decision about a lost attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    /// Enter the run again, after this wait.
    Resume {
        /// The wait; zero means at once.
        after: Duration,
    },
    /// End the run as `error`: too many attempts came to nothing.
    GiveUp,
}

/// How `step_retry` repeats a failing step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The most tries, the first one included.
    pub tries_max: u32,
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait; every further failure doubles the one before.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { tries_max: 5, first: Duration::from_millis(100), max: Duration::from_secs(10) }
    }
}

impl Retry {
    /// `tries` tries, waiting 100 ms after the first failure, twice as long after each further one,
    /// at most 10 s.
    pub fn times(tries: u32) -> Self {
        Self { tries_max: tries, ..Self::default() }
    }

    /// The wait before the next try when `tried` tries have failed; `None` when none is left.
    pub fn next(&self, tried: u32) -> Option<Duration> {
        if tried >= self.tries_max {
            return None;
        }
        let factor = 2u32.checked_pow(tried.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.first.saturating_mul(factor).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &RecoveryPolicy, expected: &[Option<u64>]) {
        for (futile, expected) in expected.iter().enumerate() {
            let decision = match policy.next(futile as u32) {
                NextAttempt::Resume { after } => Some(after.as_secs()),
                NextAttempt::GiveUp => None,
            };
            assert_eq!(decision, *expected, "{futile} futile attempts");
        }
    }

    #[test]
    fn attempts_back_off_and_end() {
        check(
            &RecoveryPolicy { attempts_max: 5, ..Default::default() },
            &[Some(0), Some(0), Some(1), Some(2), Some(4), None, None],
        );
        assert_eq!(RecoveryPolicy::default().next(10), NextAttempt::GiveUp);
    }

    #[test]
    fn backoff_is_bounded_and_never_overflows() {
        let policy = RecoveryPolicy { attempts_max: 0, ..Default::default() };
        for futile in [8, 40, u32::MAX] {
            assert_eq!(policy.next(futile), NextAttempt::Resume { after: policy.backoff_max });
        }
        let at_once = NextAttempt::Resume { after: Duration::ZERO };
        assert_eq!(RecoveryPolicy::unbounded().next(u32::MAX), at_once);
    }

    #[test]
    fn retries_double_until_they_end() {
        let retry =
            Retry { tries_max: 4, first: Duration::from_secs(1), max: Duration::from_secs(3) };
        let waits: Vec<_> = (1..=4).map(|tried| retry.next(tried).map(|d| d.as_secs())).collect();
        assert_eq!(waits, [Some(1), Some(2), Some(3), None]);
    }
}
