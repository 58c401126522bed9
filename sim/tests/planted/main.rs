//! The simulation finds faults: each that is planted in Ghostlight's own code, soon, and as what it is.
//!
//! That needs a build with the faults in it: `./check planted` makes it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[cfg(ghostlight_planted)]
mod scenarios;
#[cfg(ghostlight_planted)]
mod table;

#[cfg(not(ghostlight_planted))]
#[test]
fn the_faults_are_in_this_build() {
    panic!("build with RUSTFLAGS=\"--cfg ghostlight_planted\", or call ./check planted");
}
