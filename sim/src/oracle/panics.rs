//! Nothing that a user, a file or an observer does makes the system itself panic.

use ghostlight::testing::Seen;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

pub(super) struct Panics;

impl Invariant for Panics {
    fn name(&self) -> &str {
        "the system itself never panics"
    }

    fn check(&mut self, event: &Event<'_>, _: &Durable) -> Result<(), String> {
        match event {
            Event::System(Seen::Panicked { place }) => Err(format!("{place} has panicked")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires};
    use super::*;

    #[test]
    fn a_panic_of_the_system_is_noticed() {
        fires(History::of(Panics).see(Seen::Panicked { place: "here" }), "here has panicked");
    }
}
