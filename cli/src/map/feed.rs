//! Reads inputs on a thread of its own, no faster than they are dispatched.

use std::ffi::OsString;

use tokio::sync::mpsc;

use crate::fatal::Fatal;
use crate::inputs::{InputError, Inputs, Notes, Source};

/// What comes out of a source.
pub(super) enum Item {
    Input(OsString),
    Failed(InputError),
    /// The last item: what was passed over.
    Notes(Notes),
}

/// The inputs, read lazily.
pub(super) struct Feed {
    items: mpsc::Receiver<Item>,
    /// How many inputs there are, where that is known before they are read.
    pub(super) inputs: Option<u64>,
}

impl Feed {
    pub(super) fn open(source: Source, ahead: usize) -> Result<Self, Fatal> {
        let (sender, items) = mpsc::channel(ahead.max(1));
        let inputs = match &source {
            Source::Arguments(words) => Some(words.len() as u64),
            Source::Stdin { .. } | Source::Spool(_) | Source::Files { .. } => None,
        };
        // A path that is not there is an error before anything else happens. The inputs themselves
        // are opened on the thread that reads them, which locks standard input.
        if !matches!(source, Source::Stdin { .. }) {
            drop(Inputs::open(source.clone())?);
        }
        let read = move || {
            let inputs = Inputs::open(source);
            let mut inputs = match inputs {
                Ok(inputs) => inputs,
                Err(error) => return drop(sender.blocking_send(Item::Failed(error))),
            };
            for input in inputs.by_ref() {
                let item = input.map_or_else(Item::Failed, Item::Input);
                if sender.blocking_send(item).is_err() {
                    return;
                }
            }
            // Nobody listens any more: then nobody wants to know.
            let _ = sender.blocking_send(Item::Notes(inputs.notes()));
        };
        // The thread is left alone when the program ends: it may be waiting for a terminal.
        std::thread::Builder::new().name("inputs".into()).spawn(read)?;
        Ok(Self { items, inputs })
    }

    pub(super) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }

    /// As [`Feed::next`], outside of the runtime.
    pub(super) fn blocking_next(&mut self) -> Option<Item> {
        self.items.blocking_recv()
    }
}
