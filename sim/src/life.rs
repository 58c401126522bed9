//! One life of the simulated process: a runtime of its own, a system on the disk, and observers.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ghostlight::testing::{self, At, BeforeCode, Probe, Seen};
use ghostlight::{Agent, AgentHandle, AgentPath, Error, Limits, System, SystemBuilder};
use tokio::time::Instant;

use crate::disk::{DISK_FAILED, DiskOfLife};
use crate::disturb;
use crate::durable::Durable;
use crate::invariant::Event;
use crate::observers;
use crate::plan::{Counter, Fault};
use crate::scenario::Erased;
use crate::thread::{self, OfALife, Watchdog};
use crate::world::{Cut, World};

/// The longest that the drive may take in one life, in virtual time: 100 days. Whatever takes longer
/// counts as stuck, unless [`Simulation::life_max`](crate::Simulation::life_max) says otherwise.
pub const LIFE_MAX: Duration = Duration::from_secs(100 * 24 * 3600);
/// The longest that what the drive has left behind may take, in virtual time: 31 days. Whatever takes
/// longer counts as stuck.
pub const SETTLE_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// One life of the simulated process, as the drive of a scenario sees it.
pub struct Life {
    world: World,
    system: System,
}

impl Life {
    /// What outlives this life.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The system of this life.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// An agent of this life's system.
    ///
    /// # Errors
    /// As [`System::agent`].
    pub fn agent<A: Agent>(&self, name: &str) -> Result<AgentHandle<A>, Error> {
        self.system.agent(name)
    }
}

/// How a life ended.
pub(crate) enum LifeEnd {
    /// The drive has returned, and nothing is left to do.
    Settled,
    /// The process was killed.
    Killed,
    /// The process was asked to stop, and has.
    Stopped,
    /// Something does not hold.
    Violated,
}

/// Lives one life on a runtime of its own; dropping that drops every task, as a kill would.
pub(crate) fn live(
    scenario: &dyn Erased,
    world: &World,
    watchdog: &Watchdog,
) -> std::io::Result<LifeEnd> {
    let runtime = runtime(world.seed())?;
    let _of_a_life = OfALife::begin(world, watchdog);
    let subscriber = tracing::Dispatch::new(crate::trace::Collect(world.clone()));
    let end = tracing::dispatcher::with_default(&subscriber, || {
        let end = catch_unwind(AssertUnwindSafe(|| runtime.block_on(one(scenario, world))));
        // What is left of agents is dropped here, and may panic, too.
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            world.set_system(None);
            drop(runtime);
        }));
        match (end, dropped) {
            (Ok(end), Ok(())) => end,
            _ => {
                world.violated("the code of the scenario does not panic", thread::last_panic());
                LifeEnd::Violated
            }
        }
    });
    Ok(match world.violation() {
        Some(_) => LifeEnd::Violated,
        None => end,
    })
}

/// A panic's message.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn runtime(seed: u64) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build()
}

/// Whether tokio's choices are decided by the seed of a life, as seen from what it chooses.
pub(crate) fn chooses_by_seed() -> bool {
    let choices = |seed| {
        let chosen = runtime(seed).map(|runtime| {
            runtime.block_on(async {
                let mut chosen = [false; 64];
                for chosen in &mut chosen {
                    *chosen = tokio::select! {
                        () = std::future::ready(()) => true,
                        () = std::future::ready(()) => false,
                    };
                }
                chosen
            })
        });
        chosen.ok()
    };
    choices(1) == choices(1) && choices(1) != choices(2)
}

