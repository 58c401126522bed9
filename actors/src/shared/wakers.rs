//! The wakers of what a run's code waits for.

use std::collections::BTreeMap;
use std::task::Waker;

/// Wakers by what they wait for. Knows how many of them wake the code itself, since that is asked at
/// every standstill, and there may be thousands: a combinator has wakers of its own.
pub(super) struct Wakers<K> {
    wakers: BTreeMap<K, Waker>,
    of_code: usize,
}

impl<K: Ord> Wakers<K> {
    pub(super) const fn new() -> Self {
        Self { wakers: BTreeMap::new(), of_code: 0 }
    }

    /// `code`: the waker of the code itself, the same in all its life.
    pub(super) fn insert(&mut self, key: K, waker: &Waker, code: Option<&Waker>) {
        let is_of_code = |waker: &Waker| code.is_some_and(|code| code.will_wake(waker));
        let before = self.wakers.insert(key, waker.clone());
        self.of_code += usize::from(is_of_code(waker));
        self.of_code -= usize::from(before.as_ref().is_some_and(is_of_code));
    }

    pub(super) fn remove(&mut self, key: &K, code: Option<&Waker>) -> Option<Waker> {
        let removed = self.wakers.remove(key)?;
        self.of_code -= usize::from(code.is_some_and(|code| code.will_wake(&removed)));
        Some(removed)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<K> {
        self.of_code = 0;
        std::mem::take(&mut self.wakers).into_values()
    }

    /// How many of them wake the code itself.
    pub(super) fn of_code(&self) -> usize {
        self.of_code
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::Wakers;

    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn wakers_of_the_code_are_counted_as_they_come_and_go() {
        let (code, other) = (Waker::from(Arc::new(Nothing)), Waker::from(Arc::new(Nothing)));
        let mut wakers = Wakers::new();
        wakers.insert(1, &code, Some(&code));
        wakers.insert(2, &other, Some(&code));
        assert_eq!(wakers.of_code(), 1);
        wakers.insert(1, &code, Some(&code));
        assert_eq!(wakers.of_code(), 1, "replaced by the same");
        wakers.insert(2, &code, Some(&code));
        assert_eq!(wakers.of_code(), 2);
        wakers.insert(1, &other, Some(&code));
        assert_eq!(wakers.of_code(), 1);
        assert!(wakers.remove(&3, Some(&code)).is_none());
        assert!(wakers.remove(&1, Some(&code)).is_some());
        assert_eq!(wakers.of_code(), 1, "the other one went");
        assert_eq!(wakers.take_all().count(), 1);
        assert!(wakers.is_empty() && wakers.of_code() == 0);
    }
}
