//! Agents that are not crash-safe are caught, with the crash point that shows it.

use ghostlight::prelude::*;
use ghostlight::testing::Seen;
use ghostlight::{RunFilter, SystemBuilder};
use ghostlight_sim::{
    Durable, Effects, Event, Failure, Invariant, Invariants, Life, Scenario, Simulation, World,
};

/// Which mistake the agent makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A side effect between steps.
    EffectOutsideStep,
    /// A side effect in a step, without the step's key.
    EffectWithoutKey,
    /// Code between steps that depends on something else than the journal.
    Nondeterminism,
}

struct Payer {
    mistake: Mistake,
    effects: Effects,
}

impl Agent for Payer {
    const TYPE: &'static str = "Payer";
}

impl Child for Payer {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, cents: u64) -> Result<u64, RunError> {
        cx.step("check", async || Ok(())).await?;
        if self.mistake == Mistake::EffectOutsideStep {
            self.effects.perform_unkeyed("charge");
        }
        cx.step("charge", async || {
            match self.mistake {
                Mistake::EffectOutsideStep => {}
                Mistake::EffectWithoutKey => self.effects.perform_unkeyed("charge"),
                _ => _ = self.effects.perform("charge", &cx.key()),
            }
            Ok(())
        })
        .await?;
        if self.mistake == Mistake::Nondeterminism && self.effects.perform("entered", "once") {
            cx.milestone("first", json!(null)).await?;
        }
        cx.milestone("paid", json!(null)).await?;
        cx.step("receipt", async || Ok(())).await?;
        Ok(cents)
    }
}

struct Payment(Mistake);

impl Scenario for Payment {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Payer { mistake: self.0, effects: world.effects() })
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let paid = life.agent::<Payer>("till")?.run::<Payer>(42).id("p").await?;
        life.world().promise("p", &paid);
        assert_eq!(paid.completed()?, 42);
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().always("charged once", |world| world.effects().count("charge") <= 1)
    }
}

fn find(mistake: Mistake) -> Failure {
    let found = Simulation::new(Payment(mistake)).crash_at_every_commit().run();
    *found.expect_err("the mistake is found")
}

#[test]
fn the_mended_agent_passes() {
    Simulation::new(Payment(Mistake::None)).crash_at_every_commit().seeds(50).check();
}

#[test]
fn an_effect_outside_a_step_is_caught() {
    let failure = find(Mistake::EffectOutsideStep);
    eprintln!("{failure}");
    assert_eq!(failure.invariant, "charged once");
    assert_eq!(failure.plan.faults.len(), 1, "one crash is enough: {}", failure.plan);
}

#[test]
fn an_effect_without_a_key_is_caught() {
    let failure = find(Mistake::EffectWithoutKey);
    eprintln!("{failure}");
    assert_eq!(failure.invariant, "charged once");
    assert_eq!(failure.plan.faults.len(), 1, "one crash is enough: {}", failure.plan);
}

#[test]
fn nondeterminism_between_steps_is_caught() {
    let failure = find(Mistake::Nondeterminism);
    eprintln!("{failure}");
    assert!(failure.text.contains("journal mismatch"), "{failure}");
}

#[tokio::test]
#[should_panic(expected = "plain #[test]")]
async fn a_simulation_inside_a_runtime_says_what_to_do() {
    Simulation::new(Payment(Mistake::None)).check();
}

/// Judges by a panic, and looks at the world meanwhile.
struct Asserts;

impl Invariant for Asserts {
    fn name(&self) -> &str {
        "asserts"
    }

    fn check(&mut self, event: &Event<'_>, _: &Durable) -> Result<(), String> {
        assert!(!matches!(event, Event::System(Seen::StepBegan { .. })), "a step begins");
        Ok(())
    }
}

struct Asserting;

impl Scenario for Asserting {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Payment(Mistake::None).agents(system, world)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        life.agent::<Payer>("till")?.run::<Payer>(42).id("p").await?;
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        // One that looks at the world while it looks at the durable state.
        Invariants::none()
            .with(Asserts)
            .always("there is a life", |world| world.durable(|_| world.life() > 0))
    }
}

#[test]
fn an_invariant_that_panics_does_not_hold() {
    let failure = Simulation::new(Asserting).run().expect_err("it is noticed");
    assert_eq!(failure.invariant, "asserts");
    assert!(failure.text.contains("a step begins"), "{failure}");
}

