//! A process that commits is ended at any moment, and what it was told is durable must be there.
//!
//! `cargo test` runs short forms. The long ones, with the figures they end with:
//!
//! ```text
//! GHOSTLIGHT_KILL_ROUNDS=100 cargo test -p ghostlight-storage --test crash kill -- --nocapture
//! GHOSTLIGHT_OPENING_ROUNDS=45 cargo test -p ghostlight-storage --test crash opening -- --nocapture
//! GHOSTLIGHT_POWER_ROUNDS=150 cargo test -p ghostlight-storage --test crash power -- --nocapture
//! GHOSTLIGHT_DAMAGE_ROUNDS=1500 cargo test -p ghostlight-storage --test crash damage -- --nocapture
//! GHOSTLIGHT_FULL_DISK_ROUNDS=40 cargo test -p ghostlight-storage --test crash full_disk -- --nocapture
//! ```
//!
//! The rounds of the first are kills while batches are being committed; half as many while the store opens
//! come on top.
//!
//! `GHOSTLIGHT_SEED` repeats the choices of an earlier run (not the timing). The power cuts need
//! root, loop devices, mkfs.ext4 and half a GiB in /dev/shm, and have no short form. The full disk
//! needs root or user namespaces: `GHOSTLIGHT_TEST_NO_MOUNT=1` leaves it out.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "the seed, and the figures of the long forms")]

mod child;
#[path = "../../src/testing/copy.rs"]
mod copy;
mod damage;
#[path = "../../src/testing/disk.rs"]
mod disk;
mod full_disk;
mod kill;
mod opening;
mod power;
mod verify;
mod workload;

use fastrand::Rng;

/// The rounds a long form is asked for.
fn rounds(variable: &str) -> Option<u32> {
    let rounds = std::env::var(variable).ok()?;
    Some(rounds.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

#[expect(clippy::disallowed_methods, reason = "the seed itself, where none was given")]
fn seeded() -> (u64, Rng) {
    let seed = match std::env::var("GHOSTLIGHT_SEED") {
        Ok(seed) => seed.parse().expect("GHOSTLIGHT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("GHOSTLIGHT_SEED={seed}");
    (seed, Rng::with_seed(seed))
}
