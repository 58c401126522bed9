//! The plans that come of what was asked for.

use std::collections::BTreeSet;

use super::Simulation;
use crate::plan::{Fault, Plan};
use crate::world::Counts;

impl Simulation {
    /// The plans that were asked for, and how many; `groups` has the batches of each group of the calm
    /// world. Random ones are made when it is their turn: there may be more than fit into memory.
    pub(super) fn plans(&self, calm: Counts, groups: &[u32]) -> (u64, impl Iterator<Item = Plan>) {
        let mut plans = Vec::new();
        let mut chance = fastrand::Rng::with_seed(calm.commits);
        let kill = |chance: &mut fastrand::Rng, at: u64| {
            let batches = usize::try_from(at - 1).ok().and_then(|at| groups.get(at));
            // Beyond the calm world nobody knows how large a group is.
            let kills = Fault::kills(batches.copied().unwrap_or(2));
            kills[chance.usize(..kills.len())]
        };
        if self.commits {
            for (at, batches) in (1..).zip(groups) {
                for fault in Fault::kills(*batches) {
                    plans.push(Plan::calm(0).with(fault, at));
                }
            }
        }
        if self.stops {
            plans.extend((1..=calm.commits).map(|at| Plan::calm(0).with(Fault::Stop, at)));
        }
        let pairs = self.pairs + if self.commits { calm.commits } else { 0 };
        for _ in 0..pairs {
            let first = chance.u64(1..=calm.commits);
            let second = first + chance.u64(1..=calm.commits);
            let plan = Plan::calm(0).with(kill(&mut chance, first), first);
            let plan = plan.with(kill(&mut chance, second), second);
            // Every other process is not started again at once.
            plans.push(if chance.bool() { plan.with(down(&mut chance), 1) } else { plan });
        }
        let at_messages =
            [(self.evictions, Fault::Evict), (self.parent_crashes, Fault::CrashParent)];
        for (wanted, fault) in at_messages {
            let last = if wanted { calm.messages } else { 0 };
            plans.extend((1..=last).map(|at| Plan::calm(0).with(fault, at)));
        }
        let planned = plans.len() as u64;
        let all = planned.saturating_add(self.seeds);
        let most = u64::try_from(self.most).unwrap_or(u64::MAX);
        let sample = (all > most).then(|| {
            let mut sample = BTreeSet::new();
            while sample.len() < self.most {
                sample.insert(chance.u64(..all));
            }
            sample
        });
        let everything = if sample.is_some() { 0..0 } else { 0..all };
        let chosen = sample.into_iter().flatten().chain(everything);
        let plans = chosen.map(move |at| {
            let plan = usize::try_from(at).ok().and_then(|at| plans.get(at).cloned());
            plan.unwrap_or_else(|| self.random(at - planned + 1, calm))
        });
        (all.min(most), plans)
    }

    /// The random plan of a seed.
    pub(super) fn random(&self, seed: u64, calm: Counts) -> Plan {
        let mut chance = fastrand::Rng::with_seed(seed);
        let latency_ms = [0, 0, 1, 5, 20][chance.usize(..5)];
        let mut plan = Plan { seed, latency_ms, faults: Vec::new() };
        let mut tolerated = vec![Fault::Cancel, Fault::PanicChild, Fault::StallChild(0)];
        tolerated.retain(|fault| self.scenario.tolerates(*fault));
        for _ in 0..chance.u64(1..=5) {
            let fault = match chance.usize(..18 + tolerated.len()) {
                0 | 1 => Fault::KillBefore,
                2 | 3 => Fault::KillAfter,
                4 => Fault::KillTorn(chance.u32(1..4)),
                5 => Fault::Stall(chance.u64(1..30_000)),
                6 => Fault::Fail([0, 1, u32::MAX][chance.usize(..3)]),
                7 => Fault::Jump(chance.i64(-600_000..3_600_000)),
                8 => Fault::Duplicate,
                9 | 10 => Fault::Evict,
                11 => Fault::CrashParent,
                12 => Fault::CrashRun,
                13 => Fault::StallRead(chance.u64(1..30_000)),
                14 => Fault::FailRead,
                15 => down(&mut chance),
                16 | 17 => Fault::Stop,
                other => match tolerated[other - 18] {
                    Fault::StallChild(_) => Fault::StallChild(chance.u64(1..600_000)),
                    fault => fault,
                },
            };
            let most = match fault {
                Fault::Evict | Fault::CrashParent => calm.messages,
                Fault::StallChild(_) | Fault::PanicChild | Fault::CrashRun => calm.code,
                Fault::StallRead(_) | Fault::FailRead => calm.reads,
                Fault::Down(_) => 2,
                _ => calm.commits,
            };
            plan = plan.with(fault, chance.u64(1..=most * 3 / 2 + 1));
        }
        plan
    }
}

/// A time between two lives: from a blink to a fortnight.
fn down(chance: &mut fastrand::Rng) -> Fault {
    Fault::Down(10u64.pow(chance.u32(1..=9)) + chance.u64(..200_000_000))
}