async fn one(scenario: &dyn Erased, world: &World) -> LifeEnd {
    world.begin_life();
    let mut started = None;
    let stopped = Error::Stopped.to_string();
    let life = async {
        let builder = SystemBuilder::on_backend(DiskOfLife::new(world))
            .clock(world.clock())
            .seed(world.seed())
            .limits(Limits {
                unread_frames_max: observers::unread_max(world.plan().seed),
                ..Limits::default()
            })
            .probe(Arc::new(WorldProbe(world.clone())));
        let (began, busy) = (Instant::now(), world.disk_busy());
        thread::polling(&"Scenario::agents");
        let builder = catch_unwind(AssertUnwindSafe(|| scenario.agents(builder, world)));
        thread::polled();
        let Ok(builder) = builder else {
            world.violated("the agents can be registered", thread::last_panic());
            return LifeEnd::Violated;
        };
        let system = match builder.start().await {
            Ok(system) => started.insert(system).clone(),
            Err(_) if world.store_failed() => return LifeEnd::Killed,
            Err(error) => {
                world.violated("every start succeeds", error.to_string());
                return LifeEnd::Violated;
            }
        };
        if began.elapsed() > world.disk_busy() - busy {
            let text = format!("it took {:?}, and the disk less", began.elapsed());
            world.violated("a start waits for the disk alone", text);
            return LifeEnd::Violated;
        }
        world.set_system(Some(system.clone()));
        tokio::spawn(observers::observe(world.clone(), system.clone()));
        let life = Life { world: world.clone(), system };
        let mut drive = pin!(scenario.drive(&life));
        let driven = poll_fn(|cx| {
            thread::polling(&"the drive");
            let polled = catch_unwind(AssertUnwindSafe(|| drive.as_mut().poll(cx)));
            thread::polled();
            polled.map_or_else(|panic| Poll::Ready(Err(panic)), |polled| polled.map(Ok))
        });
        let Ok(driven) = tokio::time::timeout(world.life_max(), driven).await else {
            let text = stuck(world, "the drive", &life_max(world));
            world.violated("the drive comes to an end", text);
            return LifeEnd::Violated;
        };
        match driven {
            Ok(Ok(())) => {}
            // The store takes no writes any more: the process has to be started again.
            Ok(Err(error)) if is_of_the_disk(world, error.message()) => return LifeEnd::Killed,
            Err(panic) if is_of_the_disk(world, &words(&*panic)) => return LifeEnd::Killed,
            // Until the stop is over: it is refused like anybody from outside.
            Ok(Err(error)) if world.is_stopping() && error.message().contains(&stopped) => {
                std::future::pending().await
            }
            Ok(Err(error)) => {
                world.violated("the drive succeeds", error.to_string());
                return LifeEnd::Violated;
            }
            Err(panic) => {
                world.violated("the drive does not panic", words(&*panic));
                return LifeEnd::Violated;
            }
        }
        settle(world).await
    };
    let end = tokio::select! {
        biased;
        cut = world.cut() => match cut {
            Cut::Killed => LifeEnd::Killed,
            Cut::Violated => LifeEnd::Violated,
        },
        end = life => end,
        () = drain(world) => LifeEnd::Stopped,
        () = tokio::time::sleep(world.life_max().saturating_add(SETTLE_MAX)) => {
            let text = stuck(world, "the start or the drive", &life_max(world));
            world.violated("every start succeeds", text);
            LifeEnd::Violated
        }
    };
    if let LifeEnd::Settled = end {
        world.tell(&Event::Settled);
    }
    world.set_system(None);
    if let Some(system) = started {
        match end {
            LifeEnd::Stopped => tokio::select! {
                biased;
                _ = world.cut() => system.crash().await,
                _ = system.clone().shutdown() => {}
            },
            _ => system.crash().await,
        }
    }
    world.end_life();
    end
}

/// Whether a drive failed by what the disk has told it, and not by something that it has seen.
fn is_of_the_disk(world: &World, text: &str) -> bool {
    world.store_failed() && text.contains(DISK_FAILED)
}

/// Waits for what is being executed, once the process is asked to stop.
async fn drain(world: &World) {
    world.asked_to_stop().await;
    let Some(system) = world.system() else { return };
    let (began, busy) = (Instant::now(), world.disk_busy());
    system.drain().await;
    let (took, max) = (began.elapsed(), testing::limits_of(&system).shutdown_drain);
    world.tell(&Event::Drained { timed_out: took >= max });
    let stalled = world.disk_busy().saturating_sub(busy);
    if took > max.saturating_add(stalled) {
        let text = format!("it has waited for {took:?}, and may for {max:?}");
        world.violated("a stop waits no longer than it may", text);
    }
}

