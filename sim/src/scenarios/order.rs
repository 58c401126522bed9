//! An order is paid, packed in parts, and shipped when the carrier comes.

use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::{Status, SystemBuilder};
use serde::{Deserialize, Serialize};

use super::unless_changed;
use crate::effects::Effects;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of nested children, a suspension, and a payment.
#[derive(Debug, Clone, Copy, Default)]
pub struct OrderFulfilment;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OrderInput {
    items: Vec<String>,
    cents: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Shipped {
    parcels: usize,
}

struct Shop(Effects);

impl Agent for Shop {
    const TYPE: &'static str = "Shop";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::tell_customer);
    }
}

impl Shop {
    async fn tell_customer(
        &self,
        _: &AgentContext,
        run: RunInfo,
        end: Outcome<Value>,
    ) -> Result<(), RunError> {
        if end.status() == Status::Completed {
            self.0.perform("mail", &run.run_id);
        }
        Ok(())
    }
}

struct Order(Effects);

impl Agent for Order {
    const TYPE: &'static str = "Order";
}

impl Child for Order {
    type Input = OrderInput;
    type Output = Shipped;

    async fn run(&self, cx: &RunContext, order: OrderInput) -> Result<Shipped, RunError> {
        cx.step("charge", async || {
            self.0.perform("charge", &cx.key());
            Ok(order.cents)
        })
        .await?;
        cx.milestone("paid", json!({ "cents": order.cents })).await?;
        let shop = cx.agent::<Self>();
        let mut packing = Vec::new();
        for item in &order.items {
            packing.push(shop.start::<Pack>(item.clone()).await?);
        }
        let mut parcels = 0;
        for item in packing {
            parcels += item.outcome().await?.completed()?;
            cx.progress(Progress::of(parcels as u64, order.items.len() as u64));
        }
        // The carrier comes in the evening.
        cx.sleep(Duration::from_secs(6 * 3600)).await;
        cx.step("ship", async || {
            self.0.perform("ship", &cx.key());
            Ok(())
        })
        .await?;
        Ok(Shipped { parcels })
    }
}

struct Pack(Effects);

impl Agent for Pack {
    const TYPE: &'static str = "Pack";
}

impl Child for Pack {
    type Input = String;
    type Output = usize;

    async fn run(&self, cx: &RunContext, item: String) -> Result<usize, RunError> {
        cx.step("pick", async || {
            self.0.perform("pick", &cx.key());
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        })
        .await?;
        cx.emit(json!({ "type": "data-packed", "item": item })).await?;
        Ok(1)
    }
}

impl Scenario for OrderFulfilment {
    fn name(&self) -> String {
        "order".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        let effects = world.effects();
        system.agent(Shop(effects.clone())).child(Order(effects.clone())).child(Pack(effects))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let shop = life.agent::<Shop>("main")?;
        let items = ["lamp", "bulb", "cord", "shade"].map(String::from).to_vec();
        let order = OrderInput { items, cents: 4200 };
        let shipped = shop.run::<Order>(order).id("order-1").await?;
        life.world().promise("order-1", &shipped);
        unless_changed(life, shipped, &Shipped { parcels: 4 })
    }

    fn invariants(&self) -> Invariants {
        Invariants::none()
            .always("nobody is charged twice", |world| world.effects().count("charge") <= 1)
            .always("nothing is shipped unpaid, or twice", |world| {
                world.effects().count("ship") <= world.effects().count("charge")
            })
            .always("nothing is picked twice", |world| world.effects().count("pick") <= 4)
            .finally("the order was shipped", |world| {
                world.effects().count("ship") == 1 || world.ends_may_change()
            })
            .finally("the customer was told of what was shipped", |world| {
                world.effects().count("mail") == 1 || world.ends_may_change()
            })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
