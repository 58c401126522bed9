//! A host admits guests by a start hook, and sees them off by a finish hook that fails, panics, and
//! dispatches runs of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;

use crate::effects::Effects;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of start and finish hooks, and of deliveries that are owed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hooks;

const ADMITTED: [&str; 3] = ["ada", "ben", "cleo"];
/// The start hook refuses one of them, and panics for the other.
const REFUSED: [&str; 2] = ["mallory", "nobody"];

struct Host {
    effects: Effects,
    /// How many finish hooks are being executed.
    inside: AtomicU32,
}

/// One finish hook, as long as it is being executed.
struct Inside<'a>(&'a AtomicU32);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Agent for Host {
    const TYPE: &'static str = "Host";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_start(Self::admit);
        callbacks.on_run_finish(Self::see_off);
    }
}

impl Host {
    async fn admit(&self, cx: &AgentContext, run: RunInfo) -> Result<(), RunError> {
        let id = run.run_id.as_str();
        if id == REFUSED[0] {
            return Err(RunError::new("not on the list"));
        }
        assert!(id != REFUSED[1], "nobody is not a name");
        if ADMITTED.contains(&id) {
            cx.agent::<Self>().start::<Visit>(id.into()).id(format!("badge-{id}")).await?;
        }
        self.effects.perform("admit", id);
        Ok(())
    }

    async fn see_off(
        &self,
        cx: &AgentContext,
        run: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        if self.inside.fetch_add(1, Ordering::Relaxed) > 0 {
            self.effects.perform_unkeyed("two hooks at once");
        }
        let _inside = Inside(&self.inside);
        let id = run.run_id.as_str();
        if self.effects.perform("failed to see off", id) {
            return Err(RunError::new("the network is down"));
        }
        if id == ADMITTED[1] {
            assert!(!self.effects.perform("panicked", id), "a bug of the hook");
        }
        if ADMITTED.contains(&id) {
            let bill = format!("bill-{id}");
            // One that is not completed is not written again.
            cx.agent::<Self>().run::<Visit>("bill".into()).id(bill).await?;
        }
        self.effects.perform("see off", id);
        Ok(())
    }
}

struct Visit;

impl Agent for Visit {
    const TYPE: &'static str = "Visit";
}

impl Child for Visit {
    type Input = String;
    type Output = String;

    async fn run(&self, cx: &RunContext, guest: String) -> Result<String, RunError> {
        cx.emit(json!({ "type": "data-visit", "guest": guest })).await?;
        Ok(guest)
    }
}

impl Scenario for Hooks {
    fn name(&self) -> String {
        "hooks".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        let host = Host { effects: world.effects(), inside: AtomicU32::new(0) };
        system.agent(host).child(Visit)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let door = life.agent::<Host>("door")?;
        let mut guests = Vec::new();
        for guest in ADMITTED.iter().chain(&REFUSED) {
            guests.push(door.start::<Visit>((*guest).into()).id(*guest).await?);
        }
        for (guest, visit) in ADMITTED.iter().chain(&REFUSED).zip(guests) {
            let outcome = visit.outcome().await?;
            life.world().promise(*guest, &outcome);
            let expected = if ADMITTED.contains(guest) { Status::Completed } else { Status::Error };
            let changed = life.world().ends_may_change() && outcome.status() != Status::Completed;
            assert!(outcome.status() == expected || changed, "{guest}: {outcome:?}");
        }
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none()
            .always("only who was admitted is executed", |world| {
                world.durable(|durable| {
                    let executed = durable.runs().filter(|(_, run)| run.frames.len() > 2);
                    let mut ids = executed.filter_map(|(_, run)| run.record.as_ref());
                    ids.all(|record| world.effects().performances("admit", &record.run_id) > 0)
                })
            })
            .always("hooks are executed one at a time", |world| {
                world.effects().count("two hooks at once") == 0
            })
            .finally("everybody is seen off", |world| {
                let all = world.durable(|durable| durable.runs().count());
                let came = ADMITTED.len() * 3 + REFUSED.len();
                world.effects().count("see off") == all as u64
                    && (all == came || world.ends_may_change())
            })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
