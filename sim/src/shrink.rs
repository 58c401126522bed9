//! Makes a failing plan as short and as low as it gets.

use std::collections::HashSet;

use crate::plan::{Fault, Plan, PlannedFault};
use crate::world::Violation;

/// The most plans that are tried for a shorter one.
pub(crate) const TRIES_MAX: usize = 300;

/// The shortest plan that `fails` and can be reached from `found` by leaving out faults and lowering
/// numbers, one at a time, within so many calls of `fails`.
pub(crate) fn shortest(
    found: &Plan,
    tries_max: usize,
    mut fails: impl FnMut(&Plan) -> bool,
) -> Plan {
    let mut plan = found.clone();
    let mut tried = HashSet::new();
    'shorter: loop {
        for candidate in simpler(&plan) {
            if tried.len() == tries_max {
                return plan;
            }
            if tried.insert(candidate.clone()) && fails(&candidate) {
                plan = candidate;
                continue 'shorter;
            }
        }
        return plan;
    }
}

/// Plans that are one step simpler, the largest steps first.
fn simpler(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for at in 0..plan.faults.len() {
        let mut candidate = plan.clone();
        candidate.faults.remove(at);
        plans.push(candidate);
    }
    plans.extend(lower(0, plan.latency_ms).map(|latency_ms| Plan { latency_ms, ..plan.clone() }));
    if plan.seed > 0 {
        plans.push(Plan { seed: 0, ..plan.clone() });
    }
    for (place, planned) in plan.faults.iter().enumerate() {
        let PlannedFault { at, fault } = *planned;
        let earlier = lower(1, at).map(|at| PlannedFault { at, fault });
        let milder = milder(fault).into_iter().map(|fault| PlannedFault { at, fault });
        plans.extend(earlier.chain(milder).map(|planned| {
            let mut candidate = plan.clone();
            candidate.faults[place] = planned;
            candidate
        }));
    }
    plans
}

/// The fault with a lower number of its own.
fn milder(fault: Fault) -> Vec<Fault> {
    match fault {
        Fault::KillTorn(n) => {
            lower(1, n.into()).filter_map(|n| u32::try_from(n).ok()).map(Fault::KillTorn).collect()
        }
        Fault::Fail(n) => {
            lower(0, n.into()).filter_map(|n| u32::try_from(n).ok()).map(Fault::Fail).collect()
        }
        Fault::Stall(ms) => lower(1, ms).map(Fault::Stall).collect(),
        Fault::StallChild(ms) => lower(1, ms).map(Fault::StallChild).collect(),
        Fault::StallRead(ms) => lower(1, ms).map(Fault::StallRead).collect(),
        Fault::Down(ms) => lower(1, ms).map(Fault::Down).collect(),
        Fault::Jump(ms) => lower(1, ms.unsigned_abs())
            .map(|lower| Fault::Jump(lower.cast_signed() * ms.signum()))
            .collect(),
        _ => Vec::new(),
    }
}

/// Numbers from `least` up to below `number`, in steps that are halved each time.
fn lower(least: u64, number: u64) -> impl Iterator<Item = u64> {
    let farthest = number.saturating_sub(least);
    std::iter::successors(Some(farthest), |step| Some(step / 2))
        .take_while(|step| *step > 0)
        .map(move |step| number - step)
}

impl Violation {
    /// Whether this is the same failure: of the same invariant, and of the same subject, which is all
    /// of its text but the numbers.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.invariant == other.invariant
            && ((self.yours && other.yours)
                || without_numbers(&self.text) == without_numbers(&other.text))
    }
}

/// The text with each number blanked, with its unit; digits of a name stay.
fn without_numbers(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || "_-.:/µ".contains(c);
    let mut blanked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(word.max(first.len_utf8()));
        let unit = word
            .trim_start_matches('-')
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_number = first.is_ascii_digit() || first == '-';
        let is_unit =
            matches!(unit, "" | "s" | "ms" | "µs" | "ns" | ":" | "st" | "nd" | "rd" | "th");
        blanked.push_str(if is_number && is_unit && word != "-" { "N" } else { word });
        rest = after;
    }
    blanked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        text.parse().unwrap()
    }

    #[test]
    fn faults_are_left_out_and_numbers_lowered() {
        let mut tries = 0;
        let fails = |plan: &Plan| {
            tries += 1;
            let torn = plan
                .faults
                .iter()
                .any(|p| matches!(p.fault, Fault::KillTorn(n) if n >= 2) && p.at >= 17);
            let jump = plan.faults.iter().any(|p| matches!(p.fault, Fault::Jump(ms) if ms <= -300));
            torn && jump
        };
        let found = plan("seed=9 latency=20 evict@7 kill-torn:3@41 stall:9000@3 jump:-500000@60");
        let shortest = shortest(&found, TRIES_MAX, fails);
        assert_eq!(shortest, plan("seed=0 latency=0 kill-torn:2@17 jump:-300@1"));
        assert!(tries < TRIES_MAX, "{tries}");
    }

    #[test]
    fn the_work_is_bounded() {
        let mut tries = 0;
        let found = plan("seed=9 stall:9000000@100000");
        shortest(&found, 10, |plan| {
            tries += 1;
            plan.faults.iter().any(|p| p.at > 12_345 && p.fault > Fault::Stall(54_321))
        });
        assert_eq!(tries, 10);
    }

    #[test]
    fn failures_are_alike_but_for_numbers() {
        let of = |text: &str, yours| Violation { invariant: "i".into(), text: text.into(), yours };
        let alike = |one: &str, other: &str| of(one, false).is_like(&of(other, false));
        assert!(alike("A:a/B:r-1: frame 3 after 12.5ms", "A:a/B:r-1: frame 14 after 7s"));
        assert!(!alike("A:a/B:r-1: frame 3", "A:a/B:r-2: frame 3"));
        assert!(!alike("A:1/B:1 is lost", "A:1/B:2 is lost"));
        assert!(of("it did until commit 3", true).is_like(&of("it did until effect charge", true)));
    }
}
