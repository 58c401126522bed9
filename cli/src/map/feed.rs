//! Reads inputs on a thread of its own, no faster than they are dispatched.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::fatal::Fatal;
use crate::inputs::{InputError, Inputs, Notes, Source};

/// What comes out of a source.
pub(super) enum Item {
    Input(OsString),
    Failed(InputError),
    /// The last item: what was passed over.
    Notes(Notes),
    /// Whatever reads the inputs has panicked, or was [told to stop](Stopper): there may be more of them.
    Lost,
}

/// The inputs, read lazily.
pub(super) struct Feed {
    items: mpsc::Receiver<Item>,
    /// How many inputs there are, where that is known before they are read.
    pub(super) inputs: Option<u64>,
    stopper: Stopper,
}

/// Ends [`Feed::blocking_next`], whatever it waits for.
#[derive(Clone)]
pub(super) struct Stopper {
    stopped: Arc<AtomicBool>,
    items: mpsc::WeakSender<Item>,
}

impl Stopper {
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Where there is no room for it, nobody waits for an item.
        let _ = self.items.upgrade().map(|items| items.try_send(Item::Lost));
    }
}

impl Feed {
    pub(super) fn open(source: Source, ahead: usize) -> Result<Self, Fatal> {
        let inputs = match &source {
            Source::Arguments(words) => Some(words.len() as u64),
            Source::Stdin { .. } | Source::Spool(_) | Source::Files { .. } => None,
        };
        // A path that is not there is an error before anything else happens. The inputs themselves
        // are opened on the thread that reads them, which locks standard input.
        if !matches!(source, Source::Stdin { .. }) {
            drop(Inputs::open(source.clone())?);
        }
        let feed = Self::start(ahead, |items| read(source, items))?;
        Ok(Self { inputs, ..feed })
    }

    fn start(
        ahead: usize,
        read: impl FnOnce(&mpsc::Sender<Item>) + Send + 'static,
    ) -> Result<Self, Fatal> {
        let (sender, items) = mpsc::channel(ahead.max(1));
        let stopper = Stopper { stopped: Arc::default(), items: sender.downgrade() };
        let read = move || {
            if catch_unwind(AssertUnwindSafe(|| read(&sender))).is_err() {
                let _ = sender.blocking_send(Item::Lost);
            }
        };
        // The thread is left alone when the program ends: it may be waiting for a terminal.
        std::thread::Builder::new().name("inputs".into()).spawn(read)?;
        Ok(Self { items, inputs: None, stopper })
    }

    pub(super) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }

    /// As [`Feed::next`], outside of the runtime. Once it is told to stop, there is no input any more.
    pub(super) fn blocking_next(&mut self) -> Option<Item> {
        let item = self.items.blocking_recv();
        if self.is_stopped() { Some(Item::Lost) } else { item }
    }

    pub(super) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopper.stopped.load(Ordering::Relaxed)
    }
}

fn read(source: Source, items: &mpsc::Sender<Item>) {
    let mut inputs = match Inputs::open(source) {
        Ok(inputs) => inputs,
        Err(error) => return drop(items.blocking_send(Item::Failed(error))),
    };
    for input in inputs.by_ref() {
        let item = input.map_or_else(Item::Failed, Item::Input);
        if items.blocking_send(item).is_err() {
            return;
        }
    }
    // Nobody listens any more: then nobody wants to know.
    let _ = items.blocking_send(Item::Notes(inputs.notes()));
}

/// What to say when it is [`Item::Lost`].
pub(super) fn lost() -> Fatal {
    Fatal::new("a bug in what reads the inputs: the list is not read to its end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_panics_is_no_end_of_the_list() {
        let mut feed = Feed::start(1, |items| {
            let _ = items.blocking_send(Item::Input("a".into()));
            panic!("broken");
        })
        .unwrap();
        assert!(matches!(feed.next().await, Some(Item::Input(_))));
        assert!(matches!(feed.next().await, Some(Item::Lost)));
        assert!(feed.next().await.is_none());
    }
}
