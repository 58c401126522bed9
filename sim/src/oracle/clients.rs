//! A client that applies what an observer is sent has the same picture as one that has seen all of
//! it once, however often it reconnects: applying a prefix again changes nothing after deduplication. At
//! the end that picture is what is recorded.

use std::collections::BTreeMap;

use ghostlight::AgentPath;
use ghostlight::protocol::client::{SeenFrames, State};
use ghostlight::protocol::{RunKey, Status};
use ghostlight::storage::records::LogEntry;
use serde_json::Value;

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
    seen: SeenFrames,
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

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
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
                if ended && single.frames == whole {
                    if single.state != mixed.state {
                        return Err(format!("{run}: two clients that were sent all differ"));
                    }
                    shows_what_is_recorded(&single.state, run, durable)
                        .map_err(|text| format!("{run}: a client that was sent all {text}"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn shows_what_is_recorded(
    state: &State,
    path: &AgentPath,
    durable: &Durable,
) -> Result<(), String> {
    let Some(run) = durable.run_at(path).filter(|run| !run.cleared) else { return Ok(()) };
    let (Some(record), Some((parent, run_id))) = (&run.record, path.parent()) else {
        return Ok(());
    };
    let Some(shown) = state.run(run_id.as_str()) else {
        return Err("does not know it".into());
    };
    let status = record.state.status();
    if shown.status != status {
        return Err(format!("shows it as {}, and it is {status}", shown.status));
    }
    let end = record.end.clone().unwrap_or_default();
    let ends_so = match status {
        Status::Completed => shown.summary.as_ref() == Some(&end.summary),
        Status::Error => shown.error == end.error,
        _ => true,
    };
    if !ends_so {
        let (summary, error) = (&shown.summary, &shown.error);
        return Err(format!("shows the end {summary:?}, {error:?}, and it is {end:?}"));
    }
    let reached = run.frames.values().filter_map(|entry| match entry {
        LogEntry::Milestone { name, sequence, at_ms, .. } => Some((&**name, *sequence, *at_ms)),
        _ => None,
    });
    let milestones = shown.milestones.iter().map(|milestone| {
        let number = |number: &serde_json::Number| number.as_u64().unwrap_or(u64::MAX);
        (&*milestone.name, number(&milestone.sequence), number(&milestone.at))
    });
    if !milestones.eq(reached) {
        return Err(format!(
            "shows the milestones {:?}, and others are recorded",
            shown.milestones
        ));
    }
    let key = RunKey::new(&parent, &run_id);
    let reports = run.frames.values().rev().find_map(|entry| match entry {
        LogEntry::Progress { body } => Some(durable.contents(key, body)),
        // Whose time decides then, and clocks jump.
        LogEntry::Milestone { .. } => Some(None),
        _ => None,
    });
    let Some(report) = reports.flatten() else { return Ok(()) };
    let report: Value = serde_json::from_slice(&report).map_err(|error| error.to_string())?;
    let progress = shown.progress.as_ref();
    let message = progress.and_then(|progress| progress.message.as_deref());
    let fraction = progress.and_then(|progress| progress.fraction.as_ref()?.as_f64());
    let data = &report["data"];
    if (message, fraction) != (data["message"].as_str(), data["fraction"].as_f64()) {
        return Err(format!("shows the progress {progress:?}, and {data} is recorded"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;
    use ghostlight::frame::{Frame, FrameEvent};
    use ghostlight::protocol::run::{End, Phase};
    use ghostlight::storage::payload::Payload;
    use ghostlight::storage::records::{EndRecord, Origin, RunRecord};

    /// A run that has completed, with this in its log between the begin and the end.
    fn recorded(summary: &str, entry: Option<LogEntry>) -> History<Clients> {
        let end = EndRecord { summary: summary.into(), ..EndRecord::default() };
        let ended = RunRecord { end: Some(end), ..record("r", Phase::Ended(End::Completed)) };
        let mut entries = vec![LogEntry::Started];
        entries.extend(entry);
        entries.push(LogEntry::Finished { summary: summary.into() });
        let mut history = History::of(Clients::default());
        history.run("r", &ended).log("r", &entries).commit().unwrap();
        history
    }

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

    #[test]
    fn at_the_end_it_is_what_is_recorded() {
        told(&mut recorded("done", None), 1, "done").unwrap();
        fires(told(&mut recorded("done", None), 1, "otherwise"), "shows the end");
        let mut failed = History::of(Clients::default());
        failed.run("r", &record("r", Phase::Ended(End::Error))).commit().unwrap();
        fires(told(&mut failed, 1, "done"), "shows it as completed");
        let milestone = LogEntry::Milestone {
            origin: Origin::Code,
            name: "m".into(),
            sequence: 0,
            at_ms: 1,
            data: None,
        };
        fires(told(&mut recorded("done", Some(milestone)), 1, "done"), "shows the milestones");
        let body = Payload::Inline(br#"{"data":{"message":"half"}}"#.to_vec());
        let progress = LogEntry::Progress { body };
        fires(told(&mut recorded("done", Some(progress)), 1, "done"), "shows the progress");
    }
}