/// Dispatches without an id, and so once more in every life.
struct Forgetful;

impl Scenario for Forgetful {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Payment(Mistake::None).agents(system, world)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        life.agent::<Payer>("till")?.run::<Payer>(42).await?.completed()?;
        Ok(())
    }
}

#[test]
fn a_drive_that_begins_anew_in_the_last_life_is_caught() {
    let failure = Simulation::new(Forgetful).run().expect_err("it is noticed");
    assert_eq!(failure.invariant, "the last life finds everything done");
}

/// Clears its run in the life in which everything has to be done.
struct ClearsLate;

impl Scenario for ClearsLate {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Payment(Mistake::None).agents(system, world)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let till = life.agent::<Payer>("till")?;
        if life.world().life() > 1 {
            till.clear(&RunFilter::default()).await?;
        } else {
            till.run::<Payer>(42).id("p").await?.completed()?;
        }
        Ok(())
    }
}

#[test]
fn whatever_is_written_in_the_last_life_is_caught() {
    let failure = Simulation::new(ClearsLate).run().expect_err("it is noticed");
    assert_eq!(failure.invariant, "the last life finds everything done");
    assert!(failure.text.contains("Payer:till/Payer:p is written"), "{failure}");
}

/// Returns how often its code was entered, which nothing records.
struct Counter(Effects);

impl Agent for Counter {
    const TYPE: &'static str = "Counter";
}

impl Child for Counter {
    type Input = ();
    type Output = u64;

    async fn run(&self, cx: &RunContext, (): ()) -> Result<u64, RunError> {
        self.0.perform("entered", "once");
        let entries = self.0.performances("entered", "once");
        cx.step("only", async || Ok(())).await?;
        Ok(entries)
    }
}

/// Whether it says of itself that its runs always end the same.
struct Counting(bool);

impl Scenario for Counting {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Counter(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let entries = life.agent::<Counter>("c")?.run::<Counter>(()).id("r").await?;
        life.world().promise("r", entries);
        Ok(())
    }

    fn is_deterministic(&self) -> bool {
        self.0
    }
}

#[test]
fn a_run_that_ends_otherwise_after_a_crash_is_caught() {
    let failure = Simulation::new(Counting(true)).crash_at_every_commit().run();
    let failure = failure.expect_err("it is noticed");
    assert_eq!(failure.invariant, "every run ends as it does in peace");
    assert_eq!(failure.plan.faults.len(), 1, "one crash is enough: {}", failure.plan);
    let again = Simulation::new(Counting(true)).plan(failure.plan).run().expect_err("and again");
    assert_eq!(again.text, failure.text);
    Simulation::new(Counting(false)).crash_at_every_commit().check();
}

/// As [`Counter`], with an output that is too large for a record.
struct LargeCounter(Effects);

impl Agent for LargeCounter {
    const TYPE: &'static str = "LargeCounter";
}

impl Child for LargeCounter {
    type Input = ();
    type Output = String;

    async fn run(&self, cx: &RunContext, (): ()) -> Result<String, RunError> {
        self.0.perform("entered", "once");
        let entries = self.0.performances("entered", "once");
        cx.step("only", async || Ok(())).await?;
        Ok(char::from(b'a' + (entries % 26) as u8).to_string().repeat(60 << 10))
    }
}

struct CountingLargely;

impl Scenario for CountingLargely {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(LargeCounter(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        life.agent::<LargeCounter>("c")?.run::<LargeCounter>(()).id("r").await?;
        Ok(())
    }
}

#[test]
fn a_large_output_that_is_another_after_a_crash_is_caught() {
    let failure = Simulation::new(CountingLargely).crash_at_every_commit().run();
    let failure = failure.expect_err("it is noticed");
    assert_eq!(failure.invariant, "every run ends as it does in peace");
}

/// Gives up after so many attempts in a row without progress.
struct Fragile(u32);

impl Agent for Fragile {
    const TYPE: &'static str = "Fragile";
}

impl Child for Fragile {
    type Input = ();
    type Output = u64;

    fn recovery(&self) -> RecoveryPolicy {
        RecoveryPolicy { attempts_max: self.0, ..RecoveryPolicy::default() }
    }

    async fn run(&self, cx: &RunContext, (): ()) -> Result<u64, RunError> {
        for step in 0..8u64 {
            cx.step(("step", step), async || Ok(())).await?;
        }
        Ok(8)
    }
}

/// Does not look at the outcome.
struct Careless(u32);

impl Scenario for Careless {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Fragile(self.0))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        life.agent::<Fragile>("f")?.run::<Fragile>(()).id("r").await?;
        Ok(())
    }
}

