//! The side of the run's actor: it takes what is queued, reports what is durable, and stops the code.

use std::task::Waker;

use ghostlight_protocol::journal::Mismatch;
use ghostlight_storage::records::LogEntry;

use super::{Done, Dormant, Frozen, Shared, is_of_source};

impl Shared {
    /// Judges that the code has returned. If it does not fit the log, what is held back is forgotten.
    pub(crate) fn finish(&self) -> Result<(), Mismatch> {
        let mut inner = self.lock();
        let finished = inner.journal.finish();
        match &finished {
            // The commit of the end takes it along.
            Ok(()) => _ = inner.report_held(),
            Err(_) => self.forget_held(&mut inner),
        }
        finished
    }

    /// Stops the code where it stands, if it is as dormant as it was.
    pub(crate) fn freeze(&self, before: Dormant) -> bool {
        let mut inner = self.lock();
        let unchanged = inner.dormant() == Some(before);
        if unchanged {
            inner.frozen = Some(Frozen::Suspended);
        }
        unchanged
    }

    /// Lets nothing that the code asks for happen any more.
    pub(crate) fn stop(&self, why: Frozen) {
        self.lock().frozen = Some(why);
    }

    /// As [`Shared::stop`], for a run that is entered again unless something else was decided.
    pub(crate) fn leave(&self) {
        self.lock().frozen.get_or_insert(Frozen::Left);
    }

    /// Why nothing that the code asks for happens any more, if that is so.
    pub(crate) fn frozen(&self) -> Option<Frozen> {
        self.lock().frozen
    }

    /// Lets nothing that the code asks for happen any more, now that the run's end is decided, and
    /// forgets what the code has asked for and is not on its way yet.
    pub(crate) fn discard(&self) {
        let mut inner = self.lock();
        inner.frozen = Some(Frozen::Ended);
        inner.queue.clear();
        inner.progress = None;
        inner.held_progress = None;
    }

    /// The actor takes over what is queued, up to about `bytes_max`, at least one entry. What is
    /// [held back](Shared::holds) stays, unless the run's end is `decided` and comes after it.
    pub(crate) fn take(&self, bytes_max: usize, decided: bool) -> (Vec<LogEntry>, u64) {
        let mut inner = self.lock();
        inner.told = false;
        let mut taken = Vec::new();
        let mut bytes = 0;
        let holds = !decided && self.holds(&inner);
        while let Some(entry) = inner.queue.front() {
            bytes += entry.bytes();
            if holds && !is_of_source(entry) {
                break;
            }
            if !taken.is_empty() && bytes > bytes_max {
                break;
            }
            taken.extend(inner.queue.pop_front());
        }
        let left = inner.queue.len() as u64;
        (taken, inner.queued - left)
    }

    /// Whether nothing is queued.
    pub(crate) fn is_drained(&self) -> bool {
        self.lock().queue.is_empty()
    }

    /// The actor reports that everything up to `number` is durable, and what that completes.
    pub(crate) fn durable(&self, number: u64, bytes: usize, done: Vec<Done>) {
        let mut inner = self.lock();
        inner.durable = inner.durable.max(number);
        inner.queued_bytes = inner.queued_bytes.saturating_sub(bytes);
        let mut wakers: Vec<Waker> = std::mem::take(&mut inner.room_wakers);
        let waiting = inner.durable_wakers.split_off(&(number + 1));
        let woken = std::mem::replace(&mut inner.durable_wakers, waiting);
        wakers.extend(woken.into_values().flatten());
        let mut has_completed = false;
        for done in done {
            let completed = match done {
                Done::Call(call, result) => Some((call, result)),
                Done::Act => inner.pending_acts.pop_front().map(|call| (call, Ok(Vec::new()))),
            };
            if let Some((call, result)) = completed {
                inner.journal.complete(call, result);
                has_completed = true;
            }
        }
        if inner.journal.is_standing() {
            let is_stuck = inner.waits_for_disk() && self.is_stuck(&inner);
            let is_judged = wakers.is_empty() && !is_stuck || inner.journal.is_caught_up();
            // The code's own task releases what has completed, see `Shared::polled`. And whoever waited for
            // the disk may be gone, where what the code waits for otherwise has yet to be judged.
            if has_completed || !is_judged {
                wakers.extend(inner.code.clone());
            }
        }
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}
