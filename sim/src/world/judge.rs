//! What holds in a world, and what does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::{Holds, Violation, World};
use crate::invariant::Event;
use crate::life::words;
use crate::thread;

impl World {
    /// Something does not hold: the first such thing ends the life.
    pub(crate) fn violated(&self, invariant: &str, text: String) {
        let mut inner = self.lock();
        inner.violate(invariant, text);
        drop(inner);
        self.shared.ended.notify_one();
    }

    /// Something that a scenario asks for does not hold; the text is no part of what that is.
    fn violated_yours(&self, invariant: &str, who: &str, text: String) {
        let mut inner = self.lock();
        if inner.violation.is_none() {
            inner.line("violated", who, format!("{invariant:?} does not hold"));
            let invariant = invariant.to_owned();
            inner.violation = Some(Violation { invariant, text, yours: true });
        }
        drop(inner);
        self.shared.ended.notify_one();
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.lock().violation.clone()
    }

    /// Tells everybody who checks of an event.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.judge(event);
        self.check_always();
        if matches!(event, Event::Settled) {
            self.lock().settled = true;
            for (name, holds) in &self.shared.finally {
                if !held(holds, self) {
                    self.violated_yours(name, "", "all is over".into());
                }
            }
        }
        if self.lock().violation.is_some() {
            self.shared.ended.notify_one();
        }
    }

    /// Checks what closures over the world say.
    pub(super) fn check_always(&self) {
        let judged = thread::judging(|| {
            for (name, holds) in &self.shared.always {
                if !held(holds, self) {
                    let (who, text) = self.lock().trace.last_change();
                    self.violated_yours(name, &who, text);
                }
            }
        });
        if judged.is_none() {
            let text = "one has performed an effect, and would have to be asked again, and again";
            self.violated("closures of invariants only look at the world", text.into());
        }
    }

    /// Lets every invariant judge an event: one event at a time, whatever thread it is told on. They are
    /// checked without the lock of the world, so that they may look at it; one that panics does not hold,
    /// and takes no other with it.
    fn judge(&self, event: &Event<'_>) {
        // Nothing that an invariant can reach tells of an event before it returns.
        let mut invariants = self.shared.invariants.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = Arc::clone(&self.lock().durable);
        for invariant in &mut *invariants {
            let checked = catch_unwind(AssertUnwindSafe(|| invariant.check(event, &durable)));
            let held = checked.unwrap_or_else(|panic| Err(format!("panicked: {}", words(&*panic))));
            if let Err(text) = held {
                self.lock().violate(invariant.name(), text);
            }
        }
    }
}

/// Whether something holds; a panic says that it does not.
fn held(holds: &Holds, world: &World) -> bool {
    catch_unwind(AssertUnwindSafe(|| holds(world))).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::durable::Durable;
    use crate::invariant::{Invariant, Invariants};
    use crate::plan::Plan;

    struct Counting(Arc<AtomicU64>);

    impl Invariant for Counting {
        fn name(&self) -> &str {
            "counts"
        }

        fn check(&mut self, _: &Event<'_>, _: &Durable) -> Result<(), String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            Ok(())
        }
    }

    #[test]
    fn every_invariant_judges_every_event_of_every_thread() {
        let judged = Arc::<AtomicU64>::default();
        let invariants = Invariants::none().with(Counting(Arc::clone(&judged)));
        let world = World::new(Plan::calm(0), invariants, 1_000, crate::LIFE_MAX);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..2_000).for_each(|_| world.tell(&Event::LifeEnded)));
            }
        });
        assert_eq!(judged.load(Ordering::Relaxed), 4_000);
    }
}