#[test]
fn a_run_that_dies_of_any_crash_is_caught() {
    let failure = Simulation::new(Careless(1)).crash_at_every_commit().run();
    let failure = failure.expect_err("it is noticed");
    assert_eq!(failure.invariant, "every run ends as it does in peace");
    assert_eq!(failure.plan.faults.len(), 1, "one crash is enough: {}", failure.plan);
    assert!(failure.text.contains("attempts-exhausted"), "{failure}");
    Simulation::new(Careless(2)).crash_at_every_commit().check();
}

/// Dispatches a run in the first life alone, which a crash before that is durable loses.
struct Forgets;

impl Scenario for Forgets {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Payment(Mistake::None).agents(system, world)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        if life.world().life() == 1 {
            life.agent::<Payer>("till")?.run::<Payer>(42).id("p").await?;
        }
        Ok(())
    }
}

#[test]
fn a_run_that_is_missing_after_a_crash_is_caught() {
    let failure = Simulation::new(Forgets).crash_at_every_commit().run();
    let failure = failure.expect_err("it is noticed");
    assert_eq!(failure.invariant, "every run ends as it does in peace");
    assert!(failure.text.contains("there are 0 runs of Payer"), "{failure}");
}

/// Dispatches without an id, until it has seen the end.
struct Repeats;

impl Scenario for Repeats {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Payment(Mistake::None).agents(system, world)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        if life.world().effects().count("seen") == 0 {
            life.agent::<Payer>("till")?.run::<Payer>(42).await?.completed()?;
            life.world().effects().perform("seen", "once");
        }
        Ok(())
    }
}

#[test]
fn a_run_that_is_dispatched_again_under_another_id_is_caught() {
    let failure = Simulation::new(Repeats).crash_at_every_commit().run();
    let failure = failure.expect_err("it is noticed");
    assert_eq!(failure.invariant, "every run ends as it does in peace");
    assert!(failure.text.contains("there are 2 runs of Payer, and 1 in peace"), "{failure}");
}

/// As [`Counting`], with an id that nobody has chosen.
struct CountingUnnamed;

impl Scenario for CountingUnnamed {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Counting(true).agents(system, world)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        if life.world().durable(|durable| durable.runs().count()) == 0 {
            life.agent::<Counter>("c")?.run::<Counter>(()).await?;
        }
        Ok(())
    }
}

#[test]
fn an_unnamed_run_that_ends_otherwise_after_a_crash_is_caught() {
    // Another seed makes another id than the one of the calm world.
    let failure =
        Simulation::new(CountingUnnamed).plan("seed=1 kill-before@3".parse().unwrap()).run();
    let failure = failure.expect_err("it is noticed");
    assert_eq!(failure.invariant, "every run ends as it does in peace");
    assert!(failure.text.contains("no Counter does so in peace"), "{failure}");
}

#[test]
fn a_fault_that_finds_nothing_to_act_on_has_not_struck() {
    let nothing_there = "cancel@1 duplicate@1".parse().unwrap();
    let failure = Simulation::new(Payment(Mistake::None)).plan(nothing_there).run().unwrap_err();
    assert_eq!(failure.invariant, "a plan strikes");
    let beside = "cancel@1 duplicate@1 evict@1".parse().unwrap();
    let report = Simulation::new(Payment(Mistake::None)).plan(beside).check();
    assert_eq!((report.struck, report.faults), (1, 3));
    let dead = "kill-before@4 jump:5@4 duplicate@4".parse().unwrap();
    let report = Simulation::new(Payment(Mistake::None)).plan(dead).check();
    assert_eq!((report.struck, report.faults), (1, 3));
    let crashes = "crash-run@1 crash-parent@2".parse().unwrap();
    let report = Simulation::new(Payment(Mistake::None)).plan(crashes).check();
    assert_eq!((report.struck, report.faults), (2, 2));
}

#[test]
fn a_report_says_how_many_faults_struck() {
    let beyond = "kill-before@3 kill-after@999".parse().unwrap();
    let report = Simulation::new(Payment(Mistake::None)).plan(beyond).check();
    assert_eq!((report.struck, report.faults), (1, 2));
    assert!("kill-before@0".parse::<ghostlight_sim::Plan>().is_err(), "counted from 1");
}
