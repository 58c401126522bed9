//! What the outside world has seen of effects: charges, mails, shipments.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::world::World;

/// Counts external effects by idempotency key, over all lives of the process.
///
/// It stands for an outside system that honours idempotency keys: the second performance under a
/// key changes nothing there. So an effect has happened as often as there are *different* keys, and
/// an effect without a key happens anew each time. Clones share the ledger.
#[derive(Clone, Default)]
pub struct Effects {
    ledger: Arc<Mutex<Ledger>>,
    /// Whose timeline has a line for each performance.
    world: Option<World>,
}

#[derive(Debug, Default)]
struct Ledger {
    keyed: BTreeMap<(String, String), u64>,
    unkeyed: BTreeMap<String, u64>,
}

impl Effects {
    pub(crate) fn in_world(&self, world: &World) -> Self {
        Self { ledger: Arc::clone(&self.ledger), world: Some(world.clone()) }
    }

    fn note(&self, text: String) {
        if let Some(world) = &self.world {
            world.trace("effect", text);
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an effect under an idempotency key. Returns whether it was the first time.
    pub fn perform(&self, effect: &str, key: &str) -> bool {
        let mut ledger = self.ledger();
        let times = ledger.keyed.entry((effect.to_owned(), key.to_owned())).or_default();
        *times += 1;
        let first = *times == 1;
        drop(ledger);
        self.note(format!("{effect} under {key}{}", if first { "" } else { ", again" }));
        first
    }

    /// Performs an effect that the outside world cannot tell from the one before.
    pub fn perform_unkeyed(&self, effect: &str) {
        *self.ledger().unkeyed.entry(effect.to_owned()).or_default() += 1;
        self.note(format!("{effect} without a key"));
    }

    /// How often the effect has happened: once a key, and once for every time without one.
    pub fn count(&self, effect: &str) -> u64 {
        let ledger = self.ledger();
        let keyed = ledger.keyed.keys().filter(|(name, _)| name == effect).count() as u64;
        keyed + ledger.unkeyed.get(effect).copied().unwrap_or(0)
    }

    /// How often the effect was performed under this key, repetitions included.
    pub fn performances(&self, effect: &str, key: &str) -> u64 {
        let key = (effect.to_owned(), key.to_owned());
        self.ledger().keyed.get(&key).copied().unwrap_or(0)
    }
}
