//! A client that applies what an observer is sent has the same picture as one that has seen all of
//! it once, however often it reconnects: applying a prefix again changes nothing after deduplication.

use std::collections::BTreeMap;

use ghostlight::protocol::client::{Seen, State};

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Clients {
    /// A client a run that gets the frames of all its observers, of all lives, mixed.
    mixed: BTreeMap<String, Client>,
    /// A client an observer, which gets each frame once.
    single: BTreeMap<u64, Client>,
}

#[derive(Default)]
struct Client {
    seen: Seen,
    state: State,
    frames: u64,
}

impl Client {
    fn take(&mut self, frame: &ghostlight::frame::Frame) {
        if self.seen.insert(frame) {
            self.state.apply(frame, 0);
            self.frames += 1;
        }
    }
}

impl Invariant for Clients {
    fn name(&self) -> &str {
        "clients rebuild the same picture"
    }

    fn check(&mut self, event: &Event<'_>, _: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan => self.single.clear(),
            Event::Frame { observer, run, frame } => {
                let mixed = self.mixed.entry(run.to_string()).or_default();
                // As if it had connected to the one that is furthest ahead, again and again.
                if frame.sequence <= mixed.frames {
                    mixed.take(frame);
                }
                let single = self.single.entry(*observer).or_default();
                single.take(frame);
                // One that began later, or is behind, has another picture.
                let whole = frame.sequence + 1;
                let ended = frame.event.is_hard_end();
                if ended && single.frames == whole && single.state != mixed.state {
                    return Err(format!("{run}: two clients that were sent all differ"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path};
    use super::*;
    use ghostlight::frame::{Frame, FrameEvent};

    fn tell(
        history: &mut History<Clients>,
        observer: u64,
        event: FrameEvent,
        sequence: u64,
    ) -> Result<(), String> {
        let frame = Frame { parent_tool_call_id: None, sequence, replay: false, event };
        history.tell(Event::Frame { observer, run: &path("r"), frame: &frame })
    }

    fn told(history: &mut History<Clients>, observer: u64, summary: &str) -> Result<(), String> {
        let run_id = || "r".to_owned();
        let (agent_type, input_preview, display) = ("Worker".to_owned(), None, None);
        let started =
            FrameEvent::Started { run_id: run_id(), agent_type, input_preview, order: 0, display };
        tell(history, observer, started, 0)?;
        tell(
            history,
            observer,
            FrameEvent::Finished { run_id: run_id(), summary: summary.into() },
            1,
        )
    }

    #[test]
    fn two_clients_that_were_sent_all_agree() {
        let mut history = History::of(Clients::default());
        told(&mut history, 1, "done").unwrap();
        told(&mut history, 2, "done").unwrap();
        fires(told(&mut history, 3, "otherwise"), "differ");
    }
}
