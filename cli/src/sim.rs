//! `ghostlight sim`: the shipped scenarios under crashes, evictions and plans of chance.

use std::io::IsTerminal;
use std::process::ExitCode;
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
    let plan: Option<Plan> =
        args.plan.as_deref().map(str::parse).transpose().map_err(Fatal::from)?;
    let mut code = ExitCode::SUCCESS;
    for scenario in chosen {
        let began = Instant::now();
        let bar = bar(&scenario);
        let simulation = match &plan {
            Some(plan) => (scenario.simulation)().plan(plan.clone()),
            None => everything(&scenario, args.seeds),
        };
        let progress = bar.clone();
        let simulated = simulation
            .watch(move |done, all| {
                progress.set_length(all);
                progress.set_position(done);
            })
            .run();
        bar.finish_and_clear();
        match simulated {
            Ok(report) => print(&scenario, &report, began.elapsed(), args.json)?,
            Err(failure) => {
                print_failure(&failure, args.json)?;
                code = ExitCode::from(1);
            }
        }
    }
    Ok(code)
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

fn bar(scenario: &Shipped) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {pos}/{len} plans");
    let bar = ProgressBar::with_draw_target(None, target).with_message(scenario.name);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
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

fn print(scenario: &Shipped, report: &Report, took: Duration, json: bool) -> Result<(), Early> {
    let seconds = took.as_secs_f64();
    let plans_per_second = (report.plans as f64 / seconds.max(0.001)).round();
    let mut out = Out::default();
    if json {
        let line = json!({
            "scenario": scenario.name,
            "ok": true,
            "plans": report.plans,
            "lives": report.lives,
            "crashPoints": report.calm_commits,
            "messages": report.calm_messages,
            "faults": report.faults,
            "struck": report.struck,
            "warnings": report.warnings,
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "plansPerSecond": plans_per_second,
        });
        out.line(line);
    } else {
        out.line(format!(
            "{:10} ok: {} plans, {} crash points, {} lives, {} of {} faults struck, {plans_per_second} plans/s",
            scenario.name,
            report.plans,
            report.calm_commits,
            report.lives,
            report.struck,
            report.faults
        ));
        for warning in &report.warnings {
            out.line(format!("{:10} warning: {warning}", scenario.name));
        }
    }
    out.print()
}

fn print_failure(failure: &Failure, json: bool) -> Result<(), Early> {
    let mut out = Out::default();
    if json {
        let trace: Vec<_> = failure.trace.iter().map(ToString::to_string).collect();
        let line = json!({
            "scenario": failure.scenario,
            "ok": false,
            "invariant": failure.invariant,
            "text": failure.text,
            "foundUnder": failure.found.to_string(),
            "plan": failure.plan.to_string(),
            "again": failure.command(),
            "trace": trace,
        });
        out.line(line);
    } else {
        out.line(format!("{failure}\n"));
    }
    out.print()
}
