//! The shipped scenarios under a sample of all crash points, evictions, crashes of parents and plans
//! of chance. The whole is `ghostlight sim`, in release.

use ghostlight_sim::{Report, Simulation, scenarios};

fn shipped(name: &str) -> Simulation {
    let all = scenarios::all();
    let shipped = all.iter().find(|shipped| shipped.name == name).expect("it is shipped");
    (shipped.simulation)()
}

fn under_a_sample_of_everything(name: &str) -> Report {
    under_so_many(name, 40)
}

fn under_so_many(name: &str, plans: usize) -> Report {
    let simulation = shipped(name).crash_at_every_commit().evict_at_every_turn();
    let simulation = simulation.crash_parent_at_every_turn().seeds(100).at_most(plans);
    let report = simulation.check();
    eprintln!("{name}: {report}");
    report
}

#[test]
fn an_order_survives_any_crash() {
    let report = shipped("order").crash_at_every_commit().check();
    eprintln!("order: {report}");
    assert!(report.calm_commits >= 20, "{report}");
}

#[test]
fn an_order_survives() {
    under_a_sample_of_everything("order");
}

#[test]
fn a_fan_out_survives() {
    under_a_sample_of_everything("fan-out");
}

#[test]
fn cancels_survive() {
    under_a_sample_of_everything("cancel");
}

#[test]
fn hooks_survive() {
    under_a_sample_of_everything("hooks");
}

#[test]
fn clearing_survives() {
    under_a_sample_of_everything("clear");
}

#[test]
fn retries_survive() {
    under_a_sample_of_everything("retry");
}

#[test]
fn a_batch_survives() {
    under_a_sample_of_everything("batch");
}

#[test]
fn nested_waits_survive() {
    under_a_sample_of_everything("nest");
}

#[test]
fn readers_survive() {
    // Each of them reads more than a thousand frames, several times.
    under_so_many("tail", 12);
}

#[test]
fn refusals_survive() {
    under_a_sample_of_everything("refuse");
}

#[test]
fn the_names_of_shipped_scenarios_are_their_own() {
    for shipped in scenarios::all() {
        assert_eq!((shipped.simulation)().name(), shipped.name);
    }
}