/// Waits until nothing is left to do.
async fn settle(world: &World) -> LifeEnd {
    let wait = async {
        loop {
            // Frames, hooks and observers of what has just ended get their turn.
            tokio::time::sleep(Duration::from_secs(5)).await;
            if world.store_failed() {
                // What is on the disk was not told to everybody, and cannot be any more.
                return LifeEnd::Killed;
            }
            // Nobody who reads is cut off.
            if world.durable(Durable::is_settled) {
                world.observers().observe_the_rest();
                if world.observers().are_done() {
                    return LifeEnd::Settled;
                }
            }
        }
    };
    match tokio::time::timeout(SETTLE_MAX.min(world.life_max()), wait).await {
        Ok(end) => end,
        Err(_) => {
            let limit = match world.life_max() {
                shorter if shorter < SETTLE_MAX => life_max(world),
                _ => format!("SETTLE_MAX is {}", days(SETTLE_MAX)),
            };
            let text = stuck(world, "an observer of a run", &limit);
            world.violated("everything comes to an end", text);
            LifeEnd::Violated
        }
    }
}

/// What is not done by a limit; `waits` is who waits if every run is.
fn stuck(world: &World, waits: &str, limit: &str) -> String {
    let left = world.durable(|durable| {
        let open = durable.runs().filter(|(_, run)| !run.is_settled());
        let names = open.filter_map(|(_, run)| run.path.as_ref().map(AgentPath::to_string));
        names.collect::<Vec<_>>()
    });
    if left.is_empty() {
        return format!(
            "after all this virtual time {waits} still waits, and no run is open ({limit})"
        );
    }
    format!(
        "after all this virtual time these are not done: {} ({limit}; a step that waits for a thread of its own, a socket or a process looks like this, too: virtual time passes it by)",
        left.join(", ")
    )
}

fn life_max(world: &World) -> String {
    format!("Simulation::life_max is {}", days(world.life_max()))
}

fn days(time: Duration) -> String {
    match time.as_secs() {
        secs if secs > 0 && secs.is_multiple_of(24 * 3600) => {
            format!("{} days", secs / (24 * 3600))
        }
        _ => format!("{time:?}"),
    }
}

/// Passes what the system tells of itself on to those who check.
struct WorldProbe(World);

impl WorldProbe {
    fn attempt(&self, run: &AgentPath) -> u32 {
        self.0.durable(|durable| {
            let record = durable.run_at(run).and_then(|run| run.record.as_ref());
            record.map_or(0, |record| record.attempt)
        })
    }
}

impl Probe for WorldProbe {
    fn see(&self, seen: Seen<'_>) -> bool {
        match seen {
            Seen::Polling { run } => {
                thread::polling(run);
                return true;
            }
            Seen::Polled { .. } => {
                thread::polled();
                return true;
            }
            Seen::StepBegan { run, key } if !thread::is_of_a_life() => {
                let text = "is executed on another thread: nothing of that is simulated";
                self.0.warn(format!("step {key:?} of {run} {text}"));
            }
            Seen::Blocking { run, key } => {
                let text = "blocks a thread: nothing of it is simulated";
                self.0.trace_of("blocking", run.as_str(), format!("step {key:?} {text}"));
                self.0.warn(format!("step {key:?} of {run} {text}"));
            }
            _ => {}
        }
        self.0.tell(&Event::System(seen));
        if let Seen::Handled { agent } = seen {
            self.0.judge_handled(agent);
            let (message, faults, _) = self.0.count(Counter::Message);
            self.0.trace_message(agent, message);
            for fault in faults {
                disturb::befall(&self.0, agent, fault);
            }
        }
        true
    }

    fn before_code(&self, run: &AgentPath, at: At<'_>) -> Option<BeforeCode> {
        let (place, faults, _) = self.0.count(Counter::Code);
        let text = match at {
            At::Entry => format!("{place}: the code is entered, attempt {}", self.attempt(run)),
            At::Step(key) => format!("{place}: step {key:?} begins"),
            At::AfterStep(key) => format!("{place}: the code has the result of step {key:?}"),
            _ => place.to_string(),
        };
        self.0.trace_of("code", run.as_str(), text);
        let mut before = Vec::new();
        for fault in faults {
            match fault {
                Fault::CrashRun => disturb::crash_run(&self.0, run),
                fault => before.push(fault),
            }
        }
        if before.is_empty() {
            return None;
        }
        let (world, run) = (self.0.clone(), run.clone());
        Some(Box::pin(async move {
            for fault in before {
                world.strike(fault);
                if let Fault::StallChild(ms) = fault {
                    world.trace("fault", format!("{run} stalls for {ms} ms"));
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                } else {
                    world.trace("fault", format!("{run} panics"));
                    panic!("simulated");
                }
            }
        }))
    }
}
