//! A tail begins where its reader asked it to, has no gap and no repeat, and ends at the run's end; what
//! it shows was durable before, and keeps its number and its words for ever. Whoever is slow, or has
//! fallen so far behind that frames were dropped, is shown the same.

use std::collections::BTreeMap;

use ghostlight::{AgentPath, Error};

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};
use crate::plan::Fault;

#[derive(Default)]
pub(super) struct Observers {
    /// Every frame that somebody was ever shown.
    shown: BTreeMap<(AgentPath, u64), String>,
    /// The tails of this life.
    tails: BTreeMap<u64, Tail>,
    /// The disk has failed in this life.
    failed: bool,
}

struct Tail {
    /// The number of the frame that comes next.
    next: u64,
    /// It has shown the run's hard end.
    ended: bool,
}

impl Invariant for Observers {
    fn name(&self) -> &str {
        "observers see what is durable, once and in order"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan => {
                self.tails.clear();
                self.failed = false;
            }
            Event::Fault(Fault::Fail(_) | Fault::FailRead) => self.failed = true,
            Event::TailBegan { observer, after, .. } => {
                let next = after.map_or(0, |after| after + 1);
                self.tails.insert(*observer, Tail { next, ended: false });
            }
            Event::Frame { observer, run, frame } => {
                let number = frame.sequence;
                let Some(tail) = self.tails.get_mut(observer) else {
                    return Err(format!("{run}: frame {number} of a tail that has not begun"));
                };
                if tail.ended {
                    return Err(format!("{run}: frame {number} was shown after the end"));
                }
                if number != tail.next {
                    let next = tail.next;
                    return Err(format!("{run}: frame {number} was shown in place of {next}"));
                }
                *tail = Tail { next: number + 1, ended: frame.event.is_hard_end() };
                let stored = durable.run_at(run);
                let is_durable = |run: &crate::durable::DurableRun| {
                    run.cleared || run.frames.contains_key(&number)
                };
                if !stored.is_some_and(is_durable) {
                    return Err(format!("{run}: frame {number} was shown before it was durable"));
                }
                let json = frame.to_json();
                let known = self.shown.entry(((*run).clone(), number));
                let before = known.or_insert_with(|| json.clone());
                if *before != json {
                    return Err(format!("{run}: frame {number} was {before}, and is {json}"));
                }
            }
            Event::TailEnded { observer, run, error } => {
                let tail = self.tails.remove(observer);
                self.ended(run, tail.as_ref(), *error, durable)?;
            }
            Event::Settled => {
                for (_, run) in durable.runs().filter(|(_, run)| !run.cleared) {
                    let Some(path) = &run.path else { continue };
                    let unseen =
                        run.frames.keys().find(|n| !self.shown.contains_key(&(path.clone(), **n)));
                    if let Some(number) = unseen {
                        return Err(format!("{path}: nobody was shown frame {number}"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Observers {
    fn ended(
        &self,
        run: &AgentPath,
        tail: Option<&Tail>,
        error: Option<&Error>,
        durable: &Durable,
    ) -> Result<(), String> {
        let stored = durable.run_at(run);
        let is_gone = stored.is_none_or(|run| run.cleared || run.record.is_none());
        match error {
            // A position beyond the end waits for the end, and shows nothing.
            None if tail.is_some_and(|tail| tail.ended || is_over(tail, stored)) => Ok(()),
            None => Err(format!("{run}: a tail ended before the run")),
            Some(Error::Cleared(_) | Error::UnknownRun(_)) if is_gone => Ok(()),
            Some(_) if self.failed => Ok(()),
            Some(error) => Err(format!("{run}: a tail failed: {error}")),
        }
    }
}

fn is_over(tail: &Tail, run: Option<&crate::durable::DurableRun>) -> bool {
    run.is_some_and(|run| {
        let ended = run.frames.values().next_back().is_some_and(|last| last.is_hard_end());
        run.cleared || (ended && tail.next >= run.frames.len() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;
    use ghostlight::frame::{Frame, FrameEvent};
    use ghostlight::protocol::run::{End, Phase};
    use ghostlight::storage::payload::Payload;
    use ghostlight::storage::records::{LogEntry, Origin};

    fn chunk(sequence: u64, body: &str) -> Frame {
        let event = FrameEvent::Chunk { run_id: "r".into(), body: body.into() };
        Frame { parent_tool_call_id: None, sequence, replay: false, event }
    }

    fn end(sequence: u64) -> Frame {
        let event = FrameEvent::Finished { run_id: "r".into(), summary: String::new() };
        Frame { parent_tool_call_id: None, sequence, replay: false, event }
    }

    fn show(history: &mut History<Observers>, frame: &Frame) -> Result<(), String> {
        history.tell(Event::Frame { observer: 1, run: &path("r"), frame })
    }

    /// A run of three frames, the last of which is its end, and a tail of it.
    fn tailed(after: Option<u64>) -> History<Observers> {
        let mut history = History::of(Observers::default());
        let chunk = LogEntry::Chunk { origin: Origin::Code, body: Payload::Inline(b"1".to_vec()) };
        let end = LogEntry::Finished { summary: String::new() };
        history.run("r", &record("r", Phase::Ended(End::Completed)));
        history.log("r", &[LogEntry::Started, chunk, end]).commit().unwrap();
        history.tell(Event::TailBegan { observer: 1, run: &path("r"), after }).unwrap();
        history
    }

    #[test]
    fn a_tail_begins_where_it_was_asked_to() {
        fires(show(&mut tailed(None), &chunk(1, "1")), "in place of 0");
        fires(show(&mut tailed(Some(1)), &chunk(1, "1")), "in place of 2");
        show(&mut tailed(Some(0)), &chunk(1, "1")).unwrap();
    }

    #[test]
    fn a_tail_has_no_gap_no_repeat_and_nothing_after_the_end() {
        let mut history = tailed(Some(0));
        show(&mut history, &chunk(1, "1")).unwrap();
        fires(show(&mut history, &chunk(1, "1")), "in place of 2");
        show(&mut history, &end(2)).unwrap();
        fires(show(&mut history, &chunk(3, "1")), "after the end");
    }

    #[test]
    fn nobody_is_shown_what_is_not_durable_or_was_another_frame() {
        fires(show(&mut tailed(Some(2)), &chunk(3, "1")), "before it was durable");
        let mut history = tailed(Some(0));
        show(&mut history, &chunk(1, "1")).unwrap();
        history.tell(Event::TailBegan { observer: 1, run: &path("r"), after: Some(0) }).unwrap();
        fires(show(&mut history, &chunk(1, "2")), "and is");
    }

    #[test]
    fn a_tail_ends_with_the_run() {
        let ended = |history: &mut History<Observers>, error: Option<&Error>| {
            history.tell(Event::TailEnded { observer: 1, run: &path("r"), error })
        };
        fires(ended(&mut tailed(Some(0)), None), "ended before the run");
        ended(&mut tailed(Some(7)), None).unwrap();
        fires(ended(&mut tailed(None), Some(&Error::Stopped)), "a tail failed");
        fires(ended(&mut tailed(None), Some(&Error::Cleared("r".into()))), "a tail failed");
        let mut history = tailed(None);
        history.tell(Event::Fault(Fault::Fail(0))).unwrap();
        ended(&mut history, Some(&Error::Stopped)).unwrap();
    }

    #[test]
    fn everything_is_shown() {
        fires(tailed(None).tell(Event::Settled), "nobody was shown frame 0");
    }
}
