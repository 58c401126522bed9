//! `ghostlight sim`: the shipped scenarios under crashes, evictions and plans of chance.

#![expect(clippy::disallowed_methods, reason = "a person waits, by the wall clock")]

use std::cell::Cell;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ghostlight_sim::scenarios::{self, Shipped};
use ghostlight_sim::{Failure, Plan, Report, Simulation};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::args::SimArgs;
use crate::fatal::Fatal;
use crate::look::{Early, Out, end};

/// Simulates what was asked for. Ctrl-C stops it as it stops any program: it has nothing to put away.
pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Fatal> {
    end(simulate(args))
}

fn simulate(args: &SimArgs) -> Result<ExitCode, Early> {
    let all = scenarios::all();
    let chosen = match &args.scenario {
        None => all,
        Some(name) => vec![find(all, name)?],
    };
    if args.list {
        return list(&chosen, args.json);
    }
    refuse_plan_of_environment(args)?;
    if args.plan.as_deref().is_some_and(|plan| plan.trim().is_empty()) {
        return Err(Fatal::new("the plan is empty: give one as a failure prints it").into());
    }
    let plan: Option<Plan> =
        args.plan.as_deref().map(str::parse).transpose().map_err(Fatal::from)?;
    let mut code = ExitCode::SUCCESS;
    let mut sums = Sums::default();
    for scenario in &chosen {
        let began = Instant::now();
        let name = scenario.name;
        let simulation = match &plan {
            Some(plan) => (scenario.simulation)().plan(plan.clone()),
            None => everything(scenario, args.seeds),
        };
        let progress = Progress::of(name);
        let watched = progress.clone();
        let simulated = simulation
            .repeated_by(move |plan| format!("ghostlight sim --scenario {name} --plan '{plan}'"))
            .watch(move |done, all| watched.at(done, all))
            .run();
        progress.end();
        match simulated {
            Ok(report) => {
                let took = began.elapsed();
                print(scenario, &report, took, args.json)?;
                sums.add(&report, took);
            }
            Err(failure) => {
                print_failure(scenario, &failure, args.json)?;
                code = ExitCode::from(1);
            }
        }
    }
    if !args.json && sums.scenarios > 1 {
        print_sums(&sums)?;
    }
    Ok(code)
}

/// The variable is for tests. Obeyed, it would leave nothing of what was asked for; ignored, it would
/// surprise whoever has set it.
fn refuse_plan_of_environment(args: &SimArgs) -> Result<(), Fatal> {
    match std::env::var_os("GHOSTLIGHT_SIM_PLAN").filter(|plan| !plan.is_empty()) {
        None => Ok(()),
        Some(plan) => {
            let scenario = args.scenario.as_deref().unwrap_or("NAME");
            let plan = plan.to_string_lossy();
            Err(Fatal::new(format!(
                "GHOSTLIGHT_SIM_PLAN is set, and is for tests; unset it, or give the plan as an option: ghostlight sim --scenario {scenario} --plan '{plan}'"
            )))
        }
    }
}

fn find(all: Vec<Shipped>, name: &str) -> Result<Shipped, Fatal> {
    let names: Vec<_> = all.iter().map(|scenario| scenario.name).collect();
    let names = names.join(", ");
    let found = all.into_iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| {
        Fatal::new(format!("{name:?} is no scenario of this program; there are: {names}"))
    })
}

fn everything(scenario: &Shipped, seeds: u64) -> Simulation {
    (scenario.simulation)()
        .crash_at_every_commit()
        .evict_at_every_turn()
        .crash_parent_at_every_turn()
        .seeds(seeds)
}

/// How far a scenario is: a bar on a terminal, and else a line now and then.
#[derive(Clone)]
struct Progress {
    scenario: &'static str,
    bar: Option<ProgressBar>,
    told: Rc<Cell<Instant>>,
}

/// How often a line tells of progress where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(30);

