//! A hotline with two lines: who calls while both are taken is turned away, and calls again. One caller
//! would never hang up.

use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::{Error, SystemBuilder};

use super::unless_changed;
use crate::{Fault, Life, Scenario, World};

/// The shipped scenario of a cap that refuses, and of a cancel that makes room.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refuse;

const CALLERS: [&str; 4] = ["ada", "ben", "cleo", "dan"];
const LINES: usize = 2;
/// Who would never hang up.
const ENDLESS: &str = "endless";

struct Hotline;

impl Agent for Hotline {
    const TYPE: &'static str = "Hotline";

    fn settings(&self) -> AgentSettings {
        AgentSettings { max_concurrent_runs: Some(LINES), ..AgentSettings::default() }
    }
}

struct Talk;

impl Agent for Talk {
    const TYPE: &'static str = "Talk";
}

impl Child for Talk {
    type Input = Duration;
    type Output = ();

    async fn run(&self, cx: &RunContext, time: Duration) -> Result<(), RunError> {
        cx.milestone("through", json!(null)).await?;
        cx.sleep(time).await;
        Ok(())
    }
}

/// Calls until there is a line. A refusal leaves nothing behind.
async fn call(
    line: &AgentHandle<Hotline>,
    caller: &str,
    time: Duration,
) -> Result<Run<Talk>, RunError> {
    loop {
        match line.start::<Talk>(time).id(caller).await {
            Ok(talk) => return Ok(talk),
            Err(Error::CapExceeded { limit }) => {
                assert_eq!(limit, LINES);
                let recorded = line.inspect(caller).await?;
                assert!(recorded.is_none(), "{caller} was refused, and is recorded: {recorded:?}");
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Scenario for Refuse {
    fn name(&self) -> String {
        "refuse".into()
    }

    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.agent(Hotline).child(Talk)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let line = life.agent::<Hotline>("help")?;
        let endless = call(&line, ENDLESS, Duration::from_secs(365 * 24 * 3600)).await?;
        let mut talks = Vec::new();
        for (number, caller) in CALLERS.iter().enumerate() {
            talks.push(call(&line, caller, Duration::from_millis(1500)).await?);
            if number == 2 {
                endless.cancel("thrown off the line").await?;
            }
        }
        for (caller, talk) in CALLERS.iter().zip(talks) {
            let talk = talk.outcome().await?;
            life.world().promise(*caller, &talk);
            unless_changed(life, talk, &())?;
        }
        let endless = endless.outcome().await?;
        life.world().promise(ENDLESS, &endless);
        Ok(())
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
