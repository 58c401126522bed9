//! Which fault is found with what, as what, and how soon.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use ghostlight::protocol::planted::Planted::{self, *};
use ghostlight::protocol::planted::plant;
use ghostlight_sim::Simulation;
use ghostlight_sim::scenarios::{Clear, FanOut, Hooks, OrderFulfilment, Retrying};

use crate::scenarios::{Cancelled, Errands, Office, Sprint};

/// How a fault is found.
struct Row {
    fault: Planted,
    /// What is executed.
    simulation: fn() -> Simulation,
    /// The invariants that may be the first to report it.
    found_as: &'static [&'static str],
    /// After how many plans at most; 1 is the calm one, and every other row is of a fault that the calm
    /// world must not show.
    plans_max: u64,
}

const fn row(
    fault: Planted,
    simulation: fn() -> Simulation,
    found_as: &'static [&'static str],
    plans_max: u64,
) -> Row {
    Row { fault, simulation, found_as, plans_max }
}

fn office() -> Simulation {
    Simulation::new(Office).crash_at_every_commit()
}
fn sprint() -> Simulation {
    Simulation::new(Sprint).crash_at_every_commit()
}
fn sprint_by_chance() -> Simulation {
    Simulation::new(Sprint).seeds(200)
}
fn sprint_evicted() -> Simulation {
    Simulation::new(Sprint).evict_at_every_turn()
}
fn sprint_crashed() -> Simulation {
    Simulation::new(Sprint).crash_parent_at_every_turn()
}
fn cancelled() -> Simulation {
    Simulation::new(Cancelled).crash_at_every_commit()
}
fn errands() -> Simulation {
    Simulation::new(Errands).crash_at_every_commit().pairs(100)
}
fn clear() -> Simulation {
    Simulation::new(Clear).crash_at_every_commit()
}
fn fan_out() -> Simulation {
    Simulation::new(FanOut).crash_at_every_commit()
}
fn hooks() -> Simulation {
    Simulation::new(Hooks).crash_at_every_commit()
}
fn order() -> Simulation {
    Simulation::new(OrderFulfilment).crash_at_every_commit()
}
fn retry() -> Simulation {
    Simulation::new(Retrying).crash_at_every_commit()
}