impl Progress {
    fn of(scenario: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(None, target).with_message(scenario);
            match ProgressStyle::with_template("{msg:10} {wide_bar} {pos}/{len} plans, {eta} left")
            {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { scenario, bar, told: Rc::new(Cell::new(Instant::now())) }
    }

    fn at(&self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
        } else if self.told.get().elapsed() > TELL_EVERY {
            self.told.set(Instant::now());
            eprintln!("{:10} {done} of {all} plans", self.scenario);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn list(scenarios: &[Shipped], json: bool) -> Result<ExitCode, Early> {
    let mut out = Out::default();
    for Shipped { name, about, .. } in scenarios {
        match json {
            true => out.line(json!({ "scenario": name, "about": about })),
            false => out.line(format!("{name:10} {about}")),
        }
    }
    out.print()?;
    Ok(ExitCode::SUCCESS)
}

fn per_second(count: u64, took: Duration) -> u64 {
    (count as f64 / took.as_secs_f64().max(0.001)).round() as u64
}

/// What all scenarios together have done.
#[derive(Default)]
struct Sums {
    scenarios: u64,
    plans: u64,
    runs: u64,
    kills: u64,
    took: Duration,
}

impl Sums {
    fn add(&mut self, report: &Report, took: Duration) {
        self.scenarios += 1;
        self.plans += report.plans;
        self.runs += report.runs;
        self.kills += report.kills;
        self.took += took;
    }
}

fn print_sums(sums: &Sums) -> Result<(), Early> {
    let Sums { scenarios, plans, runs, kills, took } = *sums;
    let mut out = Out::default();
    out.line(format!(
        "in all     {scenarios} scenarios: {plans} plans, {runs} runs, {kills} crashes in {:.1} s: {} runs/s, {} crashes/s",
        took.as_secs_f64(),
        per_second(runs, took),
        per_second(kills, took)
    ));
    out.print()
}

fn print(scenario: &Shipped, report: &Report, took: Duration, json: bool) -> Result<(), Early> {
    let mut out = Out::default();
    if json {
        let line = json!({
            "scenario": scenario.name,
            "ok": true,
            "plans": report.plans,
            "lives": report.lives,
            "runs": report.runs,
            "crashes": report.kills,
            "crashPoints": report.calm_commits,
            "messages": report.calm_messages,
            "faults": report.faults,
            "struck": report.struck,
            "warnings": report.warnings,
            "seconds": (took.as_secs_f64() * 1000.0).round() / 1000.0,
            "plansPerSecond": per_second(report.plans, took),
            "runsPerSecond": per_second(report.runs, took),
            "crashesPerSecond": per_second(report.kills, took),
        });
        out.line(line);
    } else {
        out.line(format!(
            "{:10} ok: {} plans, {} runs, {} crashes at {} crash points, {} of {} faults struck; {} runs/s, {} crashes/s",
            scenario.name,
            report.plans,
            report.runs,
            report.kills,
            report.calm_commits,
            report.struck,
            report.faults,
            per_second(report.runs, took),
            per_second(report.kills, took)
        ));
        for warning in &report.warnings {
            out.line(format!("{:10} warning: {warning}", scenario.name));
        }
    }
    out.print()
}

fn print_failure(scenario: &Shipped, failure: &Failure, json: bool) -> Result<(), Early> {
    let mut out = Out::default();
    if json {
        let trace: Vec<_> = failure.trace.iter().map(ToString::to_string).collect();
        let line = json!({
            "scenario": scenario.name,
            "ok": false,
            "invariant": failure.invariant,
            "text": failure.text,
            "foundUnder": failure.found.to_string(),
            "plan": failure.plan.to_string(),
            "repeats": failure.repeats,
            "warnings": failure.warnings,
            "again": failure.command,
            "trace": trace,
        });
        out.line(line);
    } else {
        out.line(format!("{failure}\n"));
    }
    out.print()
}
