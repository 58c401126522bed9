//! The shipped scenarios under all single crash points, and under plans of chance.

use ghostlight_sim::{Simulation, scenarios};

#[test]
fn an_order_survives_any_crash() {
    let report = Simulation::new(scenarios::OrderFulfilment).crash_at_every_commit().check();
    eprintln!("{report}");
    assert!(report.calm_commits >= 20, "{report}");
}

#[test]
fn an_order_survives_evictions_and_crashes_of_its_shop() {
    let report = Simulation::new(scenarios::OrderFulfilment)
        .evict_at_every_turn()
        .crash_parent_at_every_turn()
        .check();
    eprintln!("{report}");
}

#[test]
fn an_order_survives_chance() {
    let report = Simulation::new(scenarios::OrderFulfilment).seeds(200).check();
    eprintln!("{report}");
}
