//! A trip is called off while its legs are under way and it sleeps; another one just as it ends.

use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::protocol::run::{End, Phase};
use ghostlight::{Error, SystemBuilder};

use crate::effects::Effects;
use crate::{Fault, Invariants, Life, PlannedFault, Scenario, World};

/// The shipped scenario of cancels from outside: of a run that waits, and of one that races its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cancel;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Journey {
    legs: u32,
    rest: Duration,
}

struct Trip(Effects);

impl Agent for Trip {
    const TYPE: &'static str = "Trip";
}

impl Child for Trip {
    type Input = Journey;
    type Output = u32;

    async fn run(&self, cx: &RunContext, journey: Journey) -> Result<u32, RunError> {
        let trip = cx.agent::<Self>();
        let photos = trip.start::<Leg>(Duration::from_secs(60)).id("photos").detached().await?;
        let mut legs = Vec::new();
        for leg in 0..journey.legs {
            legs.push(trip.start::<Leg>(journey.rest).id(format!("leg-{leg}")).await?);
        }
        cx.milestone("under-way", json!({ "photos": photos.id() })).await?;
        cx.sleep(journey.rest).await;
        for leg in &legs {
            // A leg that failed does not end the trip.
            leg.outcome().await?;
        }
        cx.step("return", async || {
            self.0.perform("return", &cx.key());
            Ok(())
        })
        .await?;
        Ok(journey.legs)
    }
}

struct Leg;

impl Agent for Leg {
    const TYPE: &'static str = "Leg";
}

impl Child for Leg {
    type Input = Duration;
    type Output = ();

    async fn run(&self, cx: &RunContext, rest: Duration) -> Result<(), RunError> {
        cx.step("depart", async || Ok(())).await?;
        cx.sleep(rest).await;
        cx.step("arrive", async || Ok(())).await
    }
}

impl Scenario for Cancel {
    fn name(&self) -> String {
        "cancel".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Trip(world.effects())).child(Leg)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let agency = life.agent::<Trip>("agency")?;
        let month = Journey { legs: 2, rest: Duration::from_secs(30 * 24 * 3600) };
        let month = agency.start::<Trip>(month).id("month").await?;
        let short = Journey { legs: 1, rest: Duration::from_millis(20) };
        let short = agency.start::<Trip>(short).id("short").await?;
        match month.milestone("under-way").await {
            // Its code panicked, or was cancelled by a fault of the plan.
            Ok(_) | Err(Error::NoMilestone { .. }) => {}
            // Its code stalls.
            Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        month.cancel("strike").await?;
        let month = month.outcome().await?;
        life.world().promise("month", &month);
        // Where the clock jumps its month may be over before it is called off.
        let jumps = |planned: &PlannedFault| matches!(planned.fault, Fault::Jump(_));
        let jumps = life.world().plan().faults.iter().any(jumps);
        assert!(jumps || month.status() != Status::Completed, "{month:?}");

        // About when it ends by itself.
        tokio::time::sleep(Duration::from_millis(life.world().plan().seed % 40)).await;
        short.cancel("rain").await?;
        life.world().promise("short", short.outcome().await?);
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none()
            .always("whoever has completed a trip has returned from it", |world| {
                let completed = world.durable(|durable| {
                    let trips = durable.runs().filter(|(_, run)| {
                        run.record.as_ref().is_some_and(|record| {
                            record.agent_type == Trip::TYPE
                                && record.state.phase == Phase::Ended(End::Completed)
                        })
                    });
                    trips.filter_map(|(_, run)| run.path.clone()).collect::<Vec<_>>()
                });
                let key = |trip| format!("{trip}#return");
                completed.iter().all(|trip| world.effects().performances("return", &key(trip)) > 0)
            })
            .finally("no run is left", |world| {
                world.durable(|durable| {
                    durable.runs().all(|(_, run)| {
                        run.record
                            .as_ref()
                            .is_some_and(|record| matches!(record.state.phase, Phase::Ended(_)))
                    })
                })
            })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }

    fn is_deterministic(&self) -> bool {
        // A cancel races the end of the short trip.
        false
    }
}