const TABLE: &[Row] = &[
    row(AcknowledgeEarly, office, &["what callers were told stays true"], 1),
    row(DropOwed, office, &["what is owed is delivered"], 1),
    row(DeliverTwice, office, &["what is owed is delivered"], 1),
    row(OweNothing, office, &["what is owed is delivered"], 1),
    row(ForgetLive, office, &["the index of live runs tells the truth"], 1),
    row(KeepLive, office, &["the index of live runs tells the truth"], 1),
    row(SwallowCancel, cancelled, &["what callers were told stays true"], 1),
    row(ForgetCascade, office, &["a cancel that is recorded ends the run"], 1),
    row(PublishEarly, office, &["observers see what is durable, once and in order"], 1),
    row(TailGap, office, &["observers see what is durable, once and in order"], 1),
    row(LoseTimer, office, &["the index of live runs tells the truth"], 1),
    row(WakeAsAttempt, office, &["an attempt is lost with its process or actor alone"], 1),
    row(LoseAdmitted, office, &["a world comes to its end"], 1),
    row(
        IgnoreCap,
        office,
        &["executions never exceed the cap, and no run overtakes a queued one"],
        1,
    ),
    row(NoTombstone, office, &["what is owed is delivered"], 1),
    row(RestartSleep, errands, &["what was recorded of a step, a sleep or a wait stands"], 1),
    row(LoseCall, office, &["the drive comes to an end"], 1),
    row(PanicInActor, office, &["the system itself never panics"], 1),
    row(TurnsAtOnce, office, &["what is owed is delivered"], 1),
    row(PartsLast, retry, &["a hard end never changes"], 1),
    // From here on, those that the calm world does not show.
    row(AcknowledgeFailed, sprint_by_chance, &["a disk that has failed is left alone"], 20),
    row(GoOnAfterFailure, sprint_by_chance, &["a disk that has failed is left alone"], 60),
    row(SkipSync, sprint, &["observers see what is durable, once and in order"], 10),
    row(
        TearBatch,
        fan_out,
        // The drive is told that a record of a log is missing.
        &[
            "the index of live runs tells the truth",
            "a hard end never changes",
            "the drive succeeds",
        ],
        70,
    ),
    row(ReuseNumber, sprint, &["a run has one sequence of frames"], 10),
    row(ForgetOwed, order, &["everything comes to an end"], 73),
    row(ForgetRunning, errands, &["everything comes to an end"], 60),
    row(SkipStartHook, hooks, &["only who was admitted is executed"], 10),
    row(ResumeTwice, sprint, &["a run is executed by one at a time"], 10),
    row(ResumeExecuted, sprint_evicted, &["the drive succeeds"], 5),
    row(ForgetCancel, cancelled, &["the drive comes to an end"], 30),
    row(DoubleMilestone, sprint, &["a milestone is reached once"], 15),
    row(ForgetStep, sprint, &["what was recorded of a step, a sleep or a wait stands"], 10),
    row(SwapResults, sprint, &["every run ends as it does in peace"], 15),
    row(ForgetState, retry, &["the drive succeeds"], 20),
    row(ForgetSource, retry, &["no block is missing, and none is there twice"], 25),
    row(PassOverdue, errands, &["everything comes to an end"], 150),
    row(IgnoreLoss, errands, &["everything comes to an end"], 60),
    row(
        ForgetQueue,
        fan_out,
        &["executions never exceed the cap, and no run overtakes a queued one"],
        40,
    ),
    row(
        ForgetSlots,
        office,
        &["executions never exceed the cap, and no run overtakes a queued one"],
        110,
    ),
    row(LeakSlots, fan_out, &["the drive comes to an end"], 40),
    row(ForgetPurge, clear, &["everything comes to an end"], 110),
    row(ForgetWaiting, office, &["the drive comes to an end"], 110),
    // A crash that does nothing proves nothing.
    row(SurviveKill, sprint, &["a fault does what it says"], 2),
    row(SurviveFailure, sprint_by_chance, &["a fault does what it says"], 60),
    row(SurviveAgentCrash, sprint_crashed, &["a fault does what it says"], 5),
    row(SurviveEviction, sprint_evicted, &["a fault does what it says"], 5),
    row(
        SurviveRunCrash,
        sprint_by_chance,
        &["an attempt is lost with its process or actor alone"],
        60,
    ),
];

/// Longer than anything takes here, and short enough that what is stuck costs little.
const A_WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is wrong with how a fault is found, if anything is.
fn look_for(row: &Row) -> Result<(), String> {
    plant(Some(row.fault));
    let found = (row.simulation)().commits_max(2_000).life_max(A_WEEK).run();
    plant(None);
    let fault = row.fault;
    let failure = match found {
        Err(failure) => failure,
        Ok(report) => return Err(format!("{fault:?} is not found: {report}")),
    };
    let (plans, plan, invariant) = (failure.plans, &failure.plan, &failure.invariant);
    let text: String = failure.text.chars().take(200).collect();
    let how = format!("{fault:?}: plan {plans}, {plan}: {invariant:?}: {text}");
    eprintln!("{how}");
    if plans > row.plans_max {
        return Err(format!("{how}: later than plan {}", row.plans_max));
    }
    if plans == 1 && row.plans_max > 1 {
        return Err(format!("{how}: the calm world shows it"));
    }
    if !row.found_as.contains(&invariant.as_str()) {
        return Err(format!("{how}: it should be found as one of {:?}", row.found_as));
    }
    Ok(())
}

#[test]
fn every_planted_fault_is_found_as_what_it_is_and_soon() {
    let left = Mutex::new(TABLE.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(row) = { left.lock().unwrap().next() } {
                    wrong.lock().unwrap().extend(look_for(row).err());
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fault_is_in_the_table_once_and_most_need_a_crash() {
    let faults: BTreeSet<_> = TABLE.iter().map(|row| row.fault).collect();
    assert_eq!(faults.len(), TABLE.len());
    assert_eq!(faults, Planted::ALL.into_iter().collect());
    assert!(TABLE.iter().filter(|row| row.plans_max > 1).count() >= 15);
}

#[test]
fn without_a_planted_fault_all_is_well() {
    for simulation in [Simulation::new(Office), Simulation::new(Sprint)] {
        let simulation = simulation.crash_at_every_commit().evict_at_every_turn().seeds(20);
        let report = simulation.at_most(30).check();
        eprintln!("{report}");
    }
}
