//! Code that is polled, stands still, and is released what it waits for.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use ghostlight_protocol::journal::{Mismatch, Outside, Wake};

use super::{Inner, Shared};
use crate::log::of_run;
use crate::messages::RunMsg;

impl Shared {
    /// Called when the code is about to be polled, with its waker, the same in all its life. One clone
    /// of it is kept beside those that [`Shared::kept`] counts.
    ///
    /// Releases to code that stands still what has completed since. That is done here and at standstills,
    /// in the code's own task alone: a combinator polls its futures in the order in which they are woken,
    /// and two threads that woke one each would leave that order to chance.
    pub(crate) fn polled(&self, waker: &Waker) {
        let mut inner = self.lock();
        let released = match inner.journal.is_standing() {
            true => self.release(&mut inner, Outside::MayWake),
            false => Vec::new(),
        };
        inner.code.get_or_insert_with(|| waker.clone());
        if std::mem::take(&mut inner.outside) && !inner.outside_told && self.node.watches_code() {
            inner.outside_told = true;
            of_run!(
                warn,
                self,
                "the code of a run has awaited something that is not recorded: after a crash it is awaited again, and may end in another way; move it into a step"
            );
        }
        inner.journal.polled();
        drop(inner);
        released.into_iter().for_each(Waker::wake);
    }

    /// Waits until the run is cancelled.
    pub(crate) async fn cancelled(&self) {
        struct Waits<'a> {
            shared: &'a Shared,
            number: u64,
        }
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                let inner = &mut *self.shared.lock();
                inner.cancel_wakers.remove(&self.number, inner.code.as_ref());
            }
        }
        let number = {
            let mut inner = self.lock();
            inner.next_cancel += 1;
            inner.next_cancel
        };
        let waits = Waits { shared: self, number };
        poll_fn(|cx| {
            let mut guard = self.lock();
            let inner = &mut *guard;
            // Asked under the lock, so that none is added once all were taken to be woken.
            if self.token.is_cancelled() {
                return Poll::Ready(());
            }
            inner.cancel_wakers.insert(waits.number, cx.waker(), inner.code.as_ref());
            Poll::Pending
        })
        .await;
    }

    /// Tells the code that the run is cancelled. Code that still repeats what the log has is told once
    /// it stands still and can be told nothing else: it was in the middle of its work when the cancel
    /// came, and comes to what it had begun to do then by the same way. Returns whether the run was not
    /// cancelled before.
    pub(crate) fn cancel(&self) -> bool {
        if self.cancelled.is_cancelled() {
            return false;
        }
        self.cancelled.cancel();
        let mut inner = self.lock();
        let wakers = match inner.journal.is_behind() && !inner.journal.is_standing() {
            true => Vec::new(),
            false => self.tell_cancel(&mut inner),
        };
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Whether the code has yet to be told that the run is cancelled.
    fn owes_cancel(&self) -> bool {
        self.cancelled.is_cancelled() && !self.token.is_cancelled()
    }

    fn tell_cancel(&self, inner: &mut Inner) -> Vec<Waker> {
        // Nobody waits for the token itself.
        self.token.cancel();
        self.unhold(inner);
        inner.cancel_wakers.take_all().collect()
    }

    /// Nothing is [held back](Shared::holds) any longer.
    fn unhold(&self, inner: &mut Inner) {
        if !inner.queue.is_empty() {
            self.wake_actor(inner);
        }
    }

    /// Why the code does not fit the log, if it does not.
    pub(crate) fn take_mismatch(&self) -> Option<Mismatch> {
        self.lock().mismatch.take()
    }

    /// How many clones of the code's waker are kept here for what the code waits for, but for the disk,
    /// which is outside of the journal.
    pub(crate) fn kept(&self) -> usize {
        let inner = self.lock();
        inner.call_wakers.of_code() + inner.cancel_wakers.of_code()
    }

    /// Called when the code was polled to a standstill. `outside`: whether anything but what it has
    /// asked for here may wake it. Returns what the code has done so far if it is in doubt, see
    /// [`Journal::is_in_doubt`].
    pub(crate) fn standstill(&self, outside: Outside) -> Option<u64> {
        let mut inner = self.lock();
        let outside = match outside {
            // The disk wakes it in time, however slow it is, and it may ask for more then.
            _ if inner.waits_for_disk() && !self.is_stuck(&inner) => Outside::MayWake,
            // What it waits for is held back until it asks for more, and so never comes.
            Outside::Overdue if inner.waits_for_disk() => Outside::Nothing,
            outside => outside,
        };
        let wakers = self.release(&mut inner, outside);
        let dormant = inner.dormant();
        inner.outside = wakers.is_empty()
            && inner.frozen.is_none()
            && !inner.reads_source
            && inner.probed == 0
            && !inner.waits_for_context();
        let in_doubt = inner.frozen.is_none()
            && match inner.waits_for_disk() {
                true => self.is_stuck(&inner) && inner.journal.is_standing(),
                false => inner.journal.is_in_doubt(),
            };
        let doubt = in_doubt.then_some(inner.activity);
        // Waking may drop what belongs to the code, and that may ask for the lock.
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        if dormant.is_some() {
            self.tell(RunMsg::Dormant);
        }
        doubt
    }

    /// Releases what is next to code that stands still, until somebody is there to take it. Returns the
    /// wakers of those and, last, of the code itself: a combinator that was woken and not polled since,
    /// or whose poller is gone, passes nothing on, and what follows is released at the next standstill.
    fn release(&self, inner: &mut Inner, outside: Outside) -> Vec<Waker> {
        while inner.frozen.is_none() {
            let owes_cancel = self.owes_cancel();
            let mut wakers = Vec::new();
            let was_behind = !inner.journal.is_caught_up();
            let released = inner.journal.standstill(outside);
            if was_behind && inner.journal.is_caught_up() && inner.report_held() {
                self.wake_actor(inner);
            } else if matches!(released, Ok(Wake::One(_))) {
                // What was reported before this result is out of date.
                inner.held_progress = None;
            }
            match released {
                Ok(Wake::Nobody) if !owes_cancel => break,
                Ok(Wake::One(call)) => wakers = inner.take_wakers(Wake::One(call)),
                Ok(wake) => {
                    self.unhold(inner);
                    wakers = inner.take_wakers(wake);
                    if owes_cancel {
                        wakers.extend(self.tell_cancel(inner));
                    }
                }
                // What it has not asked for so far may be what it does once it is told.
                Err(_) if owes_cancel => wakers = self.tell_cancel(inner),
                Err(mismatch) => self.mismatch(inner, mismatch),
            }
            if !wakers.is_empty() {
                if let Some(code) = &inner.code {
                    wakers.retain(|waker| !waker.will_wake(code));
                    wakers.push(code.clone());
                }
                return wakers;
            }
        }
        Vec::new()
    }
}
