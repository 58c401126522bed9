//! What the outside does to a system beside the scenario: duplicate dispatches, cancels, evictions.

use ghostlight::protocol::RunKey;
use ghostlight::storage::Key;
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::RunRecord;
use ghostlight::testing;
use ghostlight::{AgentPath, DispatchOptions, Error, RunId};

use crate::invariant::Event;
use crate::plan::Fault;
use crate::world::World;

/// Dispatches every run that has a record once more.
pub(crate) fn duplicate(world: &World) {
    let Some(system) = world.system() else { return };
    let runs: Vec<_> = world.durable(|durable| {
        durable
            .runs()
            .filter(|(_, run)| !run.cleared)
            .filter_map(|(_, run)| run.record.clone())
            .collect()
    });
    let mut again = Vec::new();
    for record in runs {
        let (Ok(parent), Ok(run_id)) = (record.parent.parse(), RunId::new(&record.run_id)) else {
            continue;
        };
        let input = input(world, RunKey::new(&parent, &run_id), &record);
        let (Ok(input), Ok(agent)) = (serde_json::from_slice(&input), system.agent_at(&parent))
        else {
            continue;
        };
        again.push((record, agent, input));
    }
    world.trace("fault", format!("{} runs are dispatched again", again.len()));
    if !again.is_empty() {
        world.strike(Fault::Duplicate);
    }
    for (record, agent, input) in again {
        let input: serde_json::Value = input;
        let options = DispatchOptions {
            id: Some(record.run_id.clone()),
            detached: record.detached,
            ..DispatchOptions::default()
        };
        let world = world.clone();
        tokio::spawn(async move {
            match agent.dispatch_json(&record.agent_type, &input, options).await {
                Ok((_, true))
                | Err(Error::Stopped | Error::StillStopping(_) | Error::Cleared(_)) => {}
                Err(_) if world.store_failed() => {}
                Ok((run_id, false)) => {
                    let text = format!("{run_id} was dispatched twice, and began twice");
                    world.violated("a dispatch is idempotent by its id", text);
                }
                Err(error) => {
                    let text = format!("{} was dispatched again: {error}", record.run_id);
                    world.violated("a dispatch is idempotent by its id", text);
                }
            }
        });
    }
}

/// The input of a run, as the disk has it.
fn input(world: &World, run: RunKey, record: &RunRecord) -> Vec<u8> {
    let number = match &record.input {
        Payload::Inline(input) => return input.clone(),
        Payload::Parts { number, .. } => *number,
    };
    let prefix = Key::parts(run, number).into_bytes();
    world.read(|written| {
        let from = written.range(prefix.clone()..);
        let parts = from.take_while(|(key, _)| key.starts_with(&prefix));
        parts.flat_map(|(_, part)| part.value.clone()).collect()
    })
}

/// Cancels the run that was dispatched last.
pub(crate) fn cancel(world: &World) {
    let (Some(system), Some(run)) = (world.system(), world.last_begun()) else { return };
    let Some((parent, run_id)) = run.parent() else { return };
    world.trace("fault", format!("{run} is cancelled from outside"));
    let Ok(agent) = system.agent_at(&parent) else { return };
    // Nothing comes of cancelling what has ended.
    if world.durable(|durable| durable.run_at(&run).is_some_and(|run| run.live.is_some())) {
        world.strike(Fault::Cancel);
    }
    let world = world.clone();
    tokio::spawn(async move {
        match agent.cancel(run_id.as_str(), "simulated").await {
            Ok(_) => {}
            Err(Error::Stopped) => return,
            Err(_) if world.store_failed() => return,
            Err(error) => {
                world.violated("every run can be cancelled", format!("{run}: {error}"));
                return;
            }
        }
        let recorded = world.durable(|durable| {
            let stored = durable.run_at(&run);
            stored.is_none_or(|run| {
                run.cleared || run.live.is_none() || {
                    run.record.as_ref().is_some_and(|record| record.state.cancelling)
                }
            })
        });
        if !recorded {
            world.violated("a cancel that was answered is durable", format!("not that of {run}"));
        }
    });
}

/// An agent has handled a message, and something befalls it.
pub(crate) fn befall(world: &World, agent: &AgentPath, fault: Fault) {
    let Some(system) = world.system() else { return };
    let actor = testing::actor_of(&system, agent);
    match fault {
        Fault::CrashParent => {
            world.trace("fault", format!("{agent} crashes"));
            if testing::crash_agent(&system, agent) {
                if let Some(actor) = actor {
                    world.must_be_gone(actor, agent, fault);
                }
                world.strike(fault);
                world.tell(&Event::AgentCrashed { agent });
            }
        }
        Fault::Evict => {
            world.trace("fault", format!("{agent} is evicted"));
            if let Ok(handle) = system.agent_at(agent) {
                let (world, agent) = (world.clone(), agent.clone());
                // It answers as it leaves, which a crash may forestall.
                tokio::spawn(async move {
                    if handle.evict().await.is_ok() {
                        if let Some(actor) = actor {
                            world.must_be_gone(actor, &agent, fault);
                        }
                        world.strike(fault);
                    }
                });
            }
        }
        _ => {}
    }
}

/// The actor of a run crashes.
pub(crate) fn crash_run(world: &World, run: &AgentPath) {
    let Some(system) = world.system() else { return };
    world.trace("fault", format!("the actor of {run} crashes"));
    if testing::crash_run(&system, run) {
        world.strike(Fault::CrashRun);
        world.tell(&Event::RunCrashed { run });
    }
}
