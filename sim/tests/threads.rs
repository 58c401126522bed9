//! What leaves the simulated thread is told of, and what happens on it is told in the timeline.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::disallowed_methods, reason = "code that blocks its thread is the subject")]

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight::testing::TestSystem;
use ghostlight_sim::{Effects, Life, Plan, Scenario, Simulation, World};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Does {
    Nothing,
    BlocksItsThread,
    ActsOnAnotherThread,
    Logs,
    Panics,
}

struct Worker(Option<Effects>);

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = Does;
    type Output = ();

    async fn run(&self, cx: &RunContext, does: Does) -> Result<(), RunError> {
        match does {
            Does::Nothing => {}
            Does::BlocksItsThread => std::thread::sleep(Duration::from_millis(600)),
            Does::ActsOnAnotherThread => {
                if let Some(effects) = self.0.clone() {
                    let acts = std::thread::spawn(move || effects.perform("charge", "key"));
                    acts.join().unwrap();
                }
            }
            Does::Logs => {
                tracing::info!(cents = 42, "charging");
                tracing::debug!("in detail");
                tracing::info!(target: "ractor::actor", "with an id that differs each time");
            }
            Does::Panics => panic!("on purpose"),
        }
        cx.step("work", async || Ok(())).await
    }
}

struct Working(Does);

impl Scenario for Working {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Worker(Some(world.effects())))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let worked = life.agent::<Worker>("w")?.run::<Worker>(self.0).id("r").await?;
        match self.0 {
            Does::Panics => {
                let error = worked.completed().unwrap_err().to_string();
                assert!(error.contains("on purpose"), "{error}");
                assert!(error.contains("threads.rs:"), "the place is known: {error}");
                Ok(())
            }
            _ => Ok(worked.completed()?),
        }
    }
}

fn warnings(does: Does) -> Vec<String> {
    Simulation::new(Working(does)).check().warnings.into_iter().collect()
}

#[test]
fn code_that_blocks_its_thread_is_told_of() {
    let told = warnings(Does::BlocksItsThread);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("Worker:w/Worker:r kept its thread for more than"), "{told:?}");
}

#[test]
fn an_effect_on_another_thread_is_told_of() {
    let told = warnings(Does::ActsOnAnotherThread);
    assert_eq!(
        told,
        ["effect charge under key on another thread: when that happens is not simulated"]
    );
}

#[test]
fn all_other_code_is_not() {
    assert_eq!(warnings(Does::Nothing), [""; 0]);
    assert_eq!(warnings(Does::Logs), [""; 0]);
}

#[test]
fn what_code_logs_is_in_the_timeline() {
    let trace = Simulation::new(Working(Does::Logs)).trace(&Plan::calm(0)).unwrap();
    let logged: Vec<_> = trace.iter().filter(|line| line.kind == "log").collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert_eq!((&*logged[0].who, &*logged[0].text), ("Worker:w/Worker:r", "charging cents=42"));
    assert!(!trace.iter().any(|line| line.text.contains("differs each time")));
}

/// Whoever came first, the simulation or a system outside of it.
#[test]
fn a_panic_has_its_place_and_a_line_of_the_timeline() {
    let outside = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    outside.block_on(async {
        let system = TestSystem::new(1).child(Worker(None)).start().await.unwrap();
        let worked = system.agent::<Worker>("w").unwrap().run::<Worker>(Does::Panics).await;
        let error = worked.unwrap().completed().unwrap_err().to_string();
        assert!(error.contains("threads.rs:"), "{error}");
    });
    let trace = Simulation::new(Working(Does::Panics)).trace(&Plan::calm(0)).unwrap();
    let panic = trace.iter().find(|line| line.kind == "panic").unwrap();
    assert_eq!(panic.who, "Worker:w/Worker:r");
    assert!(panic.text.contains("threads.rs:"), "{}", panic.text);
}
